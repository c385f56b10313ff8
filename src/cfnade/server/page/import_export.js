// Import and export of ratings: CSV, and exports of Letterboxd, IMDb, Goodreads and MovieLens.

import { call } from "./api.js";
import { announce, byId, el, on, plural } from "./dom.js";
import { called } from "./format.js";
import { predictionsOf } from "./recommendations.js";

const MAX_FILE_SIZE = 8_000_000; // bytes
const BATCH_SIZE = 500; // films in one question, as many as a list may have
const MAX_TITLE_LENGTH = 200; // characters of a title

export function mountImports({ model, scale, store, words }) {
  const file = byId("file");
  on("import", "click", () => file.click());
  file.addEventListener("change", async () => {
    const [selected] = file.files;
    if (!selected) return;
    report(`Reading ${selected.name} …`);
    try {
      const { rows, source } = understand(parse(await textOf(selected)), scale.starred);
      takeOver(await resolve(rows, scale), source, { model, scale, store, words });
    } catch (error) {
      report(error.message);
    }
    file.value = "";
  });
  on("export", "click", () => save(store.state.ratings, scale));
}

function save(ratings, scale) {
  const range = `${scale.low}-${scale.high}`;
  const columns = ["item", "title", "rating", "scale"].slice(0, scale.starred ? 4 : 2);
  const lines = ratings.map((entry) => columns.map((name) => ({ ...entry, scale: range })[name]));
  const text = write([columns, ...lines]);
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  el("a", { href: url, download: `my-${scale.noun}s.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// -- reading --

async function textOf(selected) {
  if (selected.size > MAX_FILE_SIZE) throw new Error(`${selected.name} is too large for a file of ratings.`);
  const bytes = await selected.arrayBuffer();
  const text = decode(bytes);
  if (text.startsWith("PK\u0003"))
    throw new Error(`${selected.name} is a zip archive: unpack it and choose ratings.csv inside.`);
  return text;
}

// Each source is recognised by a column that no other has.
const SOURCES = [
  { name: "IMDb", by: "const", range: [1, 10] },
  { name: "Letterboxd", by: "letterboxd uri", range: [0.5, 5] },
  { name: "Goodreads", by: "my rating", range: [1, 5] },
  { name: "MovieLens", by: "movieid", range: [0.5, 5] },
];
const plain = (name) => name.trim().toLowerCase().replaceAll("_", "");

/** Rows {item, title, year, rating, range} of a table; a range of null means the model's own.
    Without stars every film counts as picked. */
export function understand(lines, starred) {
  const head = (lines[0] ?? []).map(plain);
  const at = (...names) => names.map((name) => head.indexOf(name)).find((place) => place >= 0) ?? -1;
  const source = SOURCES.find(({ by }) => at(by) >= 0);
  const item = source && source.name !== "MovieLens" ? -1 : at("item", "movieid"); // others' ids mean others
  const places = { item, title: at("title", "name"), year: at("year", "original publication year") };
  const rating = at("your rating", "my rating", "rating");
  if ((starred && rating < 0) || Math.max(places.item, places.title) < 0)
    throw new Error(
      starred
        ? "No ratings found in this file. Its first line must name the columns title and rating; " +
          "of a Letterboxd export choose ratings.csv."
        : "Nothing found in this file. Its first line must name the column title.",
    );
  const rows = lines.slice(1).map((line) => {
    const cell = (place) => (line[place] ?? "").trim().slice(0, MAX_TITLE_LENGTH);
    const year = /^\d{4}$/.test(cell(places.year)) ? Number(cell(places.year)) : null;
    const film = { item: cell(places.item), title: withoutSeries(cell(places.title), source), year };
    if (!starred) return { ...film, rating: 1, range: null };
    const given = cell(rating) === "" ? NaN : Number(cell(rating).replace(",", "."));
    return { ...film, rating: given, range: source?.range ?? rangeOf(cell(at("scale"))) };
  });
  return { rows: starred ? rows.filter((row) => !unread(row, source)) : rows, source: source?.name ?? "" };
}

/** Goodreads puts the series behind a title: "Emma (Classics, #4)". */
const withoutSeries = (title, source) =>
  source?.name === "Goodreads" ? title.replace(/\s*\([^()]*#[^()]*\)$/, "") : title;

/** Goodreads writes 0 for a book that was not rated. */
const unread = ({ rating }, source) => source?.name === "Goodreads" && rating === 0;

function rangeOf(text) {
  const [, low, high] = /^(-?[\d.]+)-(-?[\d.]+)$/.exec(text) ?? [];
  return Number(low) < Number(high) ? [Number(low), Number(high)] : null;
}

// -- finding the films --

/** Ratings of the films found, and the names of those that were not or had no usable rating. */
async function resolve(rows, scale) {
  const result = { found: new Map(), lost: [], bad: [] };
  const usable = rows.filter(({ rating, range, ...row }) => {
    const [low, high] = range ?? [scale.low, scale.high];
    const fine = rating >= low && rating <= high;
    if (!fine) result.bad.push(nameOf(row));
    return fine;
  });
  for (let from = 0; from < usable.length; from += BATCH_SIZE) {
    const batch = usable.slice(from, from + BATCH_SIZE);
    const films = await lookUp(batch, scale);
    batch.forEach((row, at) => {
      const [low, high] = row.range ?? [scale.low, scale.high];
      const { item, title } = films[at] ?? {};
      if (item === undefined) result.lost.push(nameOf(row));
      else result.found.set(item, { item, title, rating: scale.from(row.rating, low, high) });
    });
  }
  return result;
}

const nameOf = ({ item, title, year }) =>
  title ? called({ title: year ? `${title} (${year})` : title }) : `item ${item || "without a name"}`;

/** A film for each row: by id where the id means that title here, too, else by title and year. */
async function lookUp(rows, scale) {
  const films = await byIds(rows, scale);
  const open = [...rows.keys()].filter((at) => !films[at] && rows[at].title);
  if (!open.length) return films;
  const { matches } = await call("items/match", { body: { items: open.map((at) => titleAndYear(rows[at])) } });
  open.forEach((at, place) => (films[at] = matches[place]));
  return films;
}

async function byIds(rows, scale) {
  const ids = rows.map(({ item }) => (/^-?\d{1,15}$/.test(item) ? Number(item) : item));
  const queried = ids.filter((id) => id !== "").map((item) => ({ item }));
  const itemsById = new Map();
  if (queried.length) {
    const { items } = await predictionsOf(scale.person([]), queried);
    for (const film of items) itemsById.set(film.item, film);
  }
  return rows.map(({ title }, at) => {
    const film = itemsById.get(ids[at]);
    return film && (!title || !film.title || film.title === title) ? film : null;
  });
}

function titleAndYear({ title, year }) {
  const [, rest, titleYear] = /^(.+?)(?:\s*\((\d{4})\))?$/.exec(title);
  return year || titleYear ? { title: rest, year: year ?? Number(titleYear) } : { title };
}

// -- report --

function takeOver({ found, lost, bad }, source, { model, scale, store, words }) {
  const existing = store.state.sample === null ? store.state.ratings : []; // a sample gives way
  const ratings = [...found.values(), ...existing.filter(({ item }) => !found.has(item))];
  if (found.size) store.replace(ratings);
  const { ratings: history } = model.limits;
  const cut = ratings.length > history ? ` Only the first ${history} of all are used.` : "";
  report(`${plural(found.size, scale.noun)} imported${source && ` from ${source}`}.${cut}`, [
    [`${plural(lost.length, words.one, words.many)} not found in this catalogue`, lost],
    [`${plural(bad.length, "line")} without a usable rating`, bad],
  ]);
}

function report(text, lists = []) {
  const box = byId("report");
  const close = { class: "remove", "aria-label": "Close" };
  const details = lists
    .filter(([, names]) => names.length)
    .map(([heading, names]) => {
      const list = el("ul", {}, ...names.map((name) => el("li", {}, name)));
      return el("details", {}, el("summary", {}, heading), list);
    });
  box.hidden = false;
  box.replaceChildren(
    el("p", {}, text),
    el("button", { ...close, onclick: () => (box.hidden = true) }, "×"),
    ...details,
  );
}

// -- Comma-separated text: quotes, doubled quotes, line ends of any kind, a byte-order mark.

/** Lines of fields. The separator (comma, semicolon or tab) is the first line's commonest. */
export function parse(text) {
  const source = text.replace(/^\uFEFF/, "");
  const separator = separatorOf(source);
  const lines = [];
  let line = [];
  let field = "";
  let quoted = false;
  const endLine = () => {
    line.push(field);
    if (line.length > 1 || line[0] !== "") lines.push(line);
    line = [];
    field = "";
  };
  for (let at = 0; at < source.length; at += 1) {
    const sign = source[at];
    if (quoted) {
      if (sign !== '"') field += sign;
      else if (source[at + 1] === '"') field += source[(at += 1)];
      else quoted = false;
    } else if (sign === '"' && field === "") quoted = true;
    else if (sign === separator) {
      line.push(field);
      field = "";
    } else if (sign === "\n" || sign === "\r") {
      if (sign === "\r" && source[at + 1] === "\n") at += 1;
      endLine();
    } else field += sign;
  }
  endLine();
  return lines;
}

function separatorOf(source) {
  const first = source.slice(0, source.search(/[\r\n]|$/)).replace(/"[^"]*"/g, "");
  const count = (sign) => first.split(sign).length;
  return [",", ";", "\t"].reduce((best, sign) => (count(sign) > count(best) ? sign : best));
}

export function write(lines) {
  const field = (value) => {
    const text = String(value ?? "");
    return /[",\r\n;\t]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return lines.map((line) => line.map(field).join(",") + "\r\n").join("");
}

/** The text of a file: UTF-8, or else Windows' western code page. */
export function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

// -- Ratings in a link: after the #, which browsers do not send.

const MAX_SHARED = 200; // ratings in one link
const PREFIX = "#mine=";

const pack = (value) => {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
};

function unpack(text) {
  const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (sign) => sign.charCodeAt(0))));
}

/** The address of this page with these ratings in it. */
function linkTo(ratings, model) {
  const entries = ratings.slice(0, MAX_SHARED).map(({ item, rating }) => [item, rating]);
  const { origin, pathname } = location;
  return origin + pathname + PREFIX + pack({ of: model.n_items, films: entries });
}

export function mountShare({ model, scale, store }) {
  on("share", "click", async () => {
    const { ratings } = store.state;
    const link = linkTo(ratings, model);
    const field = byId("share-link");
    field.value = link;
    byId("share-note").textContent =
      `Whoever opens it sees your ${plural(Math.min(ratings.length, MAX_SHARED), scale.noun)}. It is in no ` +
      "log: browsers do not send what follows the #.";
    byId("shared").hidden = false;
    field.focus();
    field.select();
    await navigator.clipboard?.writeText(link).then(
      () => announce("Link copied."),
      () => announce("Link ready to be copied."),
    );
  });
  on("share-close", "click", () => {
    byId("shared").hidden = true;
    byId("share").focus();
  });
  const open = () => openLink({ model, scale, store });
  addEventListener("hashchange", open); // a link opened where the page is open already
  return open();
}

/** Take over the ratings of the address, or ask first where there are others. */
async function openLink({ model, scale, store }) {
  if (!location.hash.startsWith(PREFIX)) return;
  const box = byId("report");
  let content = null;
  try {
    content = unpack(location.hash.slice(PREFIX.length));
  } catch {
    // incomplete: reported below
  }
  history.replaceState(null, "", location.pathname); // a reload must not undo what follows
  const given = (Array.isArray(content?.films) ? content.films : [])
    .filter((entry) => Array.isArray(entry) && scale.has(entry[1]))
    .slice(0, MAX_SHARED);
  const ratings = given.length && content.of === model.n_items ? await titled(given, scale) : [];
  const say = (text, ...buttons) => {
    box.hidden = false;
    box.replaceChildren(el("p", {}, text), el("span", { class: "tools" }, ...buttons));
  };
  const close = (label) => el("button", { onclick: () => (box.hidden = true) }, label);
  if (!ratings.length) {
    say(`This link holds no ${scale.noun}s that fit this catalogue.`, close("Close"));
    return;
  }
  const take = () => {
    store.replace(ratings);
    say(`${plural(ratings.length, scale.noun)} from a link. Undo brings yours back.`, close("Close"));
  };
  if (store.state.sample === null && store.state.ratings.length)
    say(
      `This link holds ${plural(ratings.length, scale.noun)}. Yours would be put aside.`,
      el("button", { onclick: take }, "Show them"),
      close("Keep mine"),
    );
  else take();
}

async function titled(given, scale) {
  try {
    const films = given.map(([item]) => ({ item }));
    const response = await predictionsOf(scale.person([]), films);
    const titles = new Map(response.items.map((film) => [film.item, film.title]));
    return given
      .filter(([item]) => titles.has(item))
      .map(([item, rating]) => ({ item, title: titles.get(item), rating }));
  } catch {
    return [];
  }
}
