// The visitor's ratings, the latest first. On a phone all but the search and the latest folds away.

import { call } from "./api.js";
import { announce, arrange, byId, debounce, el, latestOnly, on, plural } from "./dom.js";
import { called, named } from "./format.js";
import { ratingInput } from "./rating_input.js";
import { copyOf } from "./state.js";

const WIDE = matchMedia("(min-width: 58rem)");
const ROWS = 8; // before "Show all"

/** Returns begin(film), which puts a film at the top, ready to be rated. */
export function mountRatings({ model, scale, store, words }) {
  const rows = new Map(); // item → row
  let drafts = []; // films picked but not rated yet
  let all = false;
  let open = WIDE.matches;

  const rowOf = (film) => {
    if (!rows.has(film.item)) rows.set(film.item, makeRow(film, scale, store, drop));
    return rows.get(film.item);
  };
  const drop = (film) => {
    const { nextSibling, previousSibling } = rows.get(film.item);
    const isDraft = drafts.some(({ item }) => item === film.item);
    drafts = drafts.filter(({ item }) => item !== film.item);
    if (isDraft) show();
    else store.drop(film.item);
    ((nextSibling ?? previousSibling)?.querySelector(".remove") ?? byId("search")).focus();
    announce(`${called(film)} removed.`);
  };
  const show = () => {
    drafts = drafts.filter(({ item }) => store.ratingOf(item) === null);
    const films = [...drafts, ...store.state.ratings];
    const most = open ? ROWS : 1;
    const shown = all && open ? films : films.slice(0, Math.max(most, drafts.length));
    const nodes = shown.map(rowOf);
    for (const [item, row] of rows) if (!nodes.includes(row)) rows.delete(item);
    arrange(byId("rated"), nodes);
    shown.forEach((film, at) => nodes[at].set(store.ratingOf(film.item)));
    byId("nothing").hidden = films.length > 0;
    byId("all-rated").hidden = films.length <= ROWS;
    byId("all-rated").textContent = all ? "Show fewer" : `Show all ${films.length}`;
    showTools(store);
    fold(open);
  };
  const fold = (on) => {
    open = on;
    byId("mine").classList.toggle("folded", !on);
    byId("fold").setAttribute("aria-expanded", String(on));
    const { length } = store.state.ratings;
    byId("fold-text").textContent = on ? "Less" : length ? `All ${length}` : "More";
  };
  /** Put a film at the top, ready to be rated; a pick needs no rating. */
  const begin = (film) => {
    if (!scale.starred) {
      if (store.ratingOf(film.item) === null) store.rate(film, scale.high);
      announce(`${called(film)} picked.`);
      return;
    }
    if (store.ratingOf(film.item) !== null) all = open = true; // its row may be folded away
    else if (!drafts.some(({ item }) => item === film.item)) drafts = [film, ...drafts];
    show();
    rowOf(film).focusIn();
  };
  const replace = (ratings, sample) => {
    drafts = [];
    store.replace(ratings, sample);
    announce(`${sample ?? "All removed"}: ${plural(ratings.length, scale.noun)}.`);
  };

  mountSearch({ onPick: begin, ratingOf: store.ratingOf, scale, words });
  on("all-rated", "click", () => {
    all = !all;
    show();
  });
  on("fold", "click", () => {
    open = !open;
    show();
  });
  WIDE.addEventListener("change", () => {
    open = WIDE.matches;
    show();
  });
  on("undo", "click", () => {
    store.undo();
    announce(`Undone. ${plural(store.state.ratings.length, scale.noun)}.`);
  });
  on("clear", "click", () => replace([], null));
  mountSamples(model.sample_profiles, (sample) => replace(copyOf(sample, scale), sample.name));
  store.listen((kind) => (kind === "ratings" ? show() : showTools(store)));
  byId("mine").hidden = false;
  show();
  return begin;
}

function makeRow(film, scale, store, drop) {
  const { name, year } = named(film);
  const props = { class: "remove", "aria-label": `Remove ${called(film)}` };
  const remove = el("button", { ...props, onclick: () => drop(film) }, "×");
  const title = el("span", {}, name, " ", el("span", { class: "year" }, year));
  if (!scale.starred) {
    const row = el("li", {}, el("span", {}, el("i", { class: "heart" }), title), remove);
    row.set = () => {};
    return row;
  }
  const label = `Your rating of ${called(film)}`;
  const input = ratingInput(scale, label, null, (rating) => store.rate(film, rating));
  // Enter is free in a radio group: back to the search, to rate the next film.
  input.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") setTimeout(() => byId("search").focus());
  });
  const row = el("li", {}, title, input, remove);
  row.set = (rating) => {
    input.set(rating);
    row.classList.toggle("draft", rating === null);
  };
  row.focusIn = input.focusIn;
  return row;
}

function showTools(store) {
  const { ratings, sample } = store.state;
  byId("undo").disabled = !store.canUndo();
  byId("export").disabled = byId("clear").disabled = byId("share").disabled = ratings.length === 0;
  byId("sample-note").hidden = sample === null;
  for (const chip of byId("chips").children)
    chip.setAttribute("aria-pressed", String(chip.textContent === sample));
}

function mountSamples(samples, choose) {
  byId("samples").hidden = samples.length === 0;
  const chips = samples.map((sample) =>
    el("button", { onclick: () => choose(sample) }, sample.name),
  );
  byId("chips").replaceChildren(...chips);
}

