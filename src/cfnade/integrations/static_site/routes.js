// The questions of the page, answered as the service does it (src/cfnade/server/routers/inference.py).

import { nextQuestion } from "./active_learning.js";
import { called, named } from "./format.js";
import { mean } from "./model.js";

const TAIL = 0.1; // what may lie beyond either end of an interval
const DATED = 0.8; // the share of titles with a year from which items are films
const LIMITS = { ratings: 5000, n: 500, items: 1000 };

const fold = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
const plain = (text) => fold(text).replace(/[^\p{L}\p{N}]+/gu, " ").trim();

export class Answers {
  constructor(model) {
    this.of = model;
    const { ids, titles, genres } = model.about.items;
    this.films = ids.map((item, place) => ({ item, title: titles?.[place] || null }));
    this.genres = ids.map((_, place) => (genres?.of[place] ?? []).map((at) => genres.names[at]));
    this.names = this.films.map(named);
    this.texts = this.films.map((film) => fold(`${called(film)} ${film.title ?? ""}`));
    this.places = new Map(ids.map((id, place) => [id, place]));
    this.decades = this.names.map(({ year }) => Math.floor(Number(year) / 10) * 10);
  }

  model() {
    const { about, size } = this.of;
    const years = [...new Set(this.decades)].filter(Boolean).sort((a, b) => b - a);
    const dated = this.decades.filter(Boolean).length >= DATED * size;
    return {
      name: about.source,
      side: "user",
      is_local: true,
      capabilities: { ratings: true, interactions: false, new_users: true, recommendations: true },
      scale: about.scale,
      n_items: size,
      limits: LIMITS,
      genres: about.items.genres?.names ?? [],
      decades: years.map((decade) => ({ decade })),
      item_name: about.item_name ?? (dated ? "film" : "item"),
      sample_profiles: about.sample_profiles,
    };
  }

  recommendations({ ratings, n = 20, personalization: own = 1, exclude_seen: unseen = true, min_ratings: least, ...wish }) {
    const { counts, least: usual } = this.of.about.items;
    const history = this.historyOf(ratings);
    const seen = new Set(history.map(([place]) => place));
    const enough = (place) => counts[place] >= (least ?? usual);
    const all = this.wished(wish).filter((place) => !(unseen && seen.has(place)));
    const places = all.filter(enough);
    const said = this.said(history, places);
    const score = ({ place, prediction }) => {
      const average = mean(this.usualOf(place), this.of.scale);
      return average + own * (prediction - average);
    };
    const scored = said.map((one) => ({ ...one, score: score(one) }));
    const best = scored.sort((a, b) => b.score - a.score || a.place - b.place).slice(0, n);
    return {
      items: best.map((one, at) => this.listed(one, at + 1)),
      n_hidden_items: all.length - places.length,
      min_ratings: least ?? usual,
    };
  }

