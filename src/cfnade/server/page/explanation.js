// "Why?": which of the known ratings and picks led to it, each left out in turn.

import { call } from "./api.js";
import { hiddenText, el, plural } from "./dom.js";
import { named } from "./format.js";

const SHOWN = 8;
const WHOLE = 8; // a bar is full at this part of the scale: half a star of five, for every film
const SAID = 4; // reasons in words

/** Fill a panel with the explanation of one film for this person. */
export async function explain(panel, film, person, { model, scale, words }, signal) {
  panel.setAttribute("aria-busy", "true");
  const ask = (target) => call("explanations", { body: { ...person, item: film.item, target }, signal });
  try {
    const [pick, rating] = await Promise.all([
      model.capabilities.interactions ? ask("interaction") : null,
      model.capabilities.ratings ? ask("rating") : null,
    ]);
    const who = "user_id" in person ? "they" : "you";
    const parts = [pick && reasons(pick, who, scale), rating && moves(rating, who, scale)];
    panel.replaceChildren(...parts.flat().filter(Boolean), basis(film, scale, words));
  } catch (error) {
    if (error.name === "AbortError") return;
    panel.replaceChildren(el("p", {}, error.message));
  }
  panel.setAttribute("aria-busy", "false");
}

function basis({ n_item_ratings: ratings }, scale, words) {
  const learnt = `The model has learnt from ${plural(ratings, scale.noun)} of this ${words.one}.`;
  return el("p", { class: "note" }, learnt);
}

/** A list of rows and a button for those beyond the first few. */
function folded(rows, shown, kind) {
  const list = el("ul", { class: kind }, ...rows.slice(0, shown));
  const rest = rows.slice(shown);
  const more = el("button", { class: "link" }, `Show the other ${rest.length}`);
  more.hidden = rest.length === 0;
  more.addEventListener("click", () => {
    list.append(...rest);
    more.remove();
  });
  return [list, more];
}

// -- of a pick, in words --

export const times = (x) => `${x < 9.95 ? x.toFixed(x < 0.95 ? 2 : 1) : Math.round(x)} times`;

function reasons({ contributions: moved }, who, scale) {
  if (!moved.length) return [el("p", {}, "People in general pick it.")];
  const rows = moved.map((line) => reason(line, who, scale));
  return [el("h4", {}, `Why ${who} would pick it`), ...folded(rows, SAID, "reasons")];
}

function reason(line, who, scale) {
  const { rating, lift: by } = line;
  const word = by < 0.995 ? "Although" : "Because";
  const liked = rating !== null && (rating - scale.low) / scale.span >= 0.6;
  const did = rating === null ? "picked" : liked ? "liked" : "rated";
  const stars = did === "rated" ? ` ${scale.text(rating)}` : "";
  const name = el("b", {}, named(line).name);
  return el("li", {}, `${word} ${who} ${did} `, name, `${stars}: ${times(by)} as likely`);
}

// -- of a rating, as bars to the left (down) and right (up) --

function moves({ contributions: moved, prediction }, who, scale) {
  if (!moved.length) return [el("p", {}, "No rating moved it: people in general would say so.")];
  const byLevel = "count" in moved[0];
  const most = Math.max(...moved.map((line) => Math.abs(line.difference)), 1e-9);
  const rows = moved.map((line) => row(line, most, scale, byLevel));
  const full = scale.text(scale.span / WHOLE);
  const rated = `Why ${who} would rate it ${scale.show(prediction.prediction)}`;
  const heading = byLevel ? "What others’ ratings of it did" : rated;
  const ends = [`−${full}`, "0", `+${full}`].map((text) => el("small", {}, text));
  const axis = el("div", { class: "ruler", "aria-hidden": "true" }, el("span", {}, ...ends));
  return [el("h4", {}, heading), axis, ...folded(rows, SHOWN, "moves")];
}

function row(line, most, scale, byLevel) {
  const bar = el("span", { class: line.difference < 0 ? "bar down" : "bar up" }, el("i"));
  const size = (Math.abs(line.difference) * WHOLE) / scale.span;
  bar.firstChild.style.setProperty("--size", String(Math.min(size, 1)));
  bar.classList.toggle("beyond", size > 1);
  const rating = scale.text(line.rating);
  const what = byLevel
    ? [`Rated ${rating} by ${plural(line.count, "person", "people")}`]
    : [named(line).name, hiddenText(", your rating"), el("span", { class: "year" }, ` ${rating}`)];
  const without = hiddenText(` (${scale.show(line.prediction_without)} without it)`);
  const by = el("span", { class: "by" }, scale.signed(line.difference, most), without);
  return el("li", {}, el("span", {}, ...what), bar, by);
}
