// What the list is asked to be: one knob, whose meaning follows what the model knows, and genres.

import { byId, el } from "./dom.js";

const TASTE = {
  title: "What should come first?",
  ends: ["What people like you pick", "What you would rate highest"],
  sides: ["towards picks", "towards ratings"],
  middle: "picked and liked",
  ask: (knob) => ({ taste: (4 + knob) / 8 }),
  note: (knob) =>
    ({
      "-4": "Ranked by the chance that you pick it next.",
      0: "Ranked by the chance that you pick it next and like it.",
      4: "Ranked by the chance that you rate it highly.",
    })[knob] ?? `Ranked by both; ${knob < 0 ? "picks count" : "your rating counts"} more.`,
};
const DARE = {
  title: "How daring?",
  ends: ["Safe", "Adventurous"],
  sides: ["safe", "adventurous"],
  middle: "balanced",
  ask: (knob) => ({ rank: "quantile", quantile: (5 + knob) / 10 }),
  note: (knob) =>
    knob
      ? `Ranked by the rating that a film reaches with a chance of ${50 - knob * 10} %.`
      : "Ranked by the expected rating.",
};

/** Without ratings there is nothing to weigh. */
const kindOf = ({ picks, ratings }) => (ratings ? (picks ? TASTE : DARE) : null);

/** How far the knob is turned to safe or adventurous. */
export const dareOf = ({ knob }, model) => (kindOf(model) === DARE ? knob : 0);

/** The part of a request that says it; the middle says nothing. */
export function wishesOf({ knob, genres, thin }, model) {
  const kind = kindOf(model);
  return {
    ...(kind && knob ? kind.ask(knob) : {}),
    ...(genres.length ? { genres } : {}),
    ...(thin ? { min_ratings: 0 } : {}),
  };
}

export function mountWishes({ model, store }) {
  const kind = kindOf(model);
  byId("dial").hidden = kind === null;
  byId("genres").hidden = model.genres.length === 0;
  byId("wishes").hidden = byId("dial").hidden && byId("genres").hidden;
  if (kind) mountKnob(kind, store);
  byId("genre-chips").replaceChildren(...model.genres.map((genre) => chip(genre, store)));
  tellGenres(store);
}

function tellGenres({ state: { genres } }) {
  byId("genres-said").textContent = `Genres: ${genres.join(", ") || "all"}`;
}

function mountKnob({ title, ends, sides, middle, note }, store) {
  const knob = byId("knob");
  byId("knob-title").textContent = title;
  byId("knob-ends").replaceChildren(...ends.map((end) => el("span", {}, end)));
  const show = () => {
    const { knob: at } = store.state;
    byId("knob-note").textContent = note(at);
    const side = sides[at < 0 ? 0 : 1];
    knob.setAttribute("aria-valuetext", at ? `${side}, ${Math.abs(at)} of 4` : middle);
  };
  knob.value = String(store.state.knob);
  knob.addEventListener("input", () => {
    store.set({ knob: Number(knob.value) });
    show();
  });
  show();
}

function chip(genre, store) {
  const node = el("button", { "aria-pressed": String(store.state.genres.includes(genre)) }, genre);
  node.addEventListener("click", () => {
    const others = store.state.genres.filter((one) => one !== genre);
    const on = others.length === store.state.genres.length;
    store.set({ genres: on ? [...others, genre] : others });
    node.setAttribute("aria-pressed", String(on));
    tellGenres(store);
  });
  return node;
}
