// The visitor's own ratings: a row each, the latest first, and what can be done with them. On a phone
// all but the search and the latest row folds away, so that the list stays in sight.

import { announce, arrange, byId, el, on, plural } from "./dom.js";
import { called, named } from "./films.js";
import { mountSearch } from "./search.js";
import { ratingInput } from "./stars.js";
import { copyOf } from "./store.js";

const WIDE = matchMedia("(min-width: 58rem)");
const ROWS = 8; // before "Show all"

/** Returns begin(film), which puts a film at the top, ready to be rated. */
export function mountMine({ model, scale, store, words }) {
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
