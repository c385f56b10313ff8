// One film of the list: its title, what is said of it, and what can be asked of it.

import { hiddenText, el, plural } from "./dom.js";
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

/** A list item with `show(film, former rank, tallest bar)`; onLike(film) asks for like ones. */
export function makeCard(film, parts) {
  const { scale, store, model, words, personOf, onLike, onAway } = parts;
  const place = el("span", { class: "place" });
  const match = el("div", { class: "match" });
  const score = el("span", { class: "score" });
  const chart = el("div", { class: "chart", role: "img" });
  const said = el("p", { class: "words note" });
  const reasons = el("div", { class: "panel-reasons" });
  const why = disclosure("Why?", called(film));
  why.panel.append(el("div", { class: "figures" }, score, said, chart), reasons);
  const mine = scale.starred ? ratingOf(film, parts) : pickOf(film, parts);
  mine.button.classList.add("primary");
  const act = (text, run) =>
    el("button", { class: "link", onclick: run }, text, hiddenText(` ${called(film)}`));
  const like = act("More like this", () => onLike(film));
  const later = act(words.Later, () => store.keep(film, !store.isLater(film.item)));
  const away = act("Not for me", () => onAway(card.film));
  const menu = makeMenu(film, [why.button, like, later, away]);
  const acts = el("div", { class: "acts" }, mine.button, menu.button, menu.panel);
  mine.button.hidden = !model.capabilities.new_users;
  const card = el("li", { class: "item-card" }, place, heading(film), match, acts, why.panel, mine.panel);
  card.menu = menu.button;
  card.film = film;

  let asked = new AbortController();
  why.fill = () => {
    asked.abort();
    asked = new AbortController();
    explain(reasons, card.film, personOf(), parts, asked.signal);
  };
  card.show = (now, former, tallest) => {
    card.film = now;
    place.replaceChildren(String(now.rank), ...moved(former, now.rank));
    match.replaceChildren(...strengthOf(now, scale, tallest));
    said.replaceChildren(...describe(now, scale));
    later.setAttribute("aria-pressed", String(store.isLater(now.item)));
    if (scale.starred) {
      score.replaceChildren(...scored(now, scale));
      drawChart(chart, now, scale, tallest);
    } else {
      score.replaceChildren(share(now.interaction_probability), hiddenText(" chance to be your next pick."));
      drawShare(chart, now.interaction_probability / tallest, words);
      mine.button.set(store.ratingOf(now.item) !== null);
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

/** A button that shows what else can be done; it closes on a choice, on Escape and elsewhere. */
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
  const made = disclosure("Rate it", called(film));
  made.fill = () => {
    const label = `Your rating of ${called(film)}`;
    const rate = (rating) => store.rate(film, rating);
    const input = ratingInput(scale, label, store.ratingOf(film.item), rate);
    made.panel.replaceChildren(el("p", { class: "note" }, `You have ${words.done} it? Your rating:`), input);
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
  const id = `panel-${(panels += 1)}`;
  const label = `${text} ${about}`;
  const panel = el("div", { class: "panel", id, hidden: true, role: "group", "aria-label": label });
  const props = { class: "link", "aria-expanded": "false", "aria-controls": id };
  const button = el("button", props, text, hiddenText(` ${about}`));
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
  if (former === null) return [el("small", { class: "up" }, "new")];
  if (former === rank) return [];
  const by = Math.abs(former - rank);
  const [sign, word] = former > rank ? ["↑", "up"] : ["↓", "down"];
  return [el("small", { class: word, "aria-hidden": "true" }, sign + by), hiddenText(` ${word} ${by}`)];
}

/** The expected rating, and how far it is from people's average. */
function scored(film, scale) {
  const own = film.prediction - scale.mean(film.baseline);
  const said = [scale.show(film.prediction), hiddenText(` expected, of ${scale.high}.`)];
  if (Math.abs(own) < scale.span / 100) return said;
  const beside = hiddenText(" beside people’s average.");
  return [...said, el("small", { class: own < 0 ? "down" : "up" }, scale.signed(own, scale.span), beside)];
}

/** What is said of it besides, in short pieces. */
function describe(film, scale) {
  const said = [];
  if (scale.starred) said.push(spread(film, scale));
  if (film.metric === "lift") said.push(`${times(film.similarity)} as likely after it`);
  else if (!scale.starred) said.push(`picked by ${plural(film.n_item_ratings, "person", "people")}`);
  else if (film.interaction_probability !== null) said.push(`next pick: ${share(film.interaction_probability)}`);
  return said.flatMap((text) => [el("span", {}, text), " "]);
}

function spread(film, scale) {
  const [low, high] = film.interval.map(scale.text);
  const range = low === high ? low : `${low}\u00a0to\u00a0${high}`;
  return `${scale.sure(film.std)}: ${range}\u00a0(80\u00a0%)`;
}

const percent = (chance) => (chance < 0.005 ? "under 1" : Math.round(chance * 100));

/** A chance among all films, which is small. */
export function share(chance) {
  const digits = chance < 0.00995 ? 2 : chance < 0.0995 ? 1 : 0;
  const size = chance < 0.00005 ? "under 0.01" : (100 * chance).toFixed(digits);
  return `${size}\u00a0%`;
}

/** Bars for the visitor, a line across each for people in general: what lies between is personal. */
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
  const said = parts.map(({ label, chance }) => `${label}: ${percent(chance)} %`).join(", ");
  const others = parts.map(({ label, usual }) => `${label} ${percent(usual)}`).join(", ");
  const all = `Chance of each rating. ${said}. People in general, in %: ${others}.`;
  chart.setAttribute("aria-label", all);
}

/** One bar, beside that of the likeliest film. */
function drawShare(chart, size, words) {
  const bar = el("i");
  bar.style.setProperty("--size", String(size));
  chart.replaceChildren(el("div", { class: "share" }, bar));
  const said = `${Math.round(100 * size)} % of the likeliest ${words.one}’s chance.`;
  chart.setAttribute("aria-label", said);
}
