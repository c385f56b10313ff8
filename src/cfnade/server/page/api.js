// Requests to the service: time-outs, readable errors, and the key.

import { byId } from "./dom.js";

const TIMEOUT = 20_000; // milliseconds until a request is given up
const KEY = "cfnade-key";

export class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** GET, or POST where there is a body, unless a method is named. Rejects with AbortError once the
 * signal is aborted. */
export async function call(path, { body, signal, ...options } = {}) {
  for (let attempt = 0; ; attempt += 1) {
    const { ok, status, payload } = await send(path, body, signal, options);
    signal?.throwIfAborted();
    if (ok) return payload;
    if (status === 401) await askForKey();
    else if ((status === 429 || status === 503) && attempt < 2) await pause(500 * 2 ** attempt);
    else throw new Problem(payload.detail || `The server answered with an error (${status}).`, status);
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function send(path, body, signal, { method = body ? "POST" : "GET", headers: extra = {} }) {
  const headers = key ? { Authorization: `Bearer ${key}`, ...extra } : { ...extra };
  if (body) headers["Content-Type"] = "application/json";
  const timeout = new AbortController();
  const abort = () => timeout.abort();
  const timer = setTimeout(abort, TIMEOUT);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", abort);
  try {
    const options = { method, headers, body: JSON.stringify(body) };
    const answer = await fetch(path, { ...options, signal: timeout.signal });
    const onBadJson = (error) => (answer.ok ? Promise.reject(error) : {});
    const payload = answer.status === 204 ? {} : await answer.json().catch(onBadJson);
    return { ok: answer.ok, status: answer.status, payload };
  } catch {
    signal?.throwIfAborted();
    if (timeout.signal.aborted) throw new Problem("The server took too long to answer.");
    if (navigator.onLine === false) throw new Problem("You are offline. Your ratings are kept here.");
    throw new Problem("The server cannot be reached. Is it still running?");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

// -- the key: kept for this tab only, or for this page where storage is refused --

let key = null;
let keyDialog = null;

try {
  key = sessionStorage.getItem(KEY);
} catch {
  // asked for again after a reload
}

/** Ask for the key once, however many requests wait for it. */
function askForKey() {
  keyDialog ??= new Promise((resolve) => {
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
      keyDialog = null;
      resolve();
    };
    byId("key-text").value = "";
    dialog.showModal();
  });
  return keyDialog;
}
