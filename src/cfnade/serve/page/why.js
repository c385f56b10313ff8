// "Why?": which known ratings moved a prediction, as bars to the left (down) and right (up).

import { call } from "./api.js";
import { aside, el, plural } from "./dom.js";
import { named } from "./films.js";

const SHOWN = 8;

/** Fill a panel with the explanation of one film for this person. */
export async function explain(panel, film, person, scale, signal) {
  panel.setAttribute("aria-busy", "true");
  try {
    const said = await call("explain", { body: { ...person, item: film.item }, signal });
    panel.replaceChildren(...content(said, scale));
  } catch (error) {
    if (error.name === "AbortError") return;
    panel.replaceChildren(el("p", {}, error.message));
  }
  panel.setAttribute("aria-busy", "false");
}

function content({ moved, prediction }, scale) {
  const learnt = `The model has learnt from ${plural(prediction.ratings, "rating")} of this film.`;
  const basis = el("p", { class: "note" }, learnt);
  if (!moved.length) return [el("p", {}, "No rating moved it: people in general would say so."), basis];
  const byLevel = "count" in moved[0];
  const most = Math.max(...moved.map((line) => Math.abs(line.change)), 1e-9);
  const rows = moved.map((line) => row(line, most, scale, byLevel));
  const list = el("ul", { class: "moves" }, ...rows.slice(0, SHOWN));
  const rest = rows.slice(SHOWN);
  const more = el("button", { class: "link" }, `Show the other ${rest.length}`);
  more.hidden = rest.length === 0;
  more.addEventListener("click", () => {
    list.append(...rest);
    more.remove();
  });
  const heading = byLevel ? "What others’ ratings of it did" : "Which of your ratings moved it";
  return [el("h4", {}, heading), list, more, basis];
}

function row(line, most, scale, byLevel) {
  const bar = el("span", { class: line.change < 0 ? "bar down" : "bar up" }, el("i"));
  bar.firstChild.style.setProperty("--size", String(Math.abs(line.change) / most));
  const rating = scale.text(line.rating);
  const what = byLevel
    ? [`Rated ${rating} by ${plural(line.count, "person", "people")}`]
    : [named(line).name, aside(", your rating"), el("span", { class: "year" }, ` ${rating}`)];
  const without = aside(` (${scale.show(line.without)} without it)`);
  const by = el("span", { class: "by" }, scale.signed(line.change, most), without);
  return el("li", {}, el("span", {}, ...what), bar, by);
}