// -- Find a film: a combobox with a list box, by keyboard or pointer.

/** onPick(film) is called with the chosen film; ratingOf(item) marks those already rated. */
export function mountSearch({ onPick, ratingOf, scale, words }) {
  const input = byId("search");
  const box = byId("found");
  let films = [];
  let active = -1;
  const request = latestOnly();

  const say = (text) => {
    byId("found-note").textContent = text;
    byId("found-note").hidden = !text;
  };
  const point = (place) => {
    active = place;
    [...box.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === place)));
    box.children[place]?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", box.children[place]?.id ?? "");
  };
  const open = (on) => {
    box.hidden = !on;
    input.setAttribute("aria-expanded", String(on));
    point(-1);
  };
  const close = () => {
    request.abort();
    open(false);
  };
  const pick = (film) => {
    input.value = "";
    close();
    onPick(film);
  };
  const show = (results, query) => {
    films = results;
    box.replaceChildren(...films.map((film, at) => option(film, at, ratingOf(film.item), scale)));
    open(films.length > 0 && document.activeElement === input); // who left it meanwhile is done
    say(films.length ? "" : `No ${words.one} found for “${query}”.`);
    announce(films.length ? `${plural(films.length, words.one, words.many)} found.` : `No ${words.one} found.`);
  };
  const look = async () => {
    const signal = request.next();
    const query = input.value.trim();
    try {
      const params = new URLSearchParams({ q: query, limit: "8" });
      const { items } = await call(`items?${params}`, { signal });
      show(items, query);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  };

  input.addEventListener("input", debounce(look, 160));
  input.addEventListener("click", () => box.hidden && look());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && box.hidden) look();
    else if (step) point((Math.max(active, step < 0 ? 0 : -1) + step + films.length) % films.length);
    else if (event.key === "Enter" && !box.hidden) pick(films[Math.max(active, 0)]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  box.addEventListener("click", ({ target }) => {
    const index = [...box.children].indexOf(target.closest("li"));
    if (index >= 0) pick(films[index]);
  });
  // Keep the focus in the field while an option is pressed, or blur closes the list first.
  box.addEventListener("mousedown", (event) => event.preventDefault());
}

function option(film, at, rating, scale) {
  const { name, year } = named(film);
  const state = scale.starred ? `rated ${scale.text(rating ?? 0)}` : "picked";
  const mark = rating === null ? year : `${year} ${state}`;
  return el("li", { role: "option", id: `found-${at}` }, name, " ", el("span", { class: "year" }, mark));
}

// -- Sign-in by name, for a service without a key: it stores the ratings. A name is no password.

const NAME = "cfnade-name";
const pathOf = (name, item) => `users/${encodeURIComponent(name)}/ratings${item === undefined ? "" : `/${encodeURIComponent(item)}`}`;

export function mountSignIn({ model, scale, store, onTrouble }) {
  if (!model.capabilities.stored_ratings || model.capabilities.tokens) return;
  let name = null;
  let sent = new Map(); // item → rating: what the service has
  let queue = Promise.resolve(); // one request after another, in the order of what was done

  const now = () => new Map(store.state.ratings.map(({ item, rating }) => [item, rating]));
  const send = () => {
    if (name === null) return;
    const current = now();
    for (const [item, rating] of current)
      if (sent.get(item) !== rating) push(item, { method: "PUT", body: scale.starred ? { rating } : {} });
    for (const item of sent.keys()) if (!current.has(item)) push(item, { method: "DELETE" });
    sent = current;
  };
  const push = (item, options) => {
    const userName = name;
    queue = queue
      .then(() => call(pathOf(userName, item), options))
      .catch((error) => {
        sent.delete(item); // sent again with the next change
        onTrouble(error, () => (onTrouble(null), send()));
      });
  };
  const show = () => {
    byId("sign-in").hidden = name !== null;
    byId("signed-in").hidden = name === null;
    byId("signed-name").textContent = name ?? "";
  };
  const remember = () => {
    try {
      if (name === null) sessionStorage.removeItem(NAME);
      else sessionStorage.setItem(NAME, name);
    } catch {
      // asked for again after a reload
    }
  };
  const signIn = async (requested) => {
    try {
      const { ratings } = await call(pathOf(requested));
      name = requested;
      const stored = ratings.map(({ item, title, rating }) => ({ item, title, rating: rating ?? scale.high }));
      sent = new Map(stored.map(({ item, rating }) => [item, rating]));
      if (stored.length) store.replace(stored.reverse());
      send(); // somebody new brings what was rated here
      announce(`Signed in as ${name}. ${plural(stored.length, scale.noun)} kept.`);
    } catch (error) {
      onTrouble(error, () => (onTrouble(null), signIn(requested)));
    }
    remember();
    show();
  };

  on("sign-in", "submit", (event) => {
    event.preventDefault();
    const requested = byId("sign-name").value.trim();
    if (requested.includes("/")) onTrouble(new Error("A name has no slash."), () => onTrouble(null));
    else if (requested) signIn(requested);
  });
  on("sign-out", "click", () => {
    name = null;
    remember();
    store.replace([]);
    announce("Signed out. The service keeps what you rated.");
    show();
  });
  store.listen((kind) => kind === "ratings" && send());
  show();
  byId("people").hidden = false;
  let previousName = null;
  try {
    previousName = sessionStorage.getItem(NAME);
  } catch {
    // nobody is remembered
  }
  if (previousName) signIn(previousName);
}
