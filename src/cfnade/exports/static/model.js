// The forward pass for one person, in typed arrays. src/cfnade/models has the equations.

const ACTIVATIONS = {
  tanh: Math.tanh,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  relu: (x) => Math.max(x, 0),
  softplus: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  elu: (x) => (x > 0 ? x : Math.expm1(x)),
};

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
    this.scale = about.scale;
    this.items = about.items;
    this.source = about.source;
    this.size = about.items.ids.length;
    this.members = about.members.map(({ share, parts }) => ({
      share,
      parts: parts.map((part) => PARTS[part.kind](part, table, this.scale.length)),
    }));
    this.calibration = about.calibration;
    this.expected = table(about.calibration?.expected)?.data;
    this.stranger = table(about.stranger).data;
  }

  // What is said of every item to somebody with these ratings: [[place of item, level], …].
  person(history) {
    const K = this.scale.length;
    const row = (table, item) => table.subarray(item * K, (item + 1) * K);
    // Of whom nothing is known the model says what people in general do, calibrated already.
    const chances = history.length ? this.mixed(history) : this.stranger;
    const expected = new Float64Array(this.size);
    for (let at = 0; at < chances.length; at++) {
      expected[Math.floor(at / K)] += chances[at] * this.scale[at % K];
    }
    if (!history.length) return { expected, chances: (item) => row(chances, item) };
    const leaning = this.leaning(history);
    return { expected, chances: (item) => this.honest(row(chances, item), leaning) };
  }

  // Members' distributions of every item, each by its share.
  mixed(history) {
    const K = this.scale.length;
    const chances = new Float64Array(this.size * K);
    for (const { share, parts } of this.members) {
      const scores = new Float64Array(this.size * K);
      for (const part of parts) part(history, scores);
      for (let item = 0; item < this.size; item++) {
        const own = softmax(scores.subarray(item * K, (item + 1) * K));
        for (let k = 0; k < K; k++) chances[item * K + k] += share * own[k];
      }
    }
    return chances;
  }

  // Which levels the person gives more often than others gave to the same items (personal.py).
  leaning(history) {
    const K = this.scale.length;
    const { personal = 0, everyone, along, imagined } = this.calibration ?? {};
    if (!personal || !history.length) return new Float64Array(K);
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
    return share.map((one, k) => personal * (one / everyone[k] - slope * along[k]));
  }

  // The same mean with an honest spread (calibration.py).
  honest(chances, leaning) {
    if (!this.calibration) return chances.slice();
    const { temperature, log_weights: weights } = this.calibration;
    const scores = chances.map(
      (p, k) => Math.log(p) / temperature + (weights[k] ?? 0) + leaning[k],
    );
    return tilted(scores, this.scale, chances);
  }
}

// -- sides: each adds its scores of all items to those given ------------------------------------

const PARTS = {
  nade(part, table, K) {
    const [W, V, b] = [part.W, part.V, part.b].map(table);
    if (part.shared) [W, V, b].forEach((one) => cumulate(one, K));
    const [B, Q, c] = [part.B, part.Q, part.c].map(table);
    const deep = part.deep.map((layer) => ({ W: table(layer.W), c: table(layer.c).data }));
    const g = ACTIVATIONS[part.activation];
    return (history, scores) => {
      let state = summed(history, W, K);
      if (part.mean !== null) {
        const ratio = Math.sqrt(part.mean / Math.max(history.length, 1));
        state = state.map((x) => x * ratio);
      }
      if (B) state = product(B, state);
      state = state.map((x, d) => g(x + c.data[d]));
      for (const layer of deep) state = product(layer.W, state).map((x, d) => g(x + layer.c[d]));
      addScores(scores, V, b.data, Q ? product(Q, state) : state);
    };
  },

  ridge(part, table, K) {
    const [u, e, q, W, V, b] = [part.u, part.e, part.q, part.W, part.V, part.b].map(table);
    [W, V, b].forEach((one) => cumulate(one, K));
    const [prior, importance] = [part.prior, part.importance].map((one) => table(one).data);
    const [, D] = u.shape;
    for (let cell = 0; cell < e.data.length; cell++) {
      const item = Math.floor(cell / K);
      for (let d = 0; d < D; d++) W.data[cell * D + d] += u.data[item * D + d] * e.data[cell];
    }
    const whole = importance.reduce((sum, x) => sum + x, 0);
    return (history, scores) => {
      const precision = Array.from({ length: D }, (_, i) => {
        const row = new Float64Array(D);
        row[i] = prior[i];
        return row;
      });
      for (const [item] of history) {
        const own = u.data.subarray(item * D, (item + 1) * D);
        for (let i = 0; i < D; i++) {
          precision[i][i] += q.data[item * D + i];
          for (let j = 0; j < D; j++) precision[i][j] += own[i] * own[j];
        }
      }
      const covariance = inverse(precision);
      const evidence = summed(history, W, K);
      const mean = covariance.map((row) => row.reduce((sum, x, j) => sum + x * evidence[j], 0));
      const unknown = importance.reduce((sum, x, i) => sum + x * covariance[i][i], 0) / whole;
      const gain = part.spread / (part.noise + (part.spread - part.noise) * unknown);
      addScores(scores, V, b.data, Float64Array.from([...mean.map((x) => gain * x), unknown]));
    };
  },
};

