// The forward pass for one person, in typed arrays.

import { PARTS } from "./components.js";

export async function loadModel(base = ".") {
  const [about, weights] = await Promise.all([
    fetched(`${base}/model.json`).then((answer) => answer.json()),
    fetched(`${base}/weights.bin`).then((answer) => answer.arrayBuffer()),
  ]);
  return new Model(about, weights);
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer;
}

export class Model {
  constructor(about, weights) {
    const table = (where) => (where ? tableOf(where, weights) : null);
    this.about = about;
    this.scale = about.scale;
    this.size = about.items.ids.length;
    this.everything = [...Array(this.size).keys()];
    this.members = about.members.map(({ share, parts }) => ({
      share,
      parts: parts.map((part) => PARTS[part.kind](part, table, this.scale.length)),
    }));
    this.calibration = about.calibration;
    this.expected = table(about.calibration?.expected)?.data;
    this.usual = table(about.usual).data;
    this.stranger = table(about.stranger).data;
  }

  // What is said of items, by place, to somebody with these ratings: [[place of item, level], …].
  person(history, places = this.everything) {
    const K = this.scale.length;
    // Of whom nothing is known the model says what people in general do, calibrated already.
    const known = history.length > 0;
    const said = known ? this.mixed(history, places) : rowsOf(this.stranger, places, K);
    const expected = Float64Array.from(places, (_, at) => mean(rowOf(said, at, K), this.scale));
    const leaning = known && this.leaning(history);
    const chances = (at) => (known ? this.honest(rowOf(said, at, K), leaning) : rowOf(said, at, K));
    return { expected, chances };
  }

  // Members' distributions, each by its share.
  mixed(history, places) {
    const K = this.scale.length;
    const chances = new Float64Array(places.length * K);
    for (const { share, parts } of this.members) {
      const scores = new Float64Array(chances.length);
      for (const part of parts) addScores(scores, part, part.state(history), places, K);
      for (let at = 0; at < chances.length; at += K) {
        softmax(scores.subarray(at, at + K)).forEach((p, k) => (chances[at + k] += share * p));
      }
    }
    return chances;
  }

  // Which levels the person gives more often than others gave to the same items (calibration/per_user.py).
  leaning(history) {
    const K = this.scale.length;
    const { user_weight: userWeight = 0, everyone, along, imagined } = this.calibration ?? {};
    if (!userWeight || !history.length) return new Float64Array(K);
    const share = new Float64Array(K);
    for (const [item, level] of history) {
      share[level] += 1;
      for (let k = 0; k < K; k++) share[k] -= this.expected[item * K + k];
    }
    let slope = 0;
    for (let k = 0; k < K; k++) {
      share[k] /= history.length + imagined;
      slope += share[k] * this.scale[k];
    }
    return share.map((one, k) => userWeight * (one / everyone[k] - slope * along[k]));
  }

  // The same mean with an honest spread (calibration/calibration.py).
  honest(chances, leaning) {
    if (!this.calibration) return chances.slice();
    const { temperature, log_weights: weights } = this.calibration;
    const scores = chances.map(
      (p, k) => Math.log(p) / temperature + (weights[k] ?? 0) + leaning[k],
    );
    return tilted(scores, this.scale, chances);
  }
}

export const mean = (chances, values) => chances.reduce((sum, p, k) => sum + p * values[k], 0);

const rowOf = (table, at, K) => table.subarray(at * K, (at + 1) * K);

const rowsOf = (table, places, K) =>
  Float64Array.from({ length: places.length * K }, (_, at) => table[places[Math.floor(at / K)] * K + (at % K)]);

function addScores(scores, { V, b }, state, places, K) {
  const D = state.length;
  for (let at = 0; at < scores.length; at++) {
    const cell = places[Math.floor(at / K)] * K + (at % K);
    let score = b.data[cell];
    for (let d = 0, from = cell * D; d < D; d++, from++) score += V.data[from] * state[d];
    scores[at] += score;
  }
}

// Numbers as they are, or whole ones that a scale of each item stretches.
function tableOf({ at, shape, bits, scales }, weights) {
  const size = shape.reduce((all, one) => all * one, 1);
  if (!bits) return { shape, data: new Float32Array(weights, at, size).slice() };
  const steps = bits === 16 ? new Int16Array(weights, at, size) : unpacked(weights, at, size);
  const scale = new Float32Array(weights, scales.at, shape[0]);
  const block = size / shape[0];
  return { shape, data: Float32Array.from(steps, (step, i) => step * scale[Math.floor(i / block)]) };
}

// Two numbers in three bytes, the lower first, each 2048 above what it is.
function unpacked(weights, at, size) {
  const bytes = new Uint8Array(weights, at, 3 * Math.ceil(size / 2));
  return Int16Array.from({ length: size }, (_, i) => {
    const from = 3 * (i >> 1);
    const both = bytes[from] | (bytes[from + 1] << 8) | (bytes[from + 2] << 16);
    return (i % 2 ? both >> 12 : both & 4095) - 2048;
  });
}

function softmax(scores) {
  const top = Math.max(...scores);
  const out = Float64Array.from(scores, (x) => Math.exp(x - top));
  const sum = out.reduce((all, x) => all + x, 0);
  return out.map((x) => x / sum);
}

// softmax(scores + θ·values) with the mean that `like` has; θ lies between two bounds that close in.
function tilted(scores, values, like) {
  const span = values[values.length - 1] - values[0];
  const unit = values.map((value) => (value - values[0]) / span);
  const goal = mean(like, unit);
  const at = (theta) => softmax(scores.map((x, k) => x + theta * unit[k]));
  let [low, high] = [-1, 1];
  while (mean(at(low), unit) > goal && low > -1e6) low *= 2;
  while (mean(at(high), unit) < goal && high < 1e6) high *= 2;
  for (let round = 0; round < 60; round++) {
    const middle = (low + high) / 2;
    if (mean(at(middle), unit) > goal) high = middle;
    else low = middle;
  }
  return at((low + high) / 2);
}
