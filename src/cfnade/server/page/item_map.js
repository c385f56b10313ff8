// The map: similar films close together, brighter where they suit the visitor.

import { call } from "./api.js";
import { announce, byId, debounce, el, latestOnly } from "./dom.js";
import { called, named } from "./format.js";
import { predictionsOf } from "./recommendations.js";

const MAX_BRIGHT = 6; // films named beside the map
const MAX_NAMES = 26; // films named on it, at most
const CLICK_RADIUS = 18; // pixels within which a film is meant

/** Returns show(on). Positions are loaded once, predictions after every change. */
export function mountItemMap({ model, scale, store, words, personOf, onRate }) {
  const canvas = byId("map-canvas");
  let films = null; // {item, x, y, light}
  let isVisible = false;
  const request = latestOnly();
  let selected = null;

  const load = async () => {
    if (!films) {
      const { pen, width, height, colour } = sky();
      pen.fillStyle = colour("--star");
      pen.textAlign = "center";
      pen.fillText("The map is being drawn …", width / 2, height / 2);
      ({ items: films } = await call("item-map"));
    }
    byId("map-none").hidden = films.length > 0;
    byId("map-about").hidden = films.length === 0;
  };
  const light = async () => {
    const signal = request.next();
    const person = personOf();
    if (!person || !films.length) return;
    const response = await predictionsOf(person, films, signal);
    const personal = new Map(response.items.map((film) => [film.item, ownPart(film, scale)]));
    const strengths = [...personal.values()].sort((a, b) => a - b);
    const at = (share) => strengths[Math.floor(share * (strengths.length - 1))] ?? 0;
    const [dark, bright] = [at(0.5), at(0.98)];
    const hasNoRatings = model.capabilities.new_users && !store.state.ratings.length;
    for (const film of films)
      film.light = hasNoRatings ? 0 : within(((personal.get(film.item) ?? dark) - dark) / (bright - dark || 1));
  };
  const refresh = async () => {
    if (!isVisible) return;
    try {
      await load();
      await light();
      draw();
      describe();
    } catch (error) {
      if (error.name !== "AbortError") byId("map-said").textContent = error.message;
    }
  };

  /** Clear the canvas and fit it to its size on the screen. */
  const sky = () => {
    const { clientWidth: width, clientHeight: height } = canvas;
    const dots = window.devicePixelRatio || 1;
    canvas.width = width * dots;
    canvas.height = height * dots;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    pen.scale(dots, dots);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("--sky");
    pen.fillRect(0, 0, width, height);
    return { pen, width, height, colour };
  };
  const placeOf = ({ x, y }, width, height) => [24 + x * (width - 48), 24 + y * (height - 48)];
  const draw = () => {
    const { pen, width, height, colour } = sky();
    pen.globalCompositeOperation = "lighter";
    const near = Math.min(Math.max(Math.min(width, height) / 700, 0.5), 1); // less room, smaller lights
    for (const film of films)
      if (film.light > 0.05) glow(pen, placeOf(film, width, height), film.light, near);
    pen.globalCompositeOperation = "source-over";
    for (const film of films) star(pen, film, placeOf(film, width, height), colour);
    label(pen, films, (film) => placeOf(film, width, height), [width, height], colour("--star"));
  };
  const star = (pen, film, [x, y], colour) => {
    const rating = store.ratingOf(film.item);
    pen.fillStyle = film === selected || rating !== null ? colour("--mine") : colour("--star");
    pen.globalAlpha = rating !== null || film === selected ? 1 : 0.3 + 0.7 * (film.light ?? 0);
    pen.beginPath();
    pen.arc(x, y, rating !== null || film === selected ? 4 : 1.5 + 1.5 * (film.light ?? 0), 0, 7);
    pen.fill();
    pen.globalAlpha = 1;
  };

  const describe = () => {
    const best = films
      .filter(({ item }) => store.ratingOf(item) === null)
      .sort((a, b) => b.light - a.light)
      .slice(0, MAX_BRIGHT);
    const rows = best.map((film) => {
      const node = el("button", { class: "link", onclick: () => mark(film) }, called(film));
      return el("li", {}, node);
    });
    byId("map-bright").replaceChildren(...rows);
    const lit = best.length && !(model.capabilities.new_users && !store.state.ratings.length);
    const dark = `Rate a few ${words.many}, and the places that suit you light up.`;
    byId("map-said").textContent = lit ? "Brightest for you:" : dark;
    byId("map-bright").hidden = !lit;
    const text = lit ? `Brightest: ${best.map(called).join(", ")}.` : dark;
    canvas.setAttribute("aria-label", `A map of ${films.length} ${words.many}. ${text}`);
  };
  const mark = (film) => {
    selected = film;
    draw();
    const rate = el("button", { onclick: () => onRate(film) }, "Rate it");
    rate.hidden = !model.capabilities.new_users;
    const genres = film.genres.join(", ");
    const near = neighbours(film, films).map(called).join(", ");
    byId("map-film").replaceChildren(
      el("b", {}, called(film)),
      el("span", { class: "note" }, `${genres}${genres ? ". " : ""}Near it: ${near}.`),
      rate,
    );
    byId("map-film").hidden = false;
    announce(`${called(film)}. Near it: ${near}.`);
  };

  canvas.addEventListener("click", ({ offsetX, offsetY }) => {
    const far = (film) => {
      const [x, y] = placeOf(film, canvas.clientWidth, canvas.clientHeight);
      return Math.hypot(x - offsetX, y - offsetY);
    };
    const nearest = (films ?? []).reduce((best, film) => (!best || far(film) < far(best) ? film : best), null);
    if (nearest && far(nearest) < CLICK_RADIUS) mark(nearest);
  });
  const refreshSoon = debounce(refresh, 160);
  store.listen((kind) => kind === "ratings" && refreshSoon());
  addEventListener("resize", () => isVisible && films && draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => isVisible && films && draw());
  return (on) => {
    isVisible = on;
    refresh();
  };
}

