// Entry point: load the description of the model, then mount the parts of the page.

import { call } from "./api.js";
import { byId, el, on, plural } from "./dom.js";
import { makeScale, fillWords, itemWords } from "./format.js";
import { mountImports, mountShare } from "./import_export.js";
import { mountItemMap } from "./item_map.js";
import { mountOnboarding } from "./onboarding.js";
import { mountRatings, mountSignIn } from "./ratings_panel.js";
import { mountRecommendations } from "./recommendations.js";
import { openState } from "./state.js";

/** Show an error with a button to try again; null hides it. */
function showError(error, retry) {
  const box = byId("error");
  box.hidden = error === null;
  if (error === null) return;
  const retryButton = el("button", { onclick: retry }, "Try again");
  box.replaceChildren(el("p", {}, error.message), retryButton);
}

async function start() {
  let model;
  try {
    model = await call("model");
  } catch (error) {
    showError(error, start);
    return;
  }
  showError(null);
  const scale = makeScale(model);
  const words = itemWords(model);
  fillWords(words);
  document.body.classList.toggle("hearts", !model.capabilities.ratings);
  document.body.classList.toggle("local", Boolean(model.is_local)); // answered in the browser itself
  const store = openState(model, scale);
  const personOf = () => {
    const { ratings, user } = store.state;
    if (!model.capabilities.new_users) return user === null ? null : { user_id: user };
    return scale.person(ratings.slice(0, model.limits.ratings));
  };
  const parts = { model, scale, store, words, personOf, onTrouble: showError };
  const { name, n_items: items } = model;
  const rated = model.capabilities.ratings ? `, rated from ${scale.low} to ${scale.high}` : "";
  byId("about").textContent = `The model “${name}” knows ${plural(items, words.one, words.many)}${rated}.`;
  if (!model.capabilities.recommendations) {
    byId("timed").hidden = false;
    byId("list").replaceChildren(byId("timed"));
    byId("views").hidden = true;
    return;
  }
  let startRating = () => {};
  if (model.capabilities.new_users) {
    await mountShare(parts);
    startRating = mountRatings(parts);
    mountImports(parts);
    mountOnboarding(parts);
    mountSignIn(parts);
  } else mountKnown(store);
  mountViews({ ...parts, begin: startRating });
}

/** Mount the list, the saved items and the map. */
function mountViews({ store, begin: startRating, ...parts }) {
  const showList = mountRecommendations({ store, ...parts });
  const showView = (view) => {
    for (const node of byId("views").children)
      node.setAttribute("aria-pressed", String(node.dataset.view === view));
    byId("list").hidden = view === "map";
    byId("map").hidden = view !== "map";
    showMap(view === "map");
    if (view !== "map") showList(view);
  };
  const onRate = (film) => {
    showView("list");
    startRating(film);
  };
  const showMap = mountItemMap({ store, ...parts, onRate });
  for (const node of byId("views").children)
    node.addEventListener("click", () => showView(node.dataset.view));
  const count = () => (byId("later-count").textContent = store.state.later.length || "");
  store.listen(count);
  count();
}

/** For an item-based model, which knows users of its training data only, ask for a user id. */
function mountKnown(store) {
  const { user } = store.state;
  const choose = async () => {
    const text = byId("known-id").value.trim();
    // An id may be a number, or a text that looks like one.
    const number = /^-?\d{1,15}$/.test(text) ? Number(text) : text;
    try {
      await call("recommendations", { body: { user_id: number, n: 1 } });
      store.set({ user: number });
    } catch (error) {
      if (error.status === 422 && number !== text) store.set({ user: text });
      else showError(error, choose);
    }
  };
  byId("known-id").value = user === null ? "" : String(user);
  on("known-form", "submit", (event) => {
    event.preventDefault();
    choose();
  });
  byId("known").hidden = false;
  byId("list-title").textContent = "For this user";
  document.querySelector("h1").textContent = "What would they think of it?";
}

start();
