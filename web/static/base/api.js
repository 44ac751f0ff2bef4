// api.js - requests data from the server or, in a report, from the stored responses in the page
// (kept_answers.js).
// Paths are below /api/v1/, see web/README.md; errors are {"error": {message, hint}}.
import { keptAnswer, report } from "./kept_answers.js";

class ApiError extends Error {
  constructor(status, error) {
    super(error.message || `the server responded with status ${status}`);
    this.status = status;
    this.hint = error.hint || "";
  }
}

/** Returns an error as one sentence with its remedy, if known. Hints that name routes are for programs and
 * omitted. */
export function statement(error) {
  return error.hint && !error.hint.startsWith("web/")
    ? `${error.message} (${error.hint})`
    : error.message;
}

const notKept = {
  message: "this report does not contain that part",
  hint: "bitrain dash shows it",
};

/** Returns the response to GET path?args (a list in args repeats its key), or to `init` as in fetch. Throws
 * an ApiError. Identical requests in flight are merged. */
export async function get(path, args = {}, init = {}) {
  if (report) {
    const answer = keptAnswer(path, args);
    if (!answer) throw new ApiError(404, notKept);
    return answer;
  }
  const url = urlOf(path, args);
  if (init.method) return ask(url, init);
  const early = askedEarly.get(url);
  if (early) {
    askedEarly.delete(url);
    return early;
  }
  if (!underWay.has(url)) {
    const answer = ask(url, init).finally(() => underWay.delete(url));
    underWay.set(url, answer);
  }
  return underWay.get(url);
}

function urlOf(path, args) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(args))
    for (const one of [].concat(value ?? [])) query.append(key, one);
  const text = query.toString();
  return `/api/v1/${path}${text ? `?${text}` : ""}`;
}

const underWay = new Map();
const askedEarly = new Map(); // url -> response, until a card requests it

/** Sends a request before a page needs its response, at the same time as the page's other requests. */
export function askEarly(path, args = {}) {
  if (report) return;
  askedEarly.delete(urlOf(path, args)); // a request without the token was refused
  const answer = get(path, args);
  answer.catch(() => {}); // the caller handles the failure
  askedEarly.set(urlOf(path, args), answer);
}

// A response equal to the previous one is the same object, so that it need not be drawn again.
const newest = new Map();
const newestMost = 24;

/** Dims the displayed data, which may be outdated, until the server responds again. */
export function showAway(isAway) {
  document.documentElement.classList.toggle("away", isAway);
}

let tellRefused = () => {};

/** Calls the listener when the server rejects the token of a request. */
export function onRefused(listener) {
  tellRefused = listener;
}

const noAnswer = {
  message: "the server does not answer",
  hint: "the page shows the newest data it received",
};

async function ask(url, init) {
  const sent = fetch(url, { credentials: "same-origin", ...init }).catch(() => null);
  const response = await sent;
  const text = await response?.text().catch(() => null);
  showAway(typeof text !== "string");
  if (typeof text !== "string") throw new ApiError(0, noAnswer);
  const old = newest.get(url);
  if (response.ok && old && old.text === text) return old.body;
  if (response.status === 401) tellRefused();
  const body = parsed(text);
  if (!response.ok) throw new ApiError(response.status, body.error || {});
  newest.delete(url);
  newest.set(url, { text, body });
  if (newest.size > newestMost) newest.delete(newest.keys().next().value);
  return body;
}

/** Parses a response; one that is not JSON counts as empty, because its status is sufficient. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

const gathering = new Map();

/** Loads series of metrics of a run. Calls made at the same moment share one request. */
export async function series(run, metrics, args) {
  const key = JSON.stringify([run, args]);
  let request = gathering.get(key);
  if (!request) {
    const wanted = new Set();
    const answer = Promise.resolve().then(() => {
      gathering.delete(key);
      return get(`runs/${run}/series`, { ...args, metric: [...wanted].join() });
    });
    request = { wanted, answer };
    gathering.set(key, request);
  }
  for (const metric of metrics) request.wanted.add(metric);
  return request.answer;
}

/** Exchanges the token for a cookie. The token was in the URL's fragment, which is not sent to a server or
 * log. */
export async function login(token) {
  return get("login", {}, { headers: { Authorization: `Bearer ${token}` } });
}

/** Sends a change: requires a server started with --control. */
export async function post(path, body) {
  const init = {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Bitrain-Control": "1" },
    body: JSON.stringify(body), // undefined values are omitted
  };
  return get(path, {}, init);
}

/** Steers a run; verbs are those of `bitrain ctl` and of web/README.md. more: {step} */
export async function control(run, verb, value, more) {
  return post("control", { run, verb, value, ...more });
}
