// Small helpers. Text is set as text, never as markup, whatever a title contains.

export const byId = (id) => document.getElementById(id);

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  if (tag === "button") node.type = "button";
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "string") node.setAttribute(name, value);
    else node[name] = value; // onclick, hidden
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export const on = (id, event, act) => byId(id).addEventListener(event, act);

/** Words for screen readers alone. */
export const hiddenText = (text) => el("span", { class: "visually-hidden" }, text);

export function announce(text) {
  byId("live").textContent = text;
}

export function debounce(work, wait) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), wait);
  };
}

/** One request at a time: next() aborts the one before and returns the signal of the new one. */
export function latestOnly() {
  let controller = new AbortController();
  const abort = () => controller.abort();
  const next = () => {
    abort();
    controller = new AbortController();
    return controller.signal;
  };
  return { abort, next };
}

/** Put nodes into this order without moving the focused one: moving it would lose the focus. */
export function arrange(parent, nodes) {
  for (const child of [...parent.children]) if (!nodes.includes(child)) child.remove();
  const focused = nodes.findIndex((node) => node.contains(document.activeElement));
  nodes.forEach((node, place) => {
    if (place < focused) nodes[focused].before(node);
    else if (place > focused) parent.append(node);
  });
}

/** Let nodes glide from where they stood (a map from node to top) to where they now stand. */
export function glide(before) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const [node, top] of before) {
    const offset = node.isConnected ? top - node.getBoundingClientRect().top : 0;
    if (Math.abs(offset) > 1)
      node.animate([{ transform: `translateY(${offset}px)` }, { transform: "none" }], {
        duration: 260,
        easing: "ease-out",
      });
  }
}

export const plural = (count, one, many = `${one}s`) =>
  `${count.toLocaleString("en-GB")} ${count === 1 ? one : many}`;
