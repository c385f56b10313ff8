// One film of the list: its title, expected rating, distribution, and what can be asked of it.

import { aside, el } from "./dom.js";
import { called, named } from "./films.js";
import { bars } from "./scale.js";
import { ratingInput } from "./stars.js";
import { explain } from "./why.js";

let cards = 0;

/** A list item with `show(film, former rank, tallest bar)`. */
export function makeCard(film, { scale, store, model, personOf }) {
  const place = el("span", { class: "place" });
  const score = el("span", { class: "score" });
  const chart = el("div", { class: "chart", role: "img" });
  const sure = el("p", { class: "note" });
  const why = disclosure("Why?", called(film));
  const rate = disclosure("Rate it", called(film));
  rate.button.hidden = !model.new_people;
  const words = el("div", { class: "words" }, sure, why.button, rate.button);
  const card = el("li", { class: "film" }, place, heading(film), score, chart, words, why.panel, rate.panel);

  let asked = new AbortController();
  why.fill = () => {
    asked.abort();
    asked = new AbortController();
    explain(why.panel, card.film, personOf(), scale, asked.signal);
  };
  rate.fill = () => {
    const label = `Your rating of ${called(film)}`;
    const input = ratingInput(scale, label, store.ratingOf(film.item), (rating) => store.rate(film, rating));
    rate.panel.replaceChildren(el("p", { class: "note" }, "Seen it? Your rating:"), input);
    input.focusIn();
  };
  card.show = (now, former, tallest) => {
    card.film = now;
    place.replaceChildren(String(now.rank), ...moved(former, now.rank));
    score.replaceChildren(scale.show(now.expected), aside(` expected, of ${scale.high}.`));
    drawChart(chart, now, scale, tallest);
    sure.textContent = describe(now, scale, store.state.dare);
    if (!why.panel.hidden) why.fill();
  };
  return card;
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

function describe(film, scale, dare) {
  const [low, high] = film.interval.map(scale.text);
  const range = low === high ? low : `${low}\u00a0to\u00a0${high}`;
  const more = dare === 0 ? "" : ` · ${tail(film, scale, dare > 0)}`;
  return `${scale.sure(film.std)}: ${range}\u00a0(80\u00a0%)${more}`;
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
