// The model's rating scale: its levels, how they are written and how other scales map to it.

const CONFIDENCE = [
  [0.17, "quite sure"],
  [0.215, "fairly sure"],
  [0.265, "not so sure"],
  [Infinity, "could go either way"],
];

/** The scale of a model; without ratings it has one level. */
export function makeScale({ capabilities: { ratings: starred }, scale }) {
  const values = starred ? scale : [1];
  const low = values[0];
  const high = values[values.length - 1];
  const span = high - low || 1;
  // Of two equally near levels the upper one; 1e-9 allows for rounding.
  const nearest = (x) =>
    values.reduce((best, v) => (Math.abs(v - x) <= Math.abs(best - x) + 1e-9 ? v : best));
  return {
    starred,
    noun: starred ? "rating" : "pick",
    values,
    low,
    high,
    span,
    unit: high <= 10 ? "stars" : "points",
    nearest,
    mean: (chances) => chances.reduce((sum, chance, level) => sum + chance * values[level], 0),
    has: (x) => values.includes(x),
    /** A rating between lo and hi, linearly, to the nearest level of this scale. */
    from: (x, lo, hi) => nearest(low + ((x - lo) / (hi - lo || 1)) * span),
    text: (x) => String(Number(x.toFixed(2))),
    show: (x) => x.toFixed(span > 20 ? 0 : 1),
    /** A change with its sign; `limit` is the largest change shown beside it. */
    signed: (x, limit) => {
      const size = Math.abs(x).toFixed(limit < span / 40 ? 3 : span > 20 ? 1 : 2);
      return Number(size) === 0 ? "±0" : (x > 0 ? "+" : "−") + size;
    },
    /** Certainty in words, from the standard deviation. */
    sure: (std) => CONFIDENCE.find(([limit]) => std / span < limit)[1],
    /** A rating for screen readers. */
    spoken: (x) => `${Number(x.toFixed(2))} of ${high}`,
    /** A user with these films, as the service expects them. */
    person: (films) =>
      starred
        ? { ratings: films.map(({ item, rating }) => ({ item, rating })) }
        : { interactions: films.map(({ item }) => item) },
  };
}

/** At most `limit` bars, for the visitor and for people in general; long scales share bars. */
export function bars(values, probabilities, baseline, limit = 20) {
  const width = Math.ceil(values.length / limit);
  const groups = [];
  for (let from = 0; from < values.length; from += width) {
    const levels = values.slice(from, from + width);
    const sum = (chances) => chances.slice(from, from + width).reduce((sum, p) => sum + p, 0);
    const first = String(levels[0]);
    const last = String(levels[levels.length - 1]);
    groups.push({ label: first === last ? first : `${first} to ${last}`, chance: sum(probabilities), usual: sum(baseline) });
  }
  return groups;
}

// -- Words for items and for what people do with them.

const VERBS = {
  film: ["seen", "watch"],
  movie: ["seen", "watch"],
  show: ["seen", "watch"],
  book: ["read", "read"],
  comic: ["read", "read"],
  song: ["heard", "hear"],
  album: ["heard", "hear"],
  artist: ["heard", "hear"],
  game: ["played", "play"],
  place: ["been to", "visit"],
  restaurant: ["been to", "visit"],
};

const pluralOf = (one) =>
  /[^aeiou]y$/.test(one) ? `${one.slice(0, -1)}ies` : /(s|x|ch|sh)$/.test(one) ? `${one}es` : `${one}s`;
const upper = (text) => text[0].toUpperCase() + text.slice(1);

export function itemWords({ item_name: noun }) {
  const [done, act] = VERBS[noun] ?? ["tried", "try"];
  return {
    one: noun,
    many: pluralOf(noun),
    a: /^[aeiou]/.test(noun) ? `an ${noun}` : `a ${noun}`,
    Many: upper(pluralOf(noun)),
    done,
    Later: `${upper(act)} later`,
  };
}

/** Fill elements such as <span data-word="many">. */
export function fillWords(words) {
  for (const node of document.querySelectorAll("[data-word]"))
    node.textContent = words[node.dataset.word];
}

// -- Titles. "Matrix, The (1999)" reads The Matrix, 1999.

const ARTICLES = "The|A|An|Le|La|Les|L'|Il|Lo|El|Los|Las|Der|Die|Das|Un|Une";
const TITLE_PARTS = new RegExp(`^(.+?)(?:, (${ARTICLES}))?((?: \\([^()]*\\))*?)(?: \\((\\d{4})\\))?$`);

/** The name, other names that the title gives in brackets, and the year (or ""). An id that is a
    text is a title as good as any; a bare number is shown as one. */
export function named({ item, title }) {
  const text = (title || (typeof item === "string" ? item : "")).trim();
  if (!text) return { name: `No. ${item}`, also: "", year: "" };
  const [, main, article, also, year] = TITLE_PARTS.exec(text) ?? [null, text, "", "", ""];
  const front = article ? article + (article.endsWith("'") ? "" : " ") : "";
  return { name: front + main, also: also.trim(), year: year ?? "" };
}

/** One line of text: name and year. */
export function called(film) {
  const { name, year } = named(film);
  return year ? `${name} (${year})` : name;
}
