// Item-based models know the people of their training data only: the visitor names one.

import { call } from "./api.js";
import { byId, on } from "./dom.js";

export function mountKnown({ store, onTrouble }) {
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
      else onTrouble(error, choose);
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
