// What an item is called, and what people do with it: film, book, song … or simply item.

const VERBS = {
  film: ["seen", "watch"],
  movie: ["seen", "watch"],
  show: ["seen", "watch"],
  book: ["read", "read"],
  comic: ["read", "read"],
  song: ["heard", "hear"],
  album: ["heard", "hear"],
  artist: ["heard", "hear"],
  game: ["played", "play"],
  place: ["been to", "visit"],
  restaurant: ["been to", "visit"],
};

const many = (one) =>
  /[^aeiou]y$/.test(one) ? `${one.slice(0, -1)}ies` : /(s|x|ch|sh)$/.test(one) ? `${one}es` : `${one}s`;
const upper = (text) => text[0].toUpperCase() + text.slice(1);

export function wordsOf({ item_name: noun }) {
  const [done, act] = VERBS[noun] ?? ["tried", "try"];
  return {
    one: noun,
    many: many(noun),
    a: /^[aeiou]/.test(noun) ? `an ${noun}` : `a ${noun}`,
    Many: upper(many(noun)),
    done,
    Later: `${upper(act)} later`,
  };
}

/** Put the words where the document has their names: <span data-word="many">. */
export function speak(words) {
  for (const node of document.querySelectorAll("[data-word]"))
    node.textContent = words[node.dataset.word];
}