  explanations({ ratings, item }) {
    const place = this.places.get(item);
    const history = this.historyOf(ratings).filter(([other]) => other !== place);
    const [whole] = this.said(history, [place]);
    const contributions = history.map(([other, level]) => {
      const [{ prediction: without }] = this.said(history.filter(([one]) => one !== other), [place]);
      const film = this.films[other];
      return { ...film, rating: this.of.scale[level], prediction_without: without, difference: whole.prediction - without };
    });
    contributions.sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference));
    return { ...this.films[place], prediction: this.described(whole), interaction_probability: null, contributions };
  }

  similar(item, { n = 20 }) {
    const [part] = this.of.members[0].parts;
    const place = this.places.get(item);
    const own = part.vector(place);
    const others = this.of.everything.filter((other) => other !== place);
    const alike = others.map((other) => ({ other, similarity: cosine(own, part.vector(other)) }));
    const best = alike.sort((a, b) => b.similarity - a.similarity || a.other - b.other).slice(0, Number(n));
    return { metric: "cosine", items: best.map(({ other, ...one }, at) => ({ ...this.films[other], ...one, rank: at + 1 })) };
  }

  items({ q, limit }) {
    const { counts } = this.of.about.items;
    const words = fold(q).split(/\s+/).filter(Boolean);
    const first = (place) => Number(!this.texts[place].startsWith(words[0] ?? ""));
    const found = this.of.everything
      .filter((place) => words.every((word) => this.texts[place].includes(word)))
      .sort((a, b) => first(a) - first(b) || counts[b] - counts[a])
      .slice(0, Number(limit));
    return { items: found.map((place) => ({ ...this.films[place], n_item_ratings: counts[place] })) };
  }

  /** Films of a list from elsewhere; null rather than a wrong one. */
  match({ items }) {
    const byName = new Map(); // places
    this.names.forEach(({ name, also }, place) => {
      for (const one of new Set([name, also.replace(/^\(|\)$/g, "")].map(plain).filter(Boolean)))
        byName.set(one, [...(byName.get(one) ?? []), place]);
    });
    const found = items.map(({ title, year }) => {
      const same = byName.get(plain(named({ title }).name)) ?? [];
      const fit = year ? same.filter((place) => Number(this.names[place].year || year) === year) : same;
      return fit.length === 1 ? this.films[fit[0]] : null;
    });
    return { matches: found };
  }

  itemsToRate({ ratings, exclude_items: without = [] }) {
    const history = this.historyOf(ratings);
    const asked = new Set([...history.map(([place]) => place), ...without.map((item) => this.places.get(item))]);
    const { place, unknown: uncertainty } = nextQuestion(this.of, history, asked, this.of.about.people);
    return { items: place === undefined ? [] : [this.films[place]], uncertainty };
  }

  itemMap() {
    const spot = ([place, x, y]) => ({ ...this.films[place], x, y, genres: this.genres[place] });
    return { items: this.of.about.map.map(spot) };
  }

  /** The id that a part of an address is: a number, where ids are. */
  idOf(text) {
    return this.places.has(text) ? text : Number(text);
  }

  // -- parts ------------------------------------------------------------------------------------

  historyOf(ratings) {
    const known = ratings.filter(({ item }) => this.places.has(item));
    return known.map(({ item, rating }) => [this.places.get(item), this.of.scale.indexOf(rating)]);
  }

  /** The places that the wishes leave. */
  wished({ candidate_items: items, exclude_items: without = [], genres, decades }) {
    const away = new Set(without.map((item) => this.places.get(item)));
    const only = items && new Set(items.map((item) => this.places.get(item)));
    return this.of.everything.filter(
      (place) =>
        !away.has(place) &&
        (!only || only.has(place)) &&
        (!genres || this.genres[place].some((genre) => genres.includes(genre))) &&
        (!decades || decades.includes(this.decades[place])),
    );
  }

  /** What is said of each place; a rating is never predicted from itself. */
  said(history, places) {
    const rated = new Set(history.map(([place]) => place));
    const { expected, chances } = this.of.person(history, places);
    return places.map((place, at) => {
      if (!rated.has(place)) return { place, prediction: expected[at], chances: () => chances(at) };
      const others = this.of.person(history.filter(([one]) => one !== place), [place]);
      return { place, prediction: others.expected[0], chances: () => others.chances(0) };
    });
  }

  usualOf(place) {
    const K = this.of.scale.length;
    return this.of.usual.subarray(place * K, (place + 1) * K);
  }

  described({ place, prediction, chances }) {
    const { scale, about } = this.of;
    const probabilities = [...chances()];
    const spread = probabilities.reduce((sum, p, k) => sum + p * (scale[k] - prediction) ** 2, 0);
    return {
      ...this.films[place],
      prediction,
      std: Math.sqrt(spread),
      interval: [quantile(probabilities, scale, TAIL), quantile(probabilities, scale, 1 - TAIL)],
      probabilities,
      baseline: [...this.usualOf(place)],
      n_item_ratings: about.items.counts[place],
    };
  }

  listed({ score, ...said }, rank) {
    return { ...this.described(said), rank, score, interaction_probability: null, genres: this.genres[said.place] };
  }
}

function quantile(chances, values, share) {
  let reached = 0;
  const at = chances.findIndex((p) => (reached += p) >= share - 1e-12);
  return values[at < 0 ? values.length - 1 : at];
}

function cosine(one, other) {
  const dot = (a, b) => a.reduce((sum, x, d) => sum + x * b[d], 0);
  return dot(one, other) / Math.max(Math.sqrt(dot(one, one) * dot(other, other)), 1e-12);
}
