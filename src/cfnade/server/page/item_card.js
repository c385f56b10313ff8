// One film of the list: its title, how well it suits the visitor, and what they can do with it.

import { hiddenText, el, latestOnly, plural } from "./dom.js";
import { explain, times } from "./explanation.js";
import { bars, called, named } from "./format.js";
import { heart, ratingInput } from "./rating_input.js";

let panels = 0;
let closeMenu = () => {};
document.addEventListener("pointerdown", ({ target }) => target.closest(".acts") ?? closeMenu());

const STRENGTHS = [
  [0.85, "Excellent match"],
  [0.7, "Strong match"],
  [0.55, "Good match"],
  [0.4, "Fair match"],
  [0, "Weak match"],
];

/** A list item with `show(film, former rank, tallest bar)`; onLike(film) shows similar films. */
export function makeCard(film, parts) {
  const { scale, store, model, words, personOf, onLike, onAway } = parts;
  const place = el("span", { class: "place" });
  const match = el("div", { class: "match" });
  const score = el("span", { class: "score" });
  const chart = el("div", { class: "chart", role: "img" });
  const summary = el("p", { class: "words note" });
  const reasons = el("div", { class: "panel-reasons" });
  const why = disclosure("Why?", called(film));
  why.panel.append(el("div", { class: "figures" }, score, summary, chart), reasons);
  const primary = scale.starred ? ratingOf(film, parts) : pickOf(film, parts);
  primary.button.classList.add("primary");
  const act = (text, run) =>
    el("button", { class: "link", onclick: run }, text, hiddenText(` ${called(film)}`));
  const like = act("More like this", () => onLike(film));
  const later = act(words.Later, () => store.keep(film, !store.isLater(film.item)));
  const away = act("Not for me", () => onAway(card.film));
  const menu = makeMenu(film, [why.button, like, later, away]);
  const acts = el("div", { class: "acts" }, primary.button, menu.button, menu.panel);
  primary.button.hidden = !model.capabilities.new_users;
  const card = el("li", { class: "item-card" }, place, heading(film), match, acts, why.panel, primary.panel);
  card.menu = menu.button;
  card.film = film;

  const request = latestOnly();
  why.fill = () => explain(reasons, card.film, personOf(), parts, request.next());
  card.show = (current, former, tallest) => {
    card.film = current;
    place.replaceChildren(String(current.rank), ...moved(former, current.rank));
    match.replaceChildren(...strengthOf(current, scale, tallest));
    summary.replaceChildren(...describe(current, scale));
    later.setAttribute("aria-pressed", String(store.isLater(current.item)));
    if (scale.starred) {
      score.replaceChildren(...scored(current, scale));
      drawChart(chart, current, scale, tallest);
    } else {
      score.replaceChildren(share(current.interaction_probability), hiddenText(" chance to be your next pick."));
      drawShare(chart, current.interaction_probability / tallest, words);
      primary.button.set(store.ratingOf(current.item) !== null);
    }
    if (!why.panel.hidden) why.fill();
  };
  return card;
}

/** How well it suits the visitor: in words, and as a bar. The figures are behind "Why?". */
function strengthOf(film, scale, tallest) {
  const size = scale.starred
    ? (film.prediction - scale.low) / scale.span
    : film.interaction_probability / tallest;
  const [, text] = STRENGTHS.find(([least]) => size >= least) ?? STRENGTHS.at(-1);
  const bar = el("i", { class: "strength", "aria-hidden": "true" }, el("b"));
  bar.firstChild.style.setProperty("--size", String(Math.min(Math.max(size, 0.02), 1)));
  const genres = film.genres?.length ? el("small", {}, film.genres.slice(0, 2).join(", ")) : null;
  return [el("span", {}, text), bar, genres].filter(Boolean);
}

/** A menu button; the menu closes on a choice, on Escape and on a click elsewhere. */
function makeMenu(film, items) {
  const id = `menu-${(panels += 1)}`;
  const panel = el("div", { class: "menu", id, hidden: true }, ...items);
  const props = { class: "menu-button", "aria-expanded": "false", "aria-controls": id };
  const button = el("button", props, el("span", { "aria-hidden": "true" }, "⋯"), hiddenText(`More for ${called(film)}`));
  const open = (on) => {
    panel.hidden = !on;
    button.setAttribute("aria-expanded", String(on));
  };
  button.addEventListener("click", () => {
    if (panel.hidden) closeMenu();
    closeMenu = () => open(false);
    open(panel.hidden);
  });
  panel.addEventListener("click", ({ target }) => {
    if (!target.closest("button")) return;
    open(false);
    if (button.isConnected && panel.contains(document.activeElement)) button.focus();
  });
  panel.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    open(false);
    button.focus();
  });
  return { button, panel };
}