function summed(history, table, K) {
  const D = table.shape[2];
  const sum = new Float64Array(D);
  for (const [item, level] of history) {
    const start = (item * K + level) * D;
    for (let d = 0; d < D; d++) sum[d] += table.data[start + d];
  }
  return sum;
}

function addScores(scores, table, bias, state) {
  const D = table.shape[2];
  for (let cell = 0; cell < scores.length; cell++) {
    let score = bias[cell];
    for (let d = 0, at = cell * D; d < D; d++, at++) score += table.data[at] * state[d];
    scores[cell] += score;
  }
}

function product(matrix, vector) {
  const [rows, columns] = matrix.shape;
  const out = new Float64Array(rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) out[i] += matrix.data[i * columns + j] * vector[j];
  }
  return out;
}

// -- numbers ------------------------------------------------------------------------------------

// Numbers as they are, or whole ones that a scale of each item stretches.
function tableOf({ at, shape, scales }, weights) {
  const size = shape.reduce((all, one) => all * one, 1);
  if (!scales) return { shape, data: new Float32Array(weights, at, size).slice() };
  const steps = new Int16Array(weights, at, size);
  const scale = new Float32Array(weights, scales.at, shape[0]);
  const block = size / shape[0];
  return { shape, data: Float32Array.from(steps, (step, i) => step * scale[Math.floor(i / block)]) };
}

// A level also counts what those below it say: sums over levels, in place.
function cumulate(table, K) {
  const D = table.shape[2] ?? 1;
  const block = K * D;
  for (let at = 0; at < table.data.length; at++) {
    if (at % block >= D) table.data[at] += table.data[at - D];
  }
}

function softmax(scores) {
  const top = Math.max(...scores);
  const out = Float64Array.from(scores, (x) => Math.exp(x - top));
  const sum = out.reduce((all, x) => all + x, 0);
  return out.map((x) => x / sum);
}

// Of a positive definite matrix, by Gauss and Jordan.
function inverse(matrix) {
  const D = matrix.length;
  const rows = matrix.map((row, i) => Float64Array.from({ length: 2 * D }, (_, j) =>
    j < D ? row[j] : Number(j - D === i)));
  for (let k = 0; k < D; k++) {
    const pivot = rows[k][k];
    for (let j = 0; j < 2 * D; j++) rows[k][j] /= pivot;
    for (let i = 0; i < D; i++) {
      const factor = rows[i][k];
      if (i === k || factor === 0) continue;
      for (let j = 0; j < 2 * D; j++) rows[i][j] -= factor * rows[k][j];
    }
  }
  return rows.map((row) => row.subarray(D));
}

// softmax(scores + θ·values) with the mean that `like` has; θ lies between two bounds that close in.
function tilted(scores, values, like) {
  const span = values[values.length - 1] - values[0];
  const unit = values.map((value) => (value - values[0]) / span);
  const mean = (p) => p.reduce((sum, x, k) => sum + x * unit[k], 0);
  const goal = mean(like);
  const at = (theta) => softmax(scores.map((x, k) => x + theta * unit[k]));
  let [low, high] = [-1, 1];
  while (mean(at(low)) > goal && low > -1e6) low *= 2;
  while (mean(at(high)) < goal && high < 1e6) high *= 2;
  for (let round = 0; round < 60; round++) {
    const middle = (low + high) / 2;
    if (mean(at(middle)) > goal) high = middle;
    else low = middle;
  }
  return at((low + high) / 2);
}
