// What the visitor has entered. It survives a reload; a broken copy is dropped, not believed.

const UNDO_DEPTH = 50;
const SAME_MOVE = 1500; // milliseconds in which re-rating one film counts as one step

export function openState(model, scale) {
  // Another catalogue may use the same ids for other films: each keeps its own ratings.
  const key = `cfnade-page ${model.side} ${model.n_items} ${scale.values.join(" ")}`;
  const listeners = [];
  const past = [];
  let last = { item: null, at: 0 };
  let state = read(key, scale, model) ?? { ...FRESH };

  const change = (part, kind, cause = null) => {
    state = { ...state, ...part };
    try {
      localStorage.setItem(key, JSON.stringify(state));
    } catch {
      // Storage full or refused: the page works on, it only forgets at the end.
    }
    for (const listener of listeners) listener(kind, cause);
  };
  const remember = (item = null) => {
    const now = Date.now();
    const { ratings, sample, later, away } = state;
    if (item === null || item !== last.item || now - last.at > SAME_MOVE)
      past.push({ ratings, sample, later, away });
    if (past.length > UNDO_DEPTH) past.shift();
    last = { item, at: now };
  };
  const without = (films, { item }) => films.filter((one) => one.item !== item);

  return {
    get state() {
      return state;
    },
    /** listener(kind, cause): "ratings" or "view", and the film whose rating changed, if one did. */
    listen: (listener) => listeners.push(listener),
    canUndo: () => past.length > 0,
    ratingOf: (item) => state.ratings.find((one) => one.item === item)?.rating ?? null,
    isLater: (item) => state.later.some((one) => one.item === item),
    rate({ item, title }, rating) {
      remember(item);
      const one = { item, title, rating };
      const known = state.ratings.some((each) => each.item === item);
      const ratings = known
        ? state.ratings.map((each) => (each.item === item ? one : each))
        : [one, ...state.ratings];
      change({ ratings, sample: null, later: without(state.later, one) }, "ratings", one);
    },
    drop(item) {
      this.replace(without(state.ratings, { item }));
    },
    replace(ratings, sample = null) {
      remember();
      change({ ratings, sample }, "ratings");
    },
    /** Keep a film for later, or no longer. */
    keep({ item, title }, on) {
      remember();
      const later = without(state.later, { item });
      change({ later: on ? [{ item, title }, ...later] : later }, "view");
    },
    /** Not for me: never list it again. */
    putAway({ item, title }) {
      remember();
      change({ away: [{ item, title }, ...without(state.away, { item })] }, "view");
    },
    bringBack() {
      remember();
      change({ away: [] }, "view");
    },
    undo() {
      last = { item: null, at: 0 };
      change(past.pop(), "ratings");
    },
    set: (part) => change(part, "view"),
    /** What changes no list. */
    note: (part) => change(part, "note"),
  };
}

export const copyOf = (sample, scale) =>
  sample.ratings.map(({ item, title, rating }) => ({ item, title, rating: scale.nearest(rating) }));

const FRESH = {
  ratings: [],
  sample: null,
  later: [],
  away: [],
  unseen: [], // asked about, and not known
  asking: true,
  knob: 0,
  genres: [],
  decades: [],
  thin: false,
  user: null,
};
const isId = (id) => Number.isSafeInteger(id) || (typeof id === "string" && id !== "");
const text = (value) => (typeof value === "string" ? value : null);
const list = (value) => (Array.isArray(value) ? value : []);
const films = (value) =>
  list(value)
    .filter((one) => isId(one?.item))
    .map(({ item, title }) => ({ item, title: text(title) }));

function read(key, scale, model) {
  let kept = null;
  try {
    kept = JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
  if (!Array.isArray(kept?.ratings)) return null;
  const ratings = new Map();
  for (const one of kept.ratings)
    if (isId(one?.item) && scale.has(one.rating))
      ratings.set(one.item, { item: one.item, title: text(one.title), rating: one.rating });
  return {
    ratings: [...ratings.values()],
    sample: text(kept.sample),
    later: films(kept.later),
    away: films(kept.away),
    unseen: list(kept.unseen).filter(isId),
    asking: kept.asking !== false,
    knob: Number.isInteger(kept.knob) && Math.abs(kept.knob) <= 6 ? kept.knob : 0,
    genres: model.genres.filter((genre) => list(kept.genres).includes(genre)),
    decades: model.decades.map(({ decade }) => decade).filter((one) => list(kept.decades).includes(one)),
    thin: kept.thin === true,
    user: isId(kept.user) ? kept.user : null,
  };
}
