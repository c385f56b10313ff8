// Find a film: a combobox with a list box, by keyboard or pointer.

import { call } from "./api.js";
import { announce, byId, debounce, el, plural } from "./dom.js";
import { named } from "./films.js";

/** onPick(film) is called with the chosen film; ratingOf(item) marks those already rated. */
export function mountSearch({ onPick, ratingOf, scale, words }) {
  const input = byId("search");
  const box = byId("found");
  let films = [];
  let active = -1;
  let asked = new AbortController();

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
    asked.abort();
    open(false);
  };
  const pick = (film) => {
    input.value = "";
    close();
    onPick(film);
  };
  const show = (found, query) => {
    films = found;
    box.replaceChildren(...films.map((film, at) => option(film, at, ratingOf(film.item), scale)));
    open(films.length > 0 && document.activeElement === input); // who left it meanwhile is done
    say(films.length ? "" : `No ${words.one} found for “${query}”.`);
    announce(films.length ? `${plural(films.length, words.one, words.many)} found.` : `No ${words.one} found.`);
  };
  const look = async () => {
    asked.abort();
    asked = new AbortController();
    const query = input.value.trim();
    try {
      const params = new URLSearchParams({ q: query, limit: "8" });
      const { items } = await call(`items?${params}`, { signal: asked.signal });
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
    const chosen = [...box.children].indexOf(target.closest("li"));
    if (chosen >= 0) pick(films[chosen]);
  });
  // Keep the focus in the field while an option is pressed, or blur closes the list first.
  box.addEventListener("mousedown", (event) => event.preventDefault());
}

function option(film, at, rating, scale) {
  const { name, year } = named(film);
  const said = scale.starred ? `rated ${scale.text(rating ?? 0)}` : "picked";
  const mark = rating === null ? year : `${year} ${said}`;
  return el("li", { role: "option", id: `found-${at}` }, name, " ", el("span", { class: "year" }, mark));
}
