// Recommendations, saved films, or similar films: requested after every change; late answers are
// discarded.

import { call } from "./api.js";
import { announce, arrange, byId, debounce, el, glide, latestOnly, on, plural } from "./dom.js";
import { mountFilters, rankingOptions } from "./filters.js";
import { called, named } from "./format.js";
import { makeCard, share } from "./item_card.js";

const PAGE = 20;

/** personOf() gives {ratings}, {interactions} or {user_id}, or null before a user is chosen. Returns
    `look(view)`, for "list" and "later". */
export function mountRecommendations(context) {
  const { model, scale, store, words, personOf, onTrouble } = context;
  const list = byId("films");
  const title = byId("list-title").textContent;
  const cards = new Map(); // item → card
  let limit = Math.min(PAGE, model.limits.n);
  const request = latestOnly();
  let latest = null; // the last answer
  let ranks = null; // item → rank in the answer before
  let before = null; // the films before the rating that is being told of
  let cause = null; // that rating
  let like = null; // the film that others should be like
  let later = false; // whether what was kept is shown

  const ask = async (person, signal) => {
    if (like) return similarItems(like, person, signal);
    if (later) return savedItems(store.state.later, person, signal);
    const body = { ...person, n: limit, ...rankingOptions(store.state, model) };
    return call("recommendations", { body, signal });
  };
  const refresh = async () => {
    const signal = request.next();
    const person = personOf();
    if (!person) {
      list.replaceChildren();
      list.setAttribute("aria-busy", "false");
      return;
    }
    list.setAttribute("aria-busy", "true");
    try {
      latest = await ask(person, signal);
      onTrouble(null);
      draw();
      ranks = new Map(latest.items.map((film) => [film.item, film.rank]));
      announceChanges();
      showAround();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (latest) error.message += " The list below is older.";
      else list.replaceChildren();
      onTrouble(error, refresh);
    }
    list.setAttribute("aria-busy", "false");
  };

  /** Say what is first, and what the last rating changed. */
  const announceChanges = () => {
    const first = latest.items[0];
    const strength = first && (scale.starred ? `expected ${scale.show(first.prediction)}` : share(first.interaction_probability));
    const what = like ? `More like ${called(like)}` : "List updated";
    const line = byId("changes");
    const shown = cause && before && !like && !later;
    line.hidden = !shown;
    if (shown) line.replaceChildren(...changes(before, latest.items, cause, scale, words));
    const more = shown ? ` ${line.textContent}` : "";
    announce(first ? `${what}. First: ${called(first)}, ${strength}.${more}` : "The list is empty.");
    before = cause = null;
  };

  const setHeading = (film) => {
    like = film;
    ranks = null;
    byId("list").classList.toggle("alike", film !== null || later);
    byId("list-title").textContent = film ? `More like ${called(film)}` : later ? words.Later : title;
    byId("back").hidden = film === null;
  };
  /** Show more like a film, or for null the list again. */
  const showSimilar = async (film) => {
    const from = like;
    setHeading(film);
    if (film) {
      byId("back").focus({ preventScroll: true });
      byId("list").scrollIntoView();
    }
    await refresh();
    if (!film) (cards.get(from.item)?.menu ?? byId("list")).focus();
  };
  const putAway = (film) => {
    const next = cards.get(film.item)?.nextSibling ?? byId("list");
    store.putAway(film);
    (next.querySelector?.(".acts button") ?? byId("list")).focus({ preventScroll: true });
    announce(`${called(film)} is not listed again. Undo brings it back.`);
  };
  const parts = { ...context, onLike: showSimilar, onAway: putAway };

  /** A film that is being rated in the list stays until the focus leaves it. */
  const keepFocused = (items) => {
    const focused = document.activeElement.closest(".item-card")?.film;
    if (like || !focused || store.ratingOf(focused.item) === null) return items;
    const others = items.filter(({ item }) => item !== focused.item);
    return [...others.slice(0, focused.rank - 1), focused, ...others.slice(focused.rank - 1)];
  };

  const draw = () => {
    const films = keepFocused(latest.items);
    const tops = new Map([...list.children].map((node) => [node, node.getBoundingClientRect().top]));
    const tallest = scale.starred
      ? Math.max(...films.flatMap((film) => [...film.probabilities, ...film.baseline]), 0.4)
      : Math.max(...films.map((film) => film.interaction_probability));
    const nodes = films.map((film) => {
      const card = cards.get(film.item) ?? makeCard(film, parts);
      cards.set(film.item, card);
      card.show(film, ranks ? (ranks.get(film.item) ?? null) : film.rank, tallest);
      return card;
    });
    for (const [item, card] of cards) if (!nodes.includes(card)) cards.delete(item);
    const focused = list.contains(document.activeElement);
    arrange(list, nodes);
    glide(tops);
    if (focused && !list.contains(document.activeElement)) byId("list").focus({ preventScroll: true });
  };

  const showAround = () => {
    const { items, n_hidden_items: hidden, min_ratings: least } = latest;
    const { thin, genres, decades, away } = store.state;
    const own = like !== null || later;
    byId("none").hidden = items.length > 0 || !(genres.length || decades.length || later);
    byId("none").textContent = later
      ? `Nothing kept yet: press “${words.Later}” on ${words.a}.`
      : `No ${words.one} of this kind is left.`;
    byId("more").hidden = own || items.length < limit || limit >= model.limits.n;
    byId("hidden-note").hidden = own || (!thin && !hidden);
    const few = `fewer than ${plural(least, scale.noun)} to learn from`;
    byId("hidden-text").textContent = thin
      ? `${words.Many} with few ${scale.noun}s are shown, too; the model knows little about them.`
      : `${plural(hidden, `${words.one} is`, `${words.many} are`)} hidden: ${few}.`;
    byId("hidden-button").textContent = thin ? "Hide them" : "Show them";
    byId("away-note").hidden = own || !away.length;
    byId("away-text").textContent = `${plural(away.length, `${words.one} is`, `${words.many} are`)} not for you.`;
  };

  list.addEventListener("focusout", () =>
    setTimeout(() => latest && cards.size > latest.items.length && draw()),
  );
  on("more", "click", () => {
    limit = Math.min(limit + PAGE, model.limits.n);
    refresh();
  });
  on("hidden-button", "click", () => store.set({ thin: !store.state.thin }));
  on("away-button", "click", () => store.bringBack());
  on("back", "click", () => showSimilar(null));
  mountFilters(context);
  const soon = debounce(refresh, 140);
  store.listen((kind, rated) => {
    if (kind === "note") return;
    if (kind === "ratings" && !later && !like) {
      before = rated && latest ? (before ?? latest.items) : null;
      cause = rated;
    }
    // A change elsewhere on the page leads back to the list.
    if (like && kind === "ratings" && !list.contains(document.activeElement)) setHeading(null);
    soon();
  });
  window.addEventListener("online", soon);
  refresh();
  return (view) => {
    later = view === "later";
    setHeading(null);
    refresh();
  };
}

