// The visitor's entries. They survive a reload; an invalid copy is dropped.

const UNDO_DEPTH = 50;
const SAME_STEP = 1500; // milliseconds in which re-rating one film counts as one step

export function openState(model, scale) {
  // Another catalogue may use the same ids for other films: each keeps its own ratings.
  const key = `cfnade-page ${model.side} ${model.n_items} ${scale.values.join(" ")}`;
  const listeners = [];
  const undoStack = [];
  let last = { item: null, at: 0 };
  let state = read(key, scale, model) ?? { ...INITIAL };

  const change = (part, kind, cause = null) => {
    state = { ...state, ...part };
    try {
      localStorage.setItem(key, JSON.stringify(state));
    } catch {
      // Storage is full or refused: entries are lost at the end of the visit.
    }
    for (const listener of listeners) listener(kind, cause);
  };
  const remember = (item = null) => {
    const now = Date.now();
    const { ratings, sample, later, away } = state;
    if (item === null || item !== last.item || now - last.at > SAME_STEP)
      undoStack.push({ ratings, sample, later, away });
    if (undoStack.length > UNDO_DEPTH) undoStack.shift();
    last = { item, at: now };
  };
  const without = (films, { item }) => films.filter((entry) => entry.item !== item);

  return {
    get state() {
      return state;
    },
    /** listener(kind, cause): "ratings" or "view", and the film whose rating changed, if one did. */
    listen: (listener) => listeners.push(listener),
    canUndo: () => undoStack.length > 0,
    ratingOf: (item) => state.ratings.find((entry) => entry.item === item)?.rating ?? null,
    isLater: (item) => state.later.some((entry) => entry.item === item),
    rate({ item, title }, rating) {
      remember(item);
      const entry = { item, title, rating };
      const isRated = state.ratings.some((other) => other.item === item);
      const ratings = isRated
        ? state.ratings.map((other) => (other.item === item ? entry : other))
        : [entry, ...state.ratings];
      change({ ratings, sample: null, later: without(state.later, entry) }, "ratings", entry);
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
      change(undoStack.pop(), "ratings");
    },
    set: (part) => change(part, "view"),
    /** A change that affects no list. */
    note: (part) => change(part, "note"),
  };
}

export const copyOf = (sample, scale) =>
  sample.ratings.map(({ item, title, rating }) => ({ item, title, rating: scale.nearest(rating) }));

const INITIAL = {
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
    .filter((entry) => isId(entry?.item))
    .map(({ item, title }) => ({ item, title: text(title) }));

function read(key, scale, model) {
  let saved = null;
  try {
    saved = JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
  if (!Array.isArray(saved?.ratings)) return null;
  const ratings = new Map();
  for (const entry of saved.ratings)
    if (isId(entry?.item) && scale.has(entry.rating))
      ratings.set(entry.item, { item: entry.item, title: text(entry.title), rating: entry.rating });
  return {
    ratings: [...ratings.values()],
    sample: text(saved.sample),
    later: films(saved.later),
    away: films(saved.away),
    unseen: list(saved.unseen).filter(isId),
    asking: saved.asking !== false,
    knob: Number.isInteger(saved.knob) && Math.abs(saved.knob) <= 6 ? saved.knob : 0,
    genres: model.genres.filter((genre) => list(saved.genres).includes(genre)),
    decades: model.decades.map(({ decade }) => decade).filter((entry) => list(saved.decades).includes(entry)),
    thin: saved.thin === true,
    user: isId(saved.user) ? saved.user : null,
  };
}
