// api.js - where numbers come from: the server, or, in a report, the answers kept in the page itself.
const kept = document.getElementById("bitrain-data");
export const report = kept ? JSON.parse(kept.textContent) : null;

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message || `the server answered ${status}`);
    this.status = status;
    this.hint = error.hint || "";
  }
}

// a report keeps all series of a run (or of a rank) once, by step; where the steps lie on the other axes is kept beside them
function fromReport(path, args) {
  const series = path.endsWith("/series");
  let key = path;
  if (series && args.rank !== undefined && args.rank !== null) key += `?rank=${args.rank}`;
  if (path.endsWith("/heatmap")) key += `?value=${args.value || "busy"}`;
  const got = report.answers[key];
  if (!got)
    throw new ApiError(404, {
      message: "this report does not hold that part",
      hint: "bitrain dash shows it",
    });
  if (!series) return got;
  const axis =
    args.x && args.x !== "step"
      ? report.answers[path.replace("/series", `/axis?x=${args.x}`)].series[0]
      : null;
  const at = axis && new Map(axis.step.map((s, i) => [s, axis.x[i]]));
  const wanted = []
    .concat(args.metric)
    .map((m) => got.series.find((s) => s.metric === m))
    .filter(Boolean);
  return {
    ...got,
    series: wanted.map((s) =>
      pick(
        at ? { ...s, x: s.step.map((v) => at.get(v)) } : s,
        args.x1 ? args.x0 : 0,
        args.x1 || Infinity,
      ),
    ),
  };
}

// the points of these steps whose place on the axis is known
function pick(s, a, b) {
  const keep = s.step
    .map((v, i) => (v >= a && v <= b && s.x[i] !== undefined ? i : -1))
    .filter((i) => i >= 0);
  const out = { ...s };
  for (const k of ["x", "step", "first", "last", "min", "max", "mean", "n"])
    out[k] = keep.map((i) => s[k][i]);
  return out;
}

export async function get(path, args = {}, init = {}) {
  if (report) return fromReport(path, args);
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(args)) for (const one of [].concat(v ?? [])) q.append(k, one);
  const text = q.toString(),
    url = `/api/v1/${path}${text ? `?${text}` : ""}`;
  if (init.method) return ask(url, init);
  if (!onTheWay.has(url))
    onTheWay.set(
      url,
      ask(url, init).finally(() => onTheWay.delete(url)),
    );
  return onTheWay.get(url);
}

// a question already on its way is not asked twice; an answer equal to the one before is the same object, so whoever drew it need not draw again
const onTheWay = new Map(),
  before = new Map();
async function ask(url, init) {
  const r = await fetch(url, { credentials: "same-origin", ...init }),
    text = await r.text(),
    old = before.get(url);
  if (r.ok && old && old.text === text) return old.body;
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    /* an answer that is not JSON: the status says enough */
  }
  if (!r.ok) throw new ApiError(r.status, body.error || {});
  before.delete(url);
  before.set(url, { text, body });
  if (before.size > 24) before.delete(before.keys().next().value);
  return body;
}

// series that several figures ask for at the same moment travel, and are drawn, together
const asked = new Map();
export async function series(run, metrics, args) {
  const key = JSON.stringify([run, args]);
  let a = asked.get(key);
  if (!a) {
    a = { metrics: new Set() };
    a.answer = Promise.resolve().then(() => {
      asked.delete(key);
      return get(`runs/${run}/series`, { ...args, metric: [...a.metrics] });
    });
    asked.set(key, a);
  }
  for (const m of metrics) a.metrics.add(m);
  return a.answer;
}

// the token arrives in the URL's fragment, which no server and no log sees; it is exchanged for a cookie and removed
export async function login(token) {
  return get("login", {}, { headers: { Authorization: `Bearer ${token}` } });
}

export async function control(run, verb, value) {
  return get(
    "control",
    {},
    {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Bitrain-Control": "1" },
      body: JSON.stringify(value ? { run, verb, value } : { run, verb }),
    },
  );
}

// ticks of a run, with the place in its record (ATTEMPT.STEP.EVENT). Browsers allow few connections to a host, so the tabs of a run share one:
// whoever holds the lock listens and tells the others; a hidden tab lets go of it. Where a page may not lock (no https, not this machine), each
// tab listens for itself.
export function follow(run, ontick, onstate) {
  if (report) return () => {};
  const name = `bitrain ${run}`,
    others = navigator.locks && new BroadcastChannel(name);
  let source = null,
    leave = null;
  const heard = (m) => (m.state ? onstate(m.state) : ontick(m.data, m.id));
  const tell = (m) => {
    heard(m);
    if (others) others.postMessage(m);
  };
  const listen = () => {
    source = new EventSource(`/api/v1/runs/${run}/stream`);
    source.onopen = () => tell({ state: "live" });
    source.onerror = () => tell({ state: "offline" });
    source.addEventListener("tick", (e) => {
      let data = null;
      try {
        data = JSON.parse(e.data);
      } catch {
        /* then everything is asked for anew */
      }
      tell({ data, id: data ? e.lastEventId : "" });
    });
    source.addEventListener("resync", () => tell({ data: null, id: "" }));
  };
  const join = () => {
    if (leave || document.hidden) return;
    const quit = new AbortController();
    let release = null;
    if (others) {
      others.onmessage = (e) => heard(e.data);
      navigator.locks
        .request(name, { signal: quit.signal }, () => {
          listen();
          return new Promise((done) => {
            release = done;
          });
        })
        .catch(() => {
          /* left before its turn */
        });
    } else listen();
    leave = () => {
      if (source) source.close();
      source = leave = null;
      quit.abort();
      if (release) release();
      if (others) others.onmessage = null;
    };
  };
  const seen = () => {
    if (!document.hidden) join();
    else if (leave) leave();
  };
  document.addEventListener("visibilitychange", seen);
  join();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    if (leave) leave();
    if (others) others.close();
  };
}