/** The films most like one, with the predictions for this person. */
async function similarItems({ item }, person, signal) {
  const { metric, items } = await call(`items/${encodeURIComponent(item)}/similar?n=${PAGE}`, { signal });
  const answer = await predictionsOf(person, items, signal);
  const films = new Map(answer.items.map((film) => [film.item, film]));
  return {
    ...answer,
    items: items.map(({ item: id, rank, similarity }) => ({ ...films.get(id), rank, similarity, metric })),
  };
}

/** The saved films, the best first. */
const savedItems = (films, person, signal) =>
  films.length ? predictionsOf(person, films, signal) : { items: [], n_hidden_items: 0, min_ratings: 0 };

/** Predictions of these films, whether rated or not, the best first. */
export function predictionsOf(person, films, signal) {
  const items = films.map(({ item }) => item);
  const options = { candidate_items: items, n: items.length, exclude_seen: false, min_ratings: 0 };
  return call("recommendations", { body: { ...person, ...options }, signal });
}

// -- What the last rating changed.

/** Nodes that describe how a rating changed the list. */
export function changes(before, after, cause, scale, words) {
  const old = new Map(before.map((film) => [film.item, film]));
  const fresh = after.filter(({ item }) => !old.has(item));
  const climbed = after
    .filter(({ item, rank }) => old.has(item) && old.get(item).rank > rank)
    .sort((a, b) => old.get(b.item).rank - b.rank - (old.get(a.item).rank - a.rank));
  const opening = `After your ${scale.starred ? `${scale.text(cause.rating)} for ` : "pick of "}`;
  const lead = [opening, el("b", {}, named(cause).name), ": "];
  const texts = [];
  if (fresh.length) texts.push(`${fresh.length} new, first ${named(fresh[0]).name}`);
  const [first] = climbed;
  const moved = scale.starred ? mostMoved(after, old) : null;
  const stars = moved && Math.abs(moved.by) >= scale.span / 200;
  const by = stars ? `${scale.signed(moved.by, scale.span)} ${scale.unit}` : "";
  const same = stars && first === moved.film;
  if (first) texts.push(`${named(first).name} up ${old.get(first.item).rank - first.rank}${same ? ` (${by})` : ""}`);
  if (stars && !same) texts.push(`${named(moved.film).name} ${by}`);
  if (!texts.length) return [...lead, `the same ${words.many} in the same order.`];
  return [...lead, `${texts.join("; ")}.`];
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
