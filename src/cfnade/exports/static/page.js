// Ratings in, a list out; both live in this browser alone.
import { loadModel } from "./model.js";

const KEPT = `cfnade:${location.pathname}`;
const [FOUND, LISTED] = [8, 20];
const by = (id) => document.getElementById(id);
const rated = new Map(kept()); // item id -> level

const model = await loadModel(".").catch((error) => {
  by("state").textContent = `The model could not be loaded (${error.message}). Serve this folder with any web server.`;
  throw error;
});
const places = new Map(model.items.ids.map((id, place) => [String(id), place]));
const names = model.items.titles ?? model.items.ids.map((id) => `Item ${id}`);
const folded = names.map(fold);

by("search").disabled = false;
by("search").addEventListener("input", showFound);
by("forget").addEventListener("click", () => {
  rated.clear();
  changed();
});
changed();

function changed() {
  try {
    localStorage.setItem(KEPT, JSON.stringify([...rated]));
  } catch {
    // A browser that keeps nothing: the page works, and forgets.
  }
  const history = [...rated].filter(([id]) => places.has(id)).map(([id, level]) => [places.get(id), level]);
  const said = model.person(history);
  const known = new Set(history.map(([place]) => place));
  const listed = [...names.keys()]
    .filter((place) => !known.has(place) && model.items.counts[place] >= model.items.least)
    .sort((a, b) => said.expected[b] - said.expected[a] || a - b)
    .slice(0, LISTED);
  by("list").replaceChildren(...listed.map((place) => card(place, said)));
  by("rated").replaceChildren(...history.map(([place]) => choice(place)).reverse());
  by("forget").hidden = rated.size === 0;
  by("state").textContent = history.length
    ? `By ${history.length} of your ratings, among ${names.length} titles:`
    : "You have not rated anything yet. This is what anybody may like:";
  showFound();
}

function showFound() {
  const words = fold(by("search").value).split(" ").filter(Boolean);
  const fits = (place) =>
    words.length && !rated.has(String(model.items.ids[place])) && words.every((word) => folded[place].includes(word));
  const found = [...names.keys()]
    .filter(fits)
    .sort((a, b) => model.items.counts[b] - model.items.counts[a])
    .slice(0, FOUND);
  by("found").replaceChildren(...found.map(choice));
}

function choice(place) {
  const id = String(model.items.ids[place]);
  const stars = made("span", { class: "stars", role: "group", "aria-label": `Your rating of ${names[place]}` });
  model.scale.forEach((value, level) => {
    const pressed = rated.get(id) === level;
    const button = made("button", { type: "button", "aria-pressed": String(pressed), "aria-label": `${value}` }, String(value));
    button.addEventListener("click", () => {
      if (pressed) rated.delete(id);
      else rated.set(id, level);
      changed();
      document.querySelector(`#rated [data-item="${CSS.escape(id)}"] button[aria-pressed="true"]`)?.focus();
    });
    stars.append(button);
  });
  const line = made("li", { "data-item": id }, made("span", { class: "title" }, names[place]), stars);
  return line;
}

function card(place, said) {
  const chances = said.chances(place);
  const percent = (p) => `${Math.round(100 * p)} %`;
  const words = model.scale.map((value, k) => `${value}: ${percent(chances[k])}`).join(", ");
  const bars = made("span", { class: "bars", role: "img", "aria-label": words, title: words }, drawing(chances));
  const mean = made("span", { class: "mean" }, said.expected[place].toFixed(1));
  return made("li", { "data-item": String(model.items.ids[place]) }, made("span", { class: "title" }, names[place]), bars, mean);
}

function drawing(chances) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const top = Math.max(...chances);
  svg.setAttribute("viewBox", `0 0 ${chances.length} 1`);
  svg.setAttribute("preserveAspectRatio", "none");
  chances.forEach((p, k) => {
    const bar = document.createElementNS(space, "rect");
    const parts = { x: k + 0.1, y: 1 - p / top, width: 0.8, height: p / top };
    for (const [name, value] of Object.entries(parts)) bar.setAttribute(name, value);
    svg.append(bar);
  });
  return svg;
}

function made(kind, attributes, ...inside) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

function fold(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

// What was rated here before: pairs of an item's id and a level, and nothing else.
function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    const sound = (pair) => Array.isArray(pair) && typeof pair[0] === "string" && Number.isInteger(pair[1]);
    return Array.isArray(found) ? found.filter(sound) : [];
  } catch {
    return [];
  }
}
