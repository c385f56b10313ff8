// In the place of the service: the page's questions are answered here, and nothing is sent.

import { Answers } from "./routes.js";
import { loadModel } from "./model.js";

let loading = null;

/** As of the service's api.js: what is said at this address. */
export async function call(path, { body, signal } = {}) {
  loading ??= loadModel(".").then((model) => new Answers(model));
  const answers = await loading.catch((error) => {
    loading = null;
    throw new Error(`The model could not be loaded (${error.message}). Serve this folder with any web server.`);
  });
  await new Promise((done) => setTimeout(done)); // what was pressed is drawn first
  signal?.throwIfAborted();
  const [name, query] = path.split("?");
  return answers[name](body ?? Object.fromEntries(new URLSearchParams(query)));
}
