// Talking to the service: time-outs, problems in plain words, and the key if one is asked for.

import { byId } from "./dom.js";

const PATIENCE = 20_000; // milliseconds until a request is given up
const KEY = "cfnade-key";

export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** GET, or POST where there is a body, unless a method is named. Rejects with AbortError once the
 * signal is aborted. */
export async function call(path, { body, signal, ...how } = {}) {
  for (let tries = 0; ; tries += 1) {
    const { ok, status, said } = await send(path, body, signal, how);
    signal?.throwIfAborted();
    if (ok) return said;
    if (status === 401) await askForKey();
    else if ((status === 429 || status === 503) && tries < 2) await pause(500 * 2 ** tries);
    else throw new Problem(said.detail || `The server answered with an error (${status}).`, status);
  }
}

const pause = (wait) => new Promise((done) => setTimeout(done, wait));

async function send(path, body, signal, { method = body ? "POST" : "GET", headers: more = {} }) {
  const headers = key ? { Authorization: `Bearer ${key}`, ...more } : { ...more };
  if (body) headers["Content-Type"] = "application/json";
  const watch = new AbortController();
  const stop = () => watch.abort();
  const timer = setTimeout(stop, PATIENCE);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", stop);
  try {
    const options = { method, headers, body: JSON.stringify(body) };
    const answer = await fetch(path, { ...options, signal: watch.signal });
    const none = (error) => (answer.ok ? Promise.reject(error) : {});
    const said = answer.status === 204 ? {} : await answer.json().catch(none);
    return { ok: answer.ok, status: answer.status, said };
  } catch {
    signal?.throwIfAborted();
    if (watch.signal.aborted) throw new Problem("The server took too long to answer.");
    if (navigator.onLine === false) throw new Problem("You are offline. Your ratings are kept here.");
    throw new Problem("The server cannot be reached. Is it still running?");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

// -- the key: kept for this tab only, or for this page where storage is refused --

let key = null;
let asking = null;

try {
  key = sessionStorage.getItem(KEY);
} catch {
  // asked for again after a reload
}

/** One dialogue, however many requests wait for it. */
function askForKey() {
  asking ??= new Promise((done) => {
    const dialog = byId("key");
    if (key) byId("key-note").textContent = "The server did not accept that key.";
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      key = byId("key-text").value.trim();
      try {
        sessionStorage.setItem(KEY, key);
      } catch {
        // see above
      }
      dialog.close();
    };
    dialog.oncancel = (event) => event.preventDefault(); // nothing works without it
    dialog.onclose = () => {
      asking = null;
      done();
    };
    byId("key-text").value = "";
    dialog.showModal();
  });
  return asking;
}
