// Signing in by a name: the service keeps the ratings then, and they are there on any device. A name
// is no password: this is for trying a store out where everybody may do all.

import { call } from "./api.js";
import { announce, byId, on, plural } from "./dom.js";

const NAME = "cfnade-name";
const pathOf = (name, item) => `people/${encodeURIComponent(name)}${item === undefined ? "" : `/ratings/${encodeURIComponent(item)}`}`;

export function mountSignIn({ model, scale, store, onTrouble }) {
  if (!model.people) return;
  let name = null;
  let sent = new Map(); // item → rating: what the service has
  let turn = Promise.resolve(); // one request after another, in the order of what was done

  const now = () => new Map(store.state.ratings.map(({ item, rating }) => [item, rating]));
  const send = () => {
    if (name === null) return;
    const mine = now();
    for (const [item, rating] of mine)
      if (sent.get(item) !== rating) push(item, { method: "PUT", body: scale.starred ? { rating } : {} });
    for (const item of sent.keys()) if (!mine.has(item)) push(item, { method: "DELETE" });
    sent = mine;
  };
  const push = (item, how) => {
    const whose = name;
    turn = turn
      .then(() => call(pathOf(whose, item), how))
      .catch((error) => {
        sent.delete(item); // sent again with the next change
        onTrouble(error, () => (onTrouble(null), send()));
      });
  };
  const show = () => {
    byId("sign-in").hidden = name !== null;
    byId("signed-in").hidden = name === null;
    byId("signed-name").textContent = name ?? "";
  };
  const remember = () => {
    try {
      if (name === null) sessionStorage.removeItem(NAME);
      else sessionStorage.setItem(NAME, name);
    } catch {
      // asked for again after a reload
    }
  };
  const signIn = async (wished) => {
    try {
      const { ratings } = await call(pathOf(wished));
      name = wished;
      const kept = ratings.map(({ item, title, rating }) => ({ item, title, rating: rating ?? scale.high }));
      sent = new Map(kept.map(({ item, rating }) => [item, rating]));
      if (kept.length) store.replace(kept.reverse());
      send(); // somebody new brings what was rated here
      announce(`Signed in as ${name}. ${plural(kept.length, scale.noun)} kept.`);
    } catch (error) {
      onTrouble(error, () => (onTrouble(null), signIn(wished)));
    }
    remember();
    show();
  };

  on("sign-in", "submit", (event) => {
    event.preventDefault();
    const wished = byId("sign-name").value.trim();
    if (wished && !wished.includes("/")) signIn(wished);
  });
  on("sign-out", "click", () => {
    name = null;
    remember();
    store.replace([]);
    announce("Signed out. The service keeps what you rated.");
    show();
  });
  store.listen((kind) => kind === "ratings" && send());
  show();
  byId("people").hidden = false;
  let before = null;
  try {
    before = sessionStorage.getItem(NAME);
  } catch {
    // nobody is remembered
  }
  if (before) signIn(before);
}
