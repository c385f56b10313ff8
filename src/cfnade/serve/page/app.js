// The page's door: ask what model is served, then put the parts together.

import { call } from "./api.js";
import { byId, el, on, plural } from "./dom.js";
import { mountImports } from "./imports.js";
import { mountList } from "./list.js";
import { mountMine } from "./mine.js";
import { makeScale } from "./scale.js";
import { openStore } from "./store.js";

/** Show what went wrong, with a way on; null takes it away. */
function trouble(error, retry) {
  const box = byId("trouble");
  box.hidden = error === null;
  if (error === null) return;
  const again = el("button", { onclick: retry }, "Try again");
  box.replaceChildren(el("p", {}, error.message), again);
}

async function start() {
  let model;
  try {
    model = await call("model");
  } catch (error) {
    trouble(error, start);
    return;
  }
  trouble(null);
  const scale = makeScale(model);
  document.body.classList.toggle("hearts", !model.ratings);
  const store = openStore(model, scale);
  const parts = { model, scale, store };
  const personOf = () => {
    const { ratings, user } = store.state;
    if (!model.new_people) return user === null ? null : { user };
    return scale.person(ratings.slice(0, model.limits.history));
  };
  const { name, items } = model;
  const rated = model.ratings ? `, rated from ${scale.low} to ${scale.high}` : "";
  byId("about").textContent = `The model “${name}” knows ${plural(items, "film")}${rated}.`;
  if (!model.lists) {
    byId("timed").hidden = false;
    byId("list").replaceChildren(byId("timed"));
    return;
  }
  if (model.new_people) {
    mountMine(parts);
    mountImports(parts);
  } else mountKnown(store);
  mountList({ ...parts, personOf, onTrouble: trouble });
}

/** An item-based model knows the people of its training data only: the visitor names one. */
function mountKnown(store) {
  const { user } = store.state;
  const choose = async () => {
    const text = byId("known-id").value.trim();
    // Ids may be numbers or texts that look like them: the model knows which.
    const number = /^-?\d{1,15}$/.test(text) ? Number(text) : text;
    try {
      await call("recommend", { body: { user: number, n: 1 } });
      store.set({ user: number });
    } catch (error) {
      if (error.status === 422 && number !== text) store.set({ user: text });
      else trouble(error, choose);
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
