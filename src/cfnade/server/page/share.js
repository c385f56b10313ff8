// Ratings in a link: behind the #, which browsers keep to themselves.

import { call } from "./api.js";
import { announce, byId, el, on, plural } from "./dom.js";

const MOST = 200; // ratings in one link
const PREFIX = "#mine=";

const pack = (value) => {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
};

function unpack(text) {
  const bytes = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (sign) => sign.charCodeAt(0))));
}

/** The address of this page with these ratings in it. */
function linkTo(ratings, model) {
  const kept = ratings.slice(0, MOST).map(({ item, rating }) => [item, rating]);
  const { origin, pathname } = location;
  return origin + pathname + PREFIX + pack({ of: model.n_items, films: kept });
}

export function mountShare({ model, scale, store }) {
  on("share", "click", async () => {
    const { ratings } = store.state;
    const link = linkTo(ratings, model);
    const field = byId("share-link");
    field.value = link;
    byId("share-note").textContent =
      `Whoever opens it sees your ${plural(Math.min(ratings.length, MOST), scale.noun)}. It is in no ` +
      "log: browsers do not send what follows the #.";
    byId("shared").hidden = false;
    field.focus();
    field.select();
    await navigator.clipboard?.writeText(link).then(
      () => announce("Link copied."),
      () => announce("Link ready to be copied."),
    );
  });
  on("share-close", "click", () => {
    byId("shared").hidden = true;
    byId("share").focus();
  });
  const open = () => openLink({ model, scale, store });
  addEventListener("hashchange", open); // a link opened where the page is open already
  return open();
}

/** Take over the ratings of the address, or ask first where there are others. */
async function openLink({ model, scale, store }) {
  if (!location.hash.startsWith(PREFIX)) return;
  const box = byId("report");
  let told = null;
  try {
    told = unpack(location.hash.slice(PREFIX.length));
  } catch {
    // cut off on its way: said below
  }
  history.replaceState(null, "", location.pathname); // a reload must not undo what follows
  const given = (Array.isArray(told?.films) ? told.films : [])
    .filter((one) => Array.isArray(one) && scale.has(one[1]))
    .slice(0, MOST);
  const ratings = given.length && told.of === model.n_items ? await titled(given, scale) : [];
  const say = (text, ...buttons) => {
    box.hidden = false;
    box.replaceChildren(el("p", {}, text), el("span", { class: "tools" }, ...buttons));
  };
  const close = (label) => el("button", { onclick: () => (box.hidden = true) }, label);
  if (!ratings.length) {
    say(`This link holds no ${scale.noun}s that fit this catalogue.`, close("Close"));
    return;
  }
  const take = () => {
    store.replace(ratings);
    say(`${plural(ratings.length, scale.noun)} from a link. Undo brings yours back.`, close("Close"));
  };
  if (store.state.sample === null && store.state.ratings.length)
    say(
      `This link holds ${plural(ratings.length, scale.noun)}. Yours would be put aside.`,
      el("button", { onclick: take }, "Show them"),
      close("Keep mine"),
    );
  else take();
}

async function titled(given, scale) {
  const items = given.map(([item]) => item);
  const all = { candidate_items: items, n: items.length, exclude_seen: false, min_ratings: 0 };
  try {
    const said = await call("recommendations", { body: { ...scale.person([]), ...all } });
    const titles = new Map(said.items.map((film) => [film.item, film.title]));
    return given
      .filter(([item]) => titles.has(item))
      .map(([item, rating]) => ({ item, title: titles.get(item), rating }));
  } catch {
    return [];
  }
}