/** How much a film suits the visitor more than people in general. */
const ownPart = (film, scale) =>
  scale.starred ? film.prediction - scale.mean(film.baseline) : Math.log(film.interaction_probability / (film.n_item_ratings + 1));

const within = (share) => Math.min(Math.max(share, 0), 1);

function neighbours(film, films) {
  const far = ({ x, y }) => Math.hypot(x - film.x, y - film.y);
  return films.filter((other) => other !== film).sort((a, b) => far(a) - far(b)).slice(0, 3);
}

function glow(pen, [x, y], light, near) {
  const reach = near * (16 + 46 * light);
  const shade = pen.createRadialGradient(x, y, 0, x, y, reach);
  shade.addColorStop(0, `rgb(255 190 92 / ${0.34 * light})`);
  shade.addColorStop(0.5, `rgb(230 120 60 / ${0.12 * light})`);
  shade.addColorStop(1, "rgb(200 80 60 / 0)");
  pen.fillStyle = shade;
  pen.fillRect(x - reach, y - reach, 2 * reach, 2 * reach);
}

/** Label the most rated and brightest films where there is room. */
function label(pen, films, placeOf, [width, height], colour) {
  pen.fillStyle = colour;
  pen.strokeStyle = "#10181fcc";
  pen.lineWidth = 3;
  pen.lineJoin = "round";
  const taken = [];
  const order = films.map((film, at) => [film, (film.light ?? 0) - at / 250]).sort((a, b) => b[1] - a[1]);
  for (const [film] of order) {
    const text = named(film).name;
    const [x, y] = placeOf(film);
    const box = [x + 6, y - 7, x + 8 + pen.measureText(text).width, y + 7];
    const hit = ([l, t, r, b]) => box[0] < r + 6 && box[2] > l - 6 && box[1] < b + 3 && box[3] > t - 3;
    if (box[2] > width || box[1] < 0 || box[3] > height || taken.some(hit)) continue;
    taken.push(box);
    pen.strokeText(text, x + 7, y + 4);
    pen.fillText(text, x + 7, y + 4);
    if (taken.length >= MAX_NAMES) break;
  }
}
