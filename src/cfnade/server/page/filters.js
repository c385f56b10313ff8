// Ranking options: a knob whose meaning depends on the model, genres and decades.

import { byId, el, on } from "./dom.js";

// Each step changes about as many films as the one before: probabilities of picks differ a
// thousandfold, those of likes hardly, so the steps towards liking lie close to 1.
const BALANCES = [0, 0.25, 0.5, 0.85, 0.93, 0.97, 0.99, 0.995, 1];
const PERSONALIZATIONS = [0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5]; // how much the personal part counts

const BALANCE_KNOB = {
  title: "What should come first?",
  ends: ["Likely picks", "Highest ratings"],
  sides: ["towards picks", "towards ratings"],
  middle: "picked and liked",
  range: [-2, 6],
  ask: (knob) => ({ balance: BALANCES[knob + 2] }),
  note: (knob) =>
    ({
      "-2": "What people like you pick: ranked by the chance that it is your next.",
      0: "Ranked by the chance that you pick it next and like it.",
      6: "What you would rate highest: ranked by the chance that you rate it highly.",
    })[knob] ?? `Ranked by both; ${knob < 0 ? "picks count" : "your rating counts"} more.`,
};
const PERSONAL_KNOB = {
  title: "How much of you?",
  ends: ["Everybody’s favourites", "Special to you"],
  sides: ["towards everybody", "towards you"],
  middle: "expected rating",
  range: [-4, 4],
  ask: (knob) => ({ personalization: PERSONALIZATIONS[knob + 4] }),
  note: (knob) =>
    ({
      "-4": "Ranked by how people in general rated them.",
      0: "Ranked by the expected rating.",
    })[knob] ?? `What you would rate differently from others counts ${PERSONALIZATIONS[knob + 4]} times.`,
};

/** The knob of a model; none without ratings. */
const kindOf = ({ capabilities: { interactions, ratings } }) => (ratings ? (interactions ? BALANCE_KNOB : PERSONAL_KNOB) : null);

/** Fields of a request; the middle of the knob is the default. */
export function rankingOptions({ knob, genres, decades, thin, away }, model) {
  const kind = kindOf(model);
  return {
    ...(kind && knob ? kind.ask(knob) : {}),
    ...(genres.length ? { genres } : {}),
    ...(decades.length ? { decades } : {}),
    ...(thin ? { min_ratings: 0 } : {}),
    ...(away.length ? { exclude_items: away.map(({ item }) => item).slice(0, model.limits.items) } : {}),
  };
}

export function mountFilters({ model, store }) {
  const kind = kindOf(model);
  byId("dial").hidden = kind === null;
  byId("filters").hidden = model.genres.length + model.decades.length === 0;
  byId("ranking").hidden = byId("dial").hidden && byId("filters").hidden;
  if (kind) mountKnob(kind, store);
  const decades = model.decades.map(({ decade }) => chip("decades", decade, `${decade}s`, store));
  const genres = model.genres.map((genre) => chip("genres", genre, genre, store));
  byId("genre-chips").replaceChildren(...genres);
  byId("decade-chips").replaceChildren(...decades);
  on("all-chips", "click", () => {
    const open = byId("filters").classList.toggle("open");
    byId("all-chips").setAttribute("aria-expanded", String(open));
  });
  on("no-chips", "click", () => store.set({ genres: [], decades: [] }));
  const show = () => {
    const { genres: activeGenres, decades: activeDecades } = store.state;
    byId("no-chips").hidden = activeGenres.length + activeDecades.length === 0;
    for (const node of [...genres, ...decades]) node.show();
  };
  store.listen(show);
  show();
}

function mountKnob({ title, ends, sides, middle, note, range }, store) {
  const knob = byId("knob");
  [knob.min, knob.max] = range.map(String);
  byId("knob-title").textContent = title;
  [byId("knob-from").textContent, byId("knob-to").textContent] = ends;
  const show = () => {
    const { knob: position } = store.state;
    byId("knob-note").textContent = note(position);
    const limit = Math.abs(range[position < 0 ? 0 : 1]);
    const side = sides[position < 0 ? 0 : 1];
    knob.setAttribute("aria-valuetext", position ? `${side}, ${Math.abs(position)} of ${limit}` : middle);
  };
  if (store.state.knob < range[0] || store.state.knob > range[1]) store.note({ knob: 0 });
  knob.value = String(store.state.knob);
  knob.addEventListener("input", () => {
    store.set({ knob: Number(knob.value) });
    show();
  });
  show();
}

/** A button for one genre or decade; several of a kind are alternatives. */
function chip(kind, value, label, store) {
  const node = el("button", {}, label);
  node.show = () => node.setAttribute("aria-pressed", String(store.state[kind].includes(value)));
  node.addEventListener("click", () => {
    const remaining = store.state[kind].filter((active) => active !== value);
    store.set({ [kind]: remaining.length === store.state[kind].length ? [...remaining, value] : remaining });
  });
  return node;
}
