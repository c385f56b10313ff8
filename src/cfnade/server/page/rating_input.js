// Entering a rating: stars (a radio group) for short scales, a slider and a number for long ones;
// a heart where there are no ratings.

import { hiddenText, el } from "./dom.js";

let groups = 0;

/** An element with `set(rating or null)` and `focusIn()`; onRate(rating) is called on a choice. */
export function ratingInput(scale, label, rating, onRate) {
  const shapes = shapesOf(scale.values);
  const node = shapes ? stars(scale, shapes, label, onRate) : slider(scale, label, onRate);
  node.set(rating);
  return node;
}

/** A button that is on or off, with `set(on)`; onPick(on) is called on a change. */
export function heart(text, about, onPick) {
  const shape = el("i", { class: "heart", "aria-hidden": "true" });
  const node = el("button", { class: "link pick" }, shape, text, hiddenText(` ${about}`));
  node.set = (on) => node.setAttribute("aria-pressed", String(on));
  node.addEventListener("click", () => {
    const on = node.getAttribute("aria-pressed") !== "true";
    node.set(on);
    onPick(on);
  });
  return node;
}

/** For each level the halves of stars that it adds, or null if the scale is too long for stars. */
export function shapesOf(values) {
  const halves = values.map((value) => value * 2);
  const drawable = halves.every((half) => Number.isInteger(half) && half >= 0 && half <= 20);
  if (drawable && values.length <= 20)
    return halves.map((half, level) => {
      const from = halves[level - 1] ?? 0;
      return Array.from({ length: half - from }, (_, step) => ((from + step) % 2 ? "right" : "left"));
    });
  return values.length <= 10 ? values.map(() => ["left", "right"]) : null;
}

function stars(scale, shapes, label, onRate) {
  groups += 1;
  const output = el("output", { class: "said", "aria-hidden": "true" });
  const labels = scale.values.map((value, level) => {
    const shapeNodes = shapes[level].map((side) => el("i", { class: side }));
    if (!shapeNodes.length) shapeNodes.push(el("b", { "aria-hidden": "true" }, "0"));
    const input = el("input", { type: "radio", name: `stars-${groups}`, value: String(value) });
    input.addEventListener("change", () => {
      node.set(value);
      onRate(value);
    });
    return el("label", {}, input, ...shapeNodes, hiddenText(scale.spoken(value)));
  });
  const node = el("fieldset", { class: "stars" }, el("legend", { class: "visually-hidden" }, label), ...labels, output);
  const inputs = [...node.querySelectorAll("input")];
  node.set = (rating) => {
    output.textContent = rating === null ? "" : scale.text(rating);
    scale.values.forEach((value, level) => {
      inputs[level].checked = value === rating;
      labels[level].classList.toggle("on", rating !== null && value <= rating);
    });
  };
  node.focusIn = () => (inputs.find((input) => input.checked) ?? inputs[0]).focus();
  return node;
}

function slider(scale, label, onRate) {
  const last = scale.values.length - 1;
  const range = el("input", { type: "range", min: "0", max: String(last), "aria-label": label });
  const limits = { min: String(scale.low), max: String(scale.high), step: "any" };
  const spoken = `${label}, ${scale.low} to ${scale.high}`;
  const number = el("input", { type: "number", ...limits, placeholder: "–", "aria-label": spoken });
  const node = el("div", { class: "slide" }, range, number);
  node.set = (rating) => {
    range.value = String(rating === null ? Math.round(last / 2) : scale.values.indexOf(rating));
    range.setAttribute("aria-valuetext", rating === null ? "not rated" : scale.spoken(rating));
    number.value = rating === null ? "" : scale.text(rating);
  };
  const rate = (rating) => {
    node.set(rating);
    onRate(rating);
  };
  range.addEventListener("input", () => rate(scale.values[Number(range.value)]));
  number.addEventListener("change", () => {
    if (number.value !== "") rate(scale.nearest(Number(number.value)));
  });
  node.focusIn = () => number.focus();
  return node;
}
