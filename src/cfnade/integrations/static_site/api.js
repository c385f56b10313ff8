// In the place of the service: the page's questions are answered here, and nothing is sent.

import { Answers } from "./routes.js";
import { loadModel } from "./model.js";

const ROUTES = {
  model: "model",
  recommendations: "recommendations",
  explanations: "explanations",
  "items-to-rate": "itemsToRate",
  items: "items",
  "items/match": "match",
  "item-map": "itemMap",
};
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
  const [route, query] = path.split("?");
  const asked = body ?? Object.fromEntries(new URLSearchParams(query));
  const like = /^items\/(.+)\/similar$/.exec(route);
  return like ? answers.similar(answers.idOf(decodeURIComponent(like[1])), asked) : answers[ROUTES[route]](asked);
}
