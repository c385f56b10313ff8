// What a rating changed: said in a line, as ratings come.

import { el } from "./dom.js";
import { named } from "./films.js";

/** Nodes that tell what became of a list after one film was rated; none if nothing did. */
export function changes(before, after, cause, scale, words) {
  const old = new Map(before.map((film) => [film.item, film]));
  const fresh = after.filter(({ item }) => !old.has(item));
  const climbed = after
    .filter(({ item, rank }) => old.has(item) && old.get(item).rank > rank)
    .sort((a, b) => old.get(b.item).rank - b.rank - (old.get(a.item).rank - a.rank));
  const told = `After your ${scale.starred ? `${scale.text(cause.rating)} for ` : "pick of "}`;
  const lead = [told, el("b", {}, named(cause).name), ": "];
  const said = [];
  if (fresh.length) said.push(`${fresh.length} new, first ${named(fresh[0]).name}`);
  const [first] = climbed;
  const moved = scale.starred ? mostMoved(after, old) : null;
  const stars = moved && Math.abs(moved.by) >= scale.span / 200;
  const by = stars ? `${scale.signed(moved.by, scale.span)} ${scale.unit}` : "";
  const same = stars && first === moved.film;
  if (first) said.push(`${named(first).name} up ${old.get(first.item).rank - first.rank}${same ? ` (${by})` : ""}`);
  if (stars && !same) said.push(`${named(moved.film).name} ${by}`);
  if (!said.length) return [...lead, `the same ${words.many} in the same order.`];
  return [...lead, `${said.join("; ")}.`];
}

/** The film whose expected rating changed most. */
function mostMoved(after, old) {
  let most = null;
  for (const film of after) {
    const by = old.has(film.item) ? film.prediction - old.get(film.item).prediction : 0;
    if (by && (!most || Math.abs(by) > Math.abs(most.by))) most = { film, by };
  }
  return most;
}
