// "Why?": how each rating or pick changes a prediction.

import { call } from "./api.js";
import { hiddenText, el, plural } from "./dom.js";
import { named } from "./format.js";

const MAX_ROWS = 8;
const FULL_BAR = 8; // a bar is full at this part of the scale: half a star of five, for every film
const MAX_REASONS = 4; // reasons in words

/** Fill a panel with the explanation of one film for this person. */
export async function explain(panel, film, person, { model, scale, words }, signal) {
  panel.setAttribute("aria-busy", "true");
  const ask = (target) => call("explanations", { body: { ...person, item: film.item, target }, signal });
  try {
    const [pick, rating] = await Promise.all([
      model.capabilities.interactions ? ask("interaction") : null,
      model.capabilities.ratings ? ask("rating") : null,
    ]);
    const subject = "user_id" in person ? "they" : "you";
    const parts = [pick && reasons(pick, subject, scale), rating && moves(rating, subject, scale)];
    panel.replaceChildren(...parts.flat().filter(Boolean), basis(film, scale, words));
  } catch (error) {
    if (error.name === "AbortError") return;
    panel.replaceChildren(el("p", {}, error.message));
  }
  panel.setAttribute("aria-busy", "false");
}

function basis({ n_item_ratings: ratings }, scale, words) {
  const text = `The model has learnt from ${plural(ratings, scale.noun)} of this ${words.one}.`;
  return el("p", { class: "note" }, text);
}

/** A list of rows and a button for those beyond the first few. */
function foldable(rows, limit, className) {
  const list = el("ul", { class: className }, ...rows.slice(0, limit));
  const remaining = rows.slice(limit);
  const more = el("button", { class: "link" }, `Show the other ${remaining.length}`);
  more.hidden = remaining.length === 0;
  more.addEventListener("click", () => {
    list.append(...remaining);
    more.remove();
  });
  return [list, more];
}

// -- of a pick, in words --

export const times = (x) => `${x < 9.95 ? x.toFixed(x < 0.95 ? 2 : 1) : Math.round(x)} times`;

function reasons({ contributions: lines }, subject, scale) {
  if (!lines.length) return [el("p", {}, "People in general pick it.")];
  const rows = lines.map((line) => reason(line, subject, scale));
  return [el("h4", {}, `Why ${subject} would pick it`), ...foldable(rows, MAX_REASONS, "reasons")];
}

function reason(line, subject, scale) {
  const { rating, lift: by } = line;
  const word = by < 0.995 ? "Although" : "Because";
  const liked = rating !== null && (rating - scale.low) / scale.span >= 0.6;
  const verb = rating === null ? "picked" : liked ? "liked" : "rated";
  const stars = verb === "rated" ? ` ${scale.text(rating)}` : "";
  const name = el("b", {}, named(line).name);
  return el("li", {}, `${word} ${subject} ${verb} `, name, `${stars}: ${times(by)} as likely`);
}

// -- of a rating, as bars to the left (down) and right (up) --

function moves({ contributions: lines, prediction }, subject, scale) {
  if (!lines.length) return [el("p", {}, "No rating moved it: people in general would say so.")];
  const byLevel = "count" in lines[0];
  const largest = Math.max(...lines.map((line) => Math.abs(line.difference)), 1e-9);
  const rows = lines.map((line) => row(line, largest, scale, byLevel));
  const full = scale.text(scale.span / FULL_BAR);
  const question = `Why ${subject} would rate it ${scale.show(prediction.prediction)}`;
  const heading = byLevel ? "What others’ ratings of it did" : question;
  const ends = [`−${full}`, "0", `+${full}`].map((text) => el("small", {}, text));
  const axis = el("div", { class: "ruler", "aria-hidden": "true" }, el("span", {}, ...ends));
  return [el("h4", {}, heading), axis, ...foldable(rows, MAX_ROWS, "moves")];
}

function row(line, largest, scale, byLevel) {
  const bar = el("span", { class: line.difference < 0 ? "bar down" : "bar up" }, el("i"));
  const size = (Math.abs(line.difference) * FULL_BAR) / scale.span;
  bar.firstChild.style.setProperty("--size", String(Math.min(size, 1)));
  bar.classList.toggle("beyond", size > 1);
  const rating = scale.text(line.rating);
  const label = byLevel
    ? [`Rated ${rating} by ${plural(line.count, "person", "people")}`]
    : [named(line).name, hiddenText(", your rating"), el("span", { class: "year" }, ` ${rating}`)];
  const without = hiddenText(` (${scale.show(line.prediction_without)} without it)`);
  const by = el("span", { class: "by" }, scale.signed(line.difference, largest), without);
  return el("li", {}, el("span", {}, ...label), bar, by);
}
