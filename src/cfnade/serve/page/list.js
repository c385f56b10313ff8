// The recommendations: asked for after every change, drawn film by film, old answers discarded.

import { call } from "./api.js";
import { makeCard } from "./card.js";
import { announce, arrange, byId, debounce, glide, on, plural } from "./dom.js";
import { called } from "./films.js";

const PAGE = 20;

/** The slider's place as a request: the middle is the expected rating, the ends are quantiles. */
const ranking = (dare) =>
  dare === 0 ? { rank: "expected" } : { rank: "quantile", quantile: (5 + dare) / 10 };

/** personOf() gives {ratings} or {user}, or null while nobody is chosen. */
export function mountList(parts) {
  const { model, scale, store, personOf, onTrouble } = parts;
  const list = byId("films");
  const cards = new Map(); // item → card
  let wanted = Math.min(PAGE, model.limits.n);
  let asked = new AbortController();
  let latest = null; // the last answer
  let places = null; // item → rank in the answer before

  const refresh = async () => {
    asked.abort();
    asked = new AbortController();
    const person = personOf();
    if (!person) {
      list.replaceChildren();
      list.setAttribute("aria-busy", "false");
      return;
    }
    const body = { ...person, n: wanted, ...ranking(store.state.dare) };
    if (store.state.thin) body.min_ratings = 0;
    list.setAttribute("aria-busy", "true");
    try {
      const { signal } = asked;
      latest = await call("recommend", { body, signal });
      onTrouble(null);
      draw();
      places = new Map(latest.items.map((film) => [film.item, film.rank]));
      announceFirst(latest.items[0], scale);
      showAround();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (latest) error.message += " The list below is older.";
      else list.replaceChildren();
      onTrouble(error, refresh);
    }
    list.setAttribute("aria-busy", "false");
  };

  /** A film that is being rated in the list stays until the focus leaves it. */
  const withHeld = (items) => {
    const held = document.activeElement.closest(".film")?.film;
    if (!held || store.ratingOf(held.item) === null) return items;
    const others = items.filter(({ item }) => item !== held.item);
    return [...others.slice(0, held.rank - 1), held, ...others.slice(held.rank - 1)];
  };

  const draw = () => {
    const films = withHeld(latest.items);
    const tops = new Map([...list.children].map((node) => [node, node.getBoundingClientRect().top]));
    const tallest = Math.max(...films.flatMap((film) => film.probabilities), 0.4);
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
    byId("more").hidden = items.length < wanted || wanted >= model.limits.n;
    byId("hidden-note").hidden = !thin && !hidden;
    const few = `fewer than ${plural(least, "rating")} to learn from`;
    byId("hidden-text").textContent = thin
      ? "Films with few ratings are shown, too; the model knows little about them."
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
  mountDial(store);
  const soon = debounce(refresh, 140);
  store.listen(soon);
  window.addEventListener("online", soon);
  refresh();
}

function announceFirst(film, scale) {
  const first = film && `${called(film)}, expected ${scale.show(film.expected)}`;
  announce(first ? `List updated. First: ${first}.` : "The list is empty.");
}

function mountDial(store) {
  const dial = byId("dare");
  const show = () => {
    const { dare } = store.state;
    byId("dare-note").textContent = dare
      ? `Ranked by the rating that a film reaches with a chance of ${50 - dare * 10} %.`
      : "Ranked by the expected rating.";
    const side = dare < 0 ? "safe" : "adventurous";
    dial.setAttribute("aria-valuetext", dare ? `${side}, ${Math.abs(dare)} of 4` : "balanced");
  };
  dial.value = String(store.state.dare);
  dial.addEventListener("input", () => {
    store.set({ dare: Number(dial.value) });
    show();
  });
  show();
}