/** Stars, behind a button. */
function ratingOf(film, { scale, store, words }) {
  const control = disclosure("Rate it", called(film));
  control.fill = () => {
    const label = `Your rating of ${called(film)}`;
    const rate = (rating) => store.rate(film, rating);
    const input = ratingInput(scale, label, store.ratingOf(film.item), rate);
    control.panel.replaceChildren(el("p", { class: "note" }, `You have ${words.done} it? Your rating:`), input);
    input.focusIn();
  };
  return control;
}

/** A heart, which is the button. */
function pickOf(film, { scale, store }) {
  const pick = (on) => (on ? store.rate(film, scale.high) : store.drop(film.item));
  return { button: heart("Pick it", called(film), pick), panel: null };
}

function heading(film) {
  const { name, also, year } = named(film);
  const suffix = el("span", { class: "year" }, year);
  return el("h3", {}, name, " ", suffix, also ? el("small", {}, ` ${also}`) : null);
}

function disclosure(text, about) {
  const id = `panel-${(panels += 1)}`;
  const label = `${text} ${about}`;
  const panel = el("div", { class: "panel", id, hidden: true, role: "group", "aria-label": label });
  const props = { class: "link", "aria-expanded": "false", "aria-controls": id };
  const button = el("button", props, text, hiddenText(` ${about}`));
  const control = { panel, button, fill: null };
  button.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) control.fill();
  });
  return control;
}

/** How the rank of a film changed. */
function moved(former, rank) {
  if (former === null) return [el("small", { class: "up" }, "new")];
  if (former === rank) return [];
  const by = Math.abs(former - rank);
  const [sign, word] = former > rank ? ["↑", "up"] : ["↓", "down"];
  return [el("small", { class: word, "aria-hidden": "true" }, sign + by), hiddenText(` ${word} ${by}`)];
}

/** The expected rating, and its difference from the average. */
function scored(film, scale) {
  const difference = film.prediction - scale.mean(film.baseline);
  const texts = [scale.show(film.prediction), hiddenText(` expected, of ${scale.high}.`)];
  if (Math.abs(difference) < scale.span / 100) return texts;
  const comparison = hiddenText(" beside people’s average.");
  return [...texts, el("small", { class: difference < 0 ? "down" : "up" }, scale.signed(difference, scale.span), comparison)];
}

/** Further facts, in short pieces. */
function describe(film, scale) {
  const texts = [];
  if (scale.starred) texts.push(spread(film, scale));
  if (film.metric === "lift") texts.push(`${times(film.similarity)} as likely after it`);
  else if (!scale.starred) texts.push(`picked by ${plural(film.n_item_ratings, "person", "people")}`);
  else if (film.interaction_probability !== null) texts.push(`next pick: ${share(film.interaction_probability)}`);
  return texts.flatMap((text) => [el("span", {}, text), " "]);
}

function spread(film, scale) {
  const [low, high] = film.interval.map(scale.text);
  const range = low === high ? low : `${low}\u00a0to\u00a0${high}`;
  return `${scale.sure(film.std)}: ${range}\u00a0(80\u00a0%)`;
}

const percent = (chance) => (chance < 0.005 ? "under 1" : Math.round(chance * 100));

/** A small probability as a percentage. */
export function share(chance) {
  const digits = chance < 0.00995 ? 2 : chance < 0.0995 ? 1 : 0;
  const size = chance < 0.00005 ? "under 0.01" : (100 * chance).toFixed(digits);
  return `${size}\u00a0%`;
}

/** Bars for the visitor, with a line across each for people in general. */
function drawChart(chart, film, scale, tallest) {
  const parts = bars(scale.values, film.probabilities, film.baseline);
  const size = (chance) => String(Math.min(chance / tallest, 1));
  const nodes = parts.map(({ chance, usual }) => {
    const bar = el("i", {}, el("b"));
    bar.style.setProperty("--size", size(chance));
    bar.style.setProperty("--usual", size(usual));
    return bar;
  });
  const average = scale.mean(film.baseline);
  const ends = [scale.low, scale.high].map((value) => el("small", {}, scale.text(value)));
  ends.splice(1, 0, el("small", {}, `others ${scale.show(average)}`));
  chart.replaceChildren(el("div", { class: "bars" }, ...nodes), el("div", { class: "axis" }, ...ends));
  const texts = parts.map(({ label, chance }) => `${label}: ${percent(chance)} %`).join(", ");
  const others = parts.map(({ label, usual }) => `${label} ${percent(usual)}`).join(", ");
  const all = `Chance of each rating. ${texts}. People in general, in %: ${others}.`;
  chart.setAttribute("aria-label", all);
}

/** One bar, relative to the most likely film. */
function drawShare(chart, size, words) {
  const bar = el("i");
  bar.style.setProperty("--size", String(size));
  chart.replaceChildren(el("div", { class: "share" }, bar));
  const texts = `${Math.round(100 * size)} % of the likeliest ${words.one}’s chance.`;
  chart.setAttribute("aria-label", texts);
}
