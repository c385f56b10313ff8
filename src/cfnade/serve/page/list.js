// The recommendations, or more like one of them: asked for after every change, drawn film by film,
// old answers discarded.

import { call } from "./api.js";
import { makeCard, share } from "./card.js";
import { announce, arrange, byId, debounce, glide, on, plural } from "./dom.js";
import { called } from "./films.js";
import { mountWishes, wishesOf } from "./wishes.js";

const PAGE = 20;

/** personOf() gives {ratings}, {picked} or {user}, or null while nobody is chosen. */
export function mountList(given) {
  const { model, scale, store, personOf, onTrouble } = given;
  const list = byId("films");
  const title = byId("list-title").textContent;
  const cards = new Map(); // item → card
  let wanted = Math.min(PAGE, model.limits.n);
  let asked = new AbortController();
  let latest = null; // the last answer
  let places = null; // item → rank in the answer before
  let like = null; // the film that others should be like

  const refresh = async () => {
    asked.abort();
    asked = new AbortController();
    const person = personOf();
    if (!person) {
      list.replaceChildren();
      list.setAttribute("aria-busy", "false");
      return;
    }
    list.setAttribute("aria-busy", "true");
    try {
      const { signal } = asked;
      const body = { ...person, n: wanted, ...wishesOf(store.state, model) };
      latest = like ? await alike(like, person, signal) : await call("recommend", { body, signal });
      onTrouble(null);
      draw();
      places = new Map(latest.items.map((film) => [film.item, film.rank]));
      announceFirst(latest.items[0], scale, like);
      showAround();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (latest) error.message += " The list below is older.";
      else list.replaceChildren();
      onTrouble(error, refresh);
    }
    list.setAttribute("aria-busy", "false");
  };

  const face = (film) => {
    like = film;
    places = null;
    byId("list").classList.toggle("alike", film !== null);
    byId("list-title").textContent = film ? `More like ${called(film)}` : title;
    byId("back").hidden = film === null;
  };
  /** Show more like a film, or for null the list again. */
  const turn = async (film) => {
    const from = like;
    face(film);
    if (film) {
      byId("back").focus({ preventScroll: true });
      byId("list").scrollIntoView();
    }
    await refresh();
    if (!film) (cards.get(from.item)?.like ?? byId("list")).focus();
  };
  const parts = { ...given, onLike: turn };

  /** A film that is being rated in the list stays until the focus leaves it. */
  const withHeld = (items) => {
    const held = document.activeElement.closest(".film")?.film;
    if (like || !held || store.ratingOf(held.item) === null) return items;
    const others = items.filter(({ item }) => item !== held.item);
    return [...others.slice(0, held.rank - 1), held, ...others.slice(held.rank - 1)];
  };

  const draw = () => {
    const films = withHeld(latest.items);
    const tops = new Map([...list.children].map((node) => [node, node.getBoundingClientRect().top]));
    const tallest = scale.starred
      ? Math.max(...films.flatMap((film) => film.probabilities), 0.4)
      : Math.max(...films.map((film) => film.pick));
    const nodes = films.map((film) => {
      const card = cards.get(film.item) ?? makeCard(film, parts);
      cards.set(film.item, card);
      card.show(film, places ? (places.get(film.item) ?? null) : film.rank, tallest);
      return card;
    });
    for (const [item, card] of cards) if (!nodes.includes(card)) cards.delete(item);
    const held = list.contains(document.activeElement);
    arrange(list, nodes);
    glide(tops);
    if (held && !list.contains(document.activeElement)) byId("list").focus({ preventScroll: true });
  };

  const showAround = () => {
    const { items, hidden, min_ratings: least } = latest;
    const { thin } = store.state;
    byId("none").hidden = items.length > 0 || !store.state.genres.length;
    byId("more").hidden = like !== null || items.length < wanted || wanted >= model.limits.n;
    byId("hidden-note").hidden = like !== null || (!thin && !hidden);
    const few = `fewer than ${plural(least, scale.noun)} to learn from`;
    byId("hidden-text").textContent = thin
      ? `Films with few ${scale.noun}s are shown, too; the model knows little about them.`
      : `${plural(hidden, "film is", "films are")} hidden: ${few}.`;
    byId("hidden-button").textContent = thin ? "Hide them" : "Show them";
  };

  list.addEventListener("focusout", () =>
    setTimeout(() => latest && cards.size > latest.items.length && draw()),
  );
  on("more", "click", () => {
    wanted = Math.min(wanted + PAGE, model.limits.n);
    refresh();
  });
  on("hidden-button", "click", () => store.set({ thin: !store.state.thin }));
  on("back", "click", () => turn(null));
  mountWishes(given);
  const soon = debounce(refresh, 140);
  store.listen((kind) => {
    // Who changes their films elsewhere wants to see their list.
    if (like && kind === "ratings" && !list.contains(document.activeElement)) face(null);
    soon();
  });
  window.addEventListener("online", soon);
  refresh();
}

/** The films most like one, with what is said of each for this person. */
async function alike({ item }, person, signal) {
  const { by, items } = await call("similar", { body: { item, n: PAGE }, signal });
  const ids = items.map((film) => film.item);
  const all = { items: ids, n: ids.length, exclude_seen: false, min_ratings: 0 };
  const said = await call("recommend", { body: { ...person, ...all }, signal });
  const films = new Map(said.items.map((film) => [film.item, film]));
  return {
    ...said,
    items: items.map(({ item: id, rank, similarity }) => ({ ...films.get(id), rank, similarity, by })),
  };
}

function announceFirst(film, scale, like) {
  const said = film && (scale.starred ? `expected ${scale.show(film.expected)}` : share(film.pick));
  const what = like ? `More like ${called(like)}` : "List updated";
  announce(film ? `${what}. First: ${called(film)}, ${said}.` : "The list is empty.");
}
