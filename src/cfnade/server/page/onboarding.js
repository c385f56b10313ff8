// The first ten questions: each asks for the rating that is expected to tell most.

import { call } from "./api.js";
import { announce, byId, el, latestOnly, on } from "./dom.js";
import { called, named } from "./format.js";
import { ratingInput } from "./rating_input.js";

const QUESTIONS = 10;
const EXTRA_QUESTIONS = 5; // when asked for more
const ADVANCE_DELAY = 450; // milliseconds in which a rating by pointer can be seen before the next question

export function mountOnboarding({ model, scale, store, words }) {
  const box = byId("ask");
  const request = latestOnly();
  let film = null;
  let goal = QUESTIONS;

  const isActive = () => store.state.asking && store.state.ratings.length < goal;
  const close = () => {
    request.abort();
    film = null;
    box.hidden = true;
    byId("ask-again").hidden = store.state.sample !== null;
  };
  /** Ask the next question; with focus, the keyboard stays in it. */
  const next = async (focus = false) => {
    const signal = request.next();
    const { ratings, unseen, later, away } = store.state;
    const excluded = [...unseen, ...[...later, ...away].map(({ item }) => item)];
    const person = scale.person(ratings.slice(0, model.limits.ratings));
    const body = { ...person, n: 1, exclude_items: excluded.slice(-model.limits.items) };
    try {
      const { items, uncertainty } = await call("items-to-rate", { body, signal });
      if (!items.length) return close();
      [film] = items;
      show(uncertainty, focus);
    } catch (error) {
      if (error.name !== "AbortError") close(); // the list tells of the trouble
    }
  };
  const advance = (focus) => {
    if (isActive()) next(focus);
    else {
      close();
      if (focus) byId("list").focus();
      announce("Enough to begin with. The list is yours.");
    }
  };
  const show = (unknown, focus) => {
    const { name, year } = named(film);
    const input = scale.starred ? starsFor(film) : heartFor(film);
    const skip = el("button", { class: "link" }, `Not ${words.done}`);
    skip.onclick = () => {
      store.note({ unseen: [...store.state.unseen, film.item] });
      next(true);
    };
    const count = store.state.ratings.length + 1;
    const progress = unknown === null ? "" : ` · ${Math.round(100 * (1 - unknown))} % known`;
    byId("ask-count").textContent = `Question ${count} of ${goal}${progress}`;
    byId("ask-film").replaceChildren(name, " ", el("span", { class: "year" }, year));
    const on = el("button", { class: "link", onclick: () => advance(true) }, "Next");
    on.hidden = !input.matches(".slide"); // stars lead on by themselves
    byId("ask-how").replaceChildren(input, on, skip);
    byId("ask-meter").style.setProperty("--size", String(unknown === null ? count / goal : 1 - unknown));
    box.hidden = false;
    box.classList.add("still"); // a pointer that rests where the last answer was means nothing yet
    byId("ask-again").hidden = true;
    if (focus) input.focusIn();
  };
  const starsFor = (question) => {
    const label = `Your rating of ${called(question)}`;
    const input = ratingInput(scale, label, store.ratingOf(question.item), (rating) => store.rate(question, rating));
    // A click is a rating and leads on; arrow keys try stars, and Enter leads on.
    input.addEventListener("click", ({ detail, target }) => {
      if (detail && target.matches("input")) setTimeout(() => film === question && advance(false), ADVANCE_DELAY);
    });
    input.addEventListener("keydown", ({ key }) => {
      if (key === "Enter" && store.ratingOf(question.item) !== null) setTimeout(() => advance(true));
    });
    return input;
  };
  const heartFor = (question) => {
    const node = el("button", {}, "I like it");
    node.onclick = () => {
      store.rate(question, scale.high);
      advance(true);
    };
    node.focusIn = () => node.focus();
    return node;
  };

  box.addEventListener("pointermove", () => box.classList.remove("still"));
  on("ask-stop", "click", () => {
    store.note({ asking: false });
    close();
    byId("search").focus();
  });
  on("ask-again", "click", () => {
    store.note({ asking: true });
    goal = Math.max(goal, store.state.ratings.length + EXTRA_QUESTIONS);
    next(true);
  });
  store.listen((kind, cause) => {
    if (kind !== "ratings" || cause?.item === film?.item) return; // its own answer leads on by itself
    if (isActive()) next();
    else close();
  });
  if (isActive()) next();
  else close();
}
