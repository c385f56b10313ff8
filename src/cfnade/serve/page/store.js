// What the visitor has entered. It survives a reload; a broken copy is dropped, not believed.

const UNDO_DEPTH = 50;
const SAME_MOVE = 1500; // milliseconds in which re-rating one film counts as one step

export function openStore(model, scale) {
  // Another catalogue may use the same ids for other films: each keeps its own ratings.
  const key = `cfnade-page ${model.side} ${model.items} ${scale.values.join(" ")}`;
  const listeners = [];
  const past = [];
  let last = { item: null, at: 0 };
  let state = read(key, scale, model) ?? fresh(model, scale);

  const change = (part, kind) => {
    state = { ...state, ...part };
    try {
      localStorage.setItem(key, JSON.stringify(state));
    } catch {
      // Storage full or refused: the page works on, it only forgets at the end.
    }
    for (const listener of listeners) listener(kind);
  };
  const remember = (item = null) => {
    const now = Date.now();
    if (item === null || item !== last.item || now - last.at > SAME_MOVE)
      past.push({ ratings: state.ratings, sample: state.sample });
    if (past.length > UNDO_DEPTH) past.shift();
    last = { item, at: now };
  };

  return {
    get state() {
      return state;
    },
    listen: (listener) => listeners.push(listener),
    canUndo: () => past.length > 0,
    ratingOf: (item) => state.ratings.find((one) => one.item === item)?.rating ?? null,
    rate({ item, title }, rating) {
      remember(item);
      const one = { item, title, rating };
      const known = state.ratings.some((each) => each.item === item);
      const ratings = known
        ? state.ratings.map((each) => (each.item === item ? one : each))
        : [one, ...state.ratings];
      change({ ratings, sample: null }, "ratings");
    },
    drop(item) {
      this.replace(state.ratings.filter((one) => one.item !== item));
    },
    replace(ratings, sample = null) {
      remember();
      change({ ratings, sample }, "ratings");
    },
    undo() {
      last = { item: null, at: 0 };
      change(past.pop(), "ratings");
    },
    set: (part) => change(part, "view"),
  };
}

export const copyOf = (sample, scale) =>
  sample.ratings.map(({ item, title, rating }) => ({ item, title, rating: scale.nearest(rating) }));

function fresh(model, scale) {
  const sample = model.new_people ? model.samples[0] : null;
  const ratings = sample ? copyOf(sample, scale) : [];
  const view = { knob: 0, genres: [], thin: false, user: null };
  return { ratings, sample: sample?.name ?? null, ...view };
}

const isId = (id) => Number.isSafeInteger(id) || (typeof id === "string" && id !== "");
const text = (value) => (typeof value === "string" ? value : null);

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
    knob: Number.isInteger(kept.knob) && Math.abs(kept.knob) <= 4 ? kept.knob : 0,
    genres: model.genres.filter((genre) => Array.isArray(kept.genres) && kept.genres.includes(genre)),
    thin: kept.thin === true,
    user: isId(kept.user) ? kept.user : null,
  };
}
