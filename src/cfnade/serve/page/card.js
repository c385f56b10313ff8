// One film of the list: its title, what is said of it, and what can be asked of it.

import { aside, el, plural } from "./dom.js";
import { called, named } from "./films.js";
import { bars } from "./scale.js";
import { heart, ratingInput } from "./stars.js";
import { explain, times } from "./why.js";
import { dareOf } from "./wishes.js";

let cards = 0;

/** A list item with `show(film, former rank, tallest bar)`; onLike(film) asks for like ones. */
export function makeCard(film, parts) {
  const { scale, store, model, personOf, onLike } = parts;
  const place = el("span", { class: "place" });
  const score = el("span", { class: "score" });
  const chart = el("div", { class: "chart", role: "img" });
  const words = el("p", { class: "words note" });
  const why = disclosure("Why?", called(film));
  const mine = scale.starred ? ratingOf(film, parts) : pickOf(film, parts);
  const about = aside(` ${called(film)}`);
  const like = el("button", { class: "link", onclick: () => onLike(film) }, "More like this", about);
  const acts = el("div", { class: "acts" }, why.button, mine.button, like);
  mine.button.hidden = !model.new_people;
  const rest = [chart, words, acts, why.panel, mine.panel];
  const card = el("li", { class: "film" }, place, heading(film), score, ...rest);
  card.like = like;

  let asked = new AbortController();
  why.fill = () => {
    asked.abort();
    asked = new AbortController();
    explain(why.panel, card.film, personOf(), parts, asked.signal);
  };
  card.show = (now, former, tallest) => {
    card.film = now;
    place.replaceChildren(String(now.rank), ...moved(former, now.rank));
    words.replaceChildren(...describe(now, scale, dareOf(store.state, model)));
    if (scale.starred) {
      score.replaceChildren(scale.show(now.expected), aside(` expected, of ${scale.high}.`));
      drawChart(chart, now, scale, tallest);
    } else {
      score.replaceChildren(share(now.pick), aside(" chance to be your next pick."));
      drawShare(chart, now.pick / tallest);
      mine.button.set(store.ratingOf(now.item) !== null);
    }
    if (!why.panel.hidden) why.fill();
  };
  return card;
}

/** Stars, behind a button. */
function ratingOf(film, { scale, store }) {
  const made = disclosure("Rate it", called(film));
  made.fill = () => {
    const label = `Your rating of ${called(film)}`;
    const rate = (rating) => store.rate(film, rating);
    const input = ratingInput(scale, label, store.ratingOf(film.item), rate);
    made.panel.replaceChildren(el("p", { class: "note" }, "Seen it? Your rating:"), input);
    input.focusIn();
  };
  return made;
}

/** A heart, which is the button. */
function pickOf(film, { scale, store }) {
  const pick = (on) => (on ? store.rate(film, scale.high) : store.drop(film.item));
  return { button: heart("Pick it", called(film), pick), panel: null };
}

function heading(film) {
  const { name, also, year } = named(film);
  const rest = el("span", { class: "year" }, year);
  return el("h3", {}, name, " ", rest, also ? el("small", {}, ` ${also}`) : null);
}

function disclosure(text, about) {
  const id = `panel-${(cards += 1)}`;
  const label = `${text} ${about}`;
  const panel = el("div", { class: "panel", id, hidden: true, role: "group", "aria-label": label });
  const props = { class: "link", "aria-expanded": "false", "aria-controls": id };
  const button = el("button", props, text, aside(` ${about}`));
  const made = { panel, button, fill: null };
  button.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) made.fill();
  });
  return made;
}

/** How a film's place changed: nothing for the first list. */
function moved(former, rank) {
  if (former === null) return [el("small", {}, "new")];
  if (former === rank) return [];
  const by = Math.abs(former - rank);
  const [sign, word] = former > rank ? ["↑", "up"] : ["↓", "down"];
  return [el("small", { class: word, "aria-hidden": "true" }, sign + by), aside(` ${word} ${by}`)];
}

/** What is said of it besides, in short pieces. */
function describe(film, scale, dare) {
  const said = scale.starred ? [spread(film, scale)] : [];
  if (film.by === "times") said.push(`${times(film.similarity)} as likely after it`);
  else if (!scale.starred) said.push(`picked by ${plural(film.ratings, "person", "people")}`);
  else if (film.pick !== null) said.push(`next pick: ${share(film.pick)}`);
  else if (dare !== 0) said.push(tail(film, scale, dare > 0));
  return said.flatMap((text) => [el("span", {}, text), " "]);
}

function spread(film, scale) {
  const [low, high] = film.interval.map(scale.text);
  const range = low === high ? low : `${low}\u00a0to\u00a0${high}`;
  return `${scale.sure(film.std)}: ${range}\u00a0(80\u00a0%)`;
}

/** What the daring hope for, the chance of the top tenth, or the careful fear: the lower half. */
function tail({ probabilities }, { values, low, high, span }, daring) {
  const inside = (value) => (daring ? value >= high - span / 10 : value <= low + span / 2);
  const levels = values.filter(inside);
  const chance = probabilities.reduce((sum, p, level) => sum + (inside(values[level]) ? p : 0), 0);
  const edge = daring ? levels[0] : levels[levels.length - 1];
  const open = levels.length < 2 ? "" : daring ? " or more" : " or less";
  return `${percent(chance)}\u00a0% chance of ${edge}${open}`;
}

const percent = (chance) => (chance < 0.005 ? "under 1" : Math.round(chance * 100));

/** A chance among all films, which is small. */
export function share(chance) {
  const digits = chance < 0.00995 ? 2 : chance < 0.0995 ? 1 : 0;
  const size = chance < 0.00005 ? "under 0.01" : (100 * chance).toFixed(digits);
  return `${size}\u00a0%`;
}

function drawChart(chart, film, scale, tallest) {
  const parts = bars(scale.values, film.probabilities);
  const peak = Math.max(...parts.map(({ chance }) => chance));
  const nodes = parts.map(({ chance }) => {
    const bar = el("i", { class: chance === peak ? "peak" : "" });
    bar.style.setProperty("--size", String(Math.min(chance / tallest, 1)));
    return bar;
  });
  const ends = [scale.low, scale.high].map((value) => el("small", {}, scale.text(value)));
  chart.replaceChildren(el("div", { class: "bars" }, ...nodes), el("div", { class: "axis" }, ...ends));
  const said = parts.map(({ label, chance }) => `${label}: ${percent(chance)} %`).join(", ");
  chart.setAttribute("aria-label", `Chance of each rating. ${said}.`);
}

/** One bar, beside that of the likeliest film. */
function drawShare(chart, size) {
  const bar = el("i");
  bar.style.setProperty("--size", String(size));
  chart.replaceChildren(el("div", { class: "share" }, bar));
  chart.setAttribute("aria-label", `${Math.round(100 * size)} % of the likeliest film’s chance.`);
}
