// What to ask next: the item whose rating is expected to tell most (src/cfnade/inference/active_learning.py).

/** The place to ask about, and the share of a person that is still unknown; null where no side says.
    counts say how likely an answer is, asked which places are not to be asked about. */
export function nextQuestion(model, history, asked, people) {
  const { counts } = model.about.items;
  const order = model.everything.filter((place) => !asked.has(place)).sort((a, b) => counts[b] - counts[a]);
  const sides = model.members.flatMap(({ parts }) => parts);
  const known = sides.find(({ uncertainty }) => uncertainty)?.uncertainty;
  if (!known || !order.length) return { place: order[0], unknown: null };
  const whole = known.left(known.begun());
  const precision = known.begun();
  for (const [place] of history) known.tell(precision, place);
  const unknown = known.left(precision);
  let [best, chosen] = [-1, order[0]];
  for (const place of order) {
    const chance = counts[place] / people;
    if (chance * unknown <= best) break; // an answer cannot tell more than there is
    const after = precision.map((row) => row.slice());
    known.tell(after, place);
    const told = chance * (unknown - known.left(after));
    if (told > best) [best, chosen] = [told, place];
  }
  return { place: chosen, unknown: unknown / whole };
}
