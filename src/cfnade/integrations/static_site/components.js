// The sides of a model: each makes a state of a person, which weights of every item meet.
// src/cfnade/models has the equations.

const ACTIVATIONS = {
  tanh: Math.tanh,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  relu: (x) => Math.max(x, 0),
};

export const PARTS = {
  nade(part, table, K) {
    const [W, V, b] = [part.W, part.V, part.b].map(table);
    if (part.shared) [W, V, b].forEach((one) => cumulate(one, K));
    const [B, Q, c] = [part.B, part.Q, part.c].map(table);
    const deep = part.deep.map((layer) => ({ W: table(layer.W), c: table(layer.c).data }));
    const g = ACTIVATIONS[part.activation];
    const state = (history) => {
      let sum = summed(history, W, K);
      if (part.mean !== null) {
        const ratio = Math.sqrt(part.mean / Math.max(history.length, 1));
        sum = sum.map((x) => x * ratio);
      }
      if (B) sum = product(B, sum);
      let hidden = sum.map((x, d) => g(x + c.data[d]));
      for (const layer of deep) hidden = product(layer.W, hidden).map((x, d) => g(x + layer.c[d]));
      return Q ? product(Q, hidden) : hidden;
    };
    return { V, b, state, vector: vectorsOf(V, part.shared) };
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
    // What is known of somebody who rated nothing, and what a rating of an item adds to it.
    const begun = () => Array.from(prior, (x, i) => Float64Array.from(prior, (_, j) => (i === j ? x : 0)));
    const tell = (precision, item) => {
      const own = u.data.subarray(item * D, (item + 1) * D);
      for (let i = 0; i < D; i++) {
        precision[i][i] += q.data[item * D + i];
        for (let j = 0; j < D; j++) precision[i][j] += own[i] * own[j];
      }
    };
    const unknownOf = (covariance) => importance.reduce((sum, x, i) => sum + x * covariance[i][i], 0) / whole;
    const state = (history) => {
      const precision = begun();
      for (const [item] of history) tell(precision, item);
      const covariance = inverse(precision);
      const evidence = summed(history, W, K);
      const means = covariance.map((row) => row.reduce((sum, x, j) => sum + x * evidence[j], 0));
      const unknown = unknownOf(covariance);
      const gain = part.spread / (part.noise + (part.spread - part.noise) * unknown);
      return Float64Array.from([...means.map((x) => gain * x), unknown]);
    };
    const left = (precision) => unknownOf(inverse(precision));
    return { V, b, state, vector: vectorsOf(V, true), uncertainty: { begun, tell, left } };
  },
};

/** What tells an item from others: the weights of its levels as they were learnt, one by one. */
function vectorsOf({ data, shape: [, K, D] }, shared) {
  return (place) => {
    const block = data.subarray(place * K * D, (place + 1) * K * D);
    return shared ? block.map((x, at) => (at < D ? x : x - block[at - D])) : block;
  };
}

function summed(history, table, K) {
  const D = table.shape[2];
  const sum = new Float64Array(D);
  for (const [item, level] of history) {
    const start = (item * K + level) * D;
    for (let d = 0; d < D; d++) sum[d] += table.data[start + d];
  }
  return sum;
}

function product(matrix, vector) {
  const [rows, columns] = matrix.shape;
  const out = new Float64Array(rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) out[i] += matrix.data[i * columns + j] * vector[j];
  }
  return out;
}

// A level also counts what those below it say: sums over levels, in place.
function cumulate(table, K) {
  const D = table.shape[2] ?? 1;
  const block = K * D;
  for (let at = 0; at < table.data.length; at++) {
    if (at % block >= D) table.data[at] += table.data[at - D];
  }
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
