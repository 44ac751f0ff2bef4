// bench_many.mjs - cost of the page with many data: the list of 500 runs, the chart of 50 of them, and the
// Overview of a long run with many ranks. Each figure is the median of its rounds with minimum and maximum,
// and its parts.
//         cmake --build build --target browser-modules
//         BT_BIN=build node tests/web/bench_many.mjs [rounds=7] [runs=500] [steps=100000] [ranks=4]
// steps=0 omits the long run. BITRAIN_STORE: an existing database of such runs (its newest run is the long
// one), which is not changed.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { resolve } from "node:path";

const bin = resolve(process.env.BT_BIN || "build");
const dir = mkdtempSync(`${tmpdir()}/bitrain-bench-`);
const asked = { rounds: 7, runs: 500, steps: 100000, ranks: 4 };
for (const word of process.argv.slice(2)) {
  const [key, value] = word.split("=");
  if (!(key in asked) || !/^\d+$/.test(value || "")) {
    console.error(`'${word}' is none of rounds=N runs=N steps=N ranks=N`);
    process.exit(2);
  }
  asked[key] = Number(value);
}
const ownStore = process.env.BITRAIN_STORE && existsSync(process.env.BITRAIN_STORE);
Object.assign(process.env, {
  BITRAIN: `${bin}/bitrain`,
  BT_MODULES: `${bin}/tests/web/node_modules`,
  BITRAIN_STORE: ownStore ? process.env.BITRAIN_STORE : `${dir}/m.db`,
  XDG_RUNTIME_DIR: dir,
  BITRAIN_DASH_TOKEN: "0123456789abcdef0123456789abcdef",
});
const kit = await import("./browser_kit.mjs");
const chosen = 50;
const long = "long";

function makeRuns() {
  const synth = (...words) =>
    execFileSync(`${bin}/tests/t.store.synth_runs`, [process.env.BITRAIN_STORE, ...words], {
      stdio: ["ignore", "ignore", "inherit"],
    });
  for (let i = 0; i < asked.runs; i++)
    synth(`run-${String(i).padStart(4, "0")}`, "ranks=1", "steps=200", `slow=${1 + (i % 9) / 10}`);
  if (asked.steps) synth(long, `ranks=${asked.ranks}`, `steps=${asked.steps}`);
}

const middle = (values) => values.slice().sort((a, b) => a - b)[values.length >> 1];

function tell(what, values, unit, wanted) {
  const [least, most] = [Math.min(...values), Math.max(...values)].map((v) => v.toFixed(0));
  const figure = `${middle(values).toFixed(0)} ${unit}`;
  console.log(
    `${what.padEnd(44)} ${figure.padStart(9)}   (${least} to ${most}; wanted: ${wanted})`,
  );
}

/** Formats the median of each part over all rounds as one line. */
function tellParts(rounds) {
  const keys = [...new Set(rounds.flatMap((parts) => Object.keys(parts)))];
  const text = (key) => `${key} ${middle(rounds.map((parts) => parts[key] ?? 0)).toFixed(0)}`;
  console.log(`    ms: ${keys.map(text).join(", ")}`);
}

/** Returns the time that the page's thread has spent so far in script, style and layout, in milliseconds. */
async function spent(session) {
  const { metrics } = await session.send("Performance.getMetrics");
  const of = (name) => 1000 * metrics.find((one) => one.name === name).value;
  return {
    script: of("ScriptDuration"),
    style: of("RecalcStyleDuration"),
    layout: of("LayoutDuration"),
    "all tasks": of("TaskDuration"),
  };
}

const minus = (after, before) =>
  Object.fromEntries(Object.entries(after).map(([key, value]) => [key, value - before[key]]));

/** In the page: returns the times at which the responses to its requests arrived, relative to `from`. */
function answersSince(from) {
  const out = {};
  for (const { name, requestStart, responseStart, responseEnd } of performance.getEntriesByType(
    "resource",
  )) {
    const path = /\/api\/v1\/([^?]*)/.exec(name)?.[1];
    if (!path || requestStart < from) continue;
    const what = path.split("/").pop();
    out[`${what} asked`] = requestStart - from;
    out[`${what} answer begins`] = responseStart - from;
    out[`${what} answer ends`] = responseEnd - from;
  }
  return out;
}

/** In the page: returns the time of the frame after `n` elements of a selector exist. */
function frameWith([selector, n]) {
  return new Promise((done) => {
    const look = () => {
      const isThere = document.querySelectorAll(selector).length >= n;
      requestAnimationFrame(isThere ? () => done(performance.now()) : look);
    };
    look();
  });
}

/** In the page: returns the gaps between frames while a list scrolls by four rows per frame. */
function scrollThrough() {
  return new Promise((done) => {
    const box = document.querySelector(".runs-list .scroll");
    const gaps = [];
    let last = 0;
    const step = (now) => {
      if (last) gaps.push(now - last);
      last = now;
      box.scrollTop += 124;
      const isLeft = box.scrollTop + box.clientHeight < box.scrollHeight - 1;
      if (isLeft && gaps.length < 120) requestAnimationFrame(step);
      else done(gaps);
    };
    box.scrollTop = 0;
    requestAnimationFrame(step);
  });
}

async function listOfRuns(page, session, url) {
  const [first, parts, gaps, longest, dropped] = [[], [], [], [], []];
  for (let k = 0; k < asked.rounds; k++) {
    await page.goto("about:blank");
    await page.goto(`${url}/#/runs`, { waitUntil: "commit" });
    first.push(await page.evaluate(frameWith, ["#runs tr[data-run]", 1]));
    parts.push({ ...(await page.evaluate(answersSince, 0)), ...(await spent(session)) });
    await page.waitForSelector(".runs-chart .run-legend li");
    await page.waitForTimeout(300);
    const frames = await page.evaluate(scrollThrough);
    gaps.push(middle(frames));
    longest.push(Math.max(...frames));
    dropped.push(frames.filter((gap) => gap > 25).length);
  }
  tell(`first row of ${asked.runs} runs`, first, "ms", "500");
  tellParts(parts);
  tell("a frame while the list scrolls, median", gaps, "ms", "17");
  tell("    the longest one", longest, "ms", "17");
  tell("    frames dropped of 120", dropped, "", "0");
  const rows = await page.locator("#runs tr[data-run]").count();
  console.log(`    rows in the document: ${rows}`);
}

/** Measures the time from a click on the link to the frame with the curves. */
async function chartOfChosen(page, session, url) {
  const names = Array.from({ length: chosen }, (none, i) => `run-${String(i).padStart(4, "0")}`);
  const [times, parts] = [[], []];
  for (let k = 0; k < asked.rounds; k++) {
    await page.goto(`${url}/#/run/${names[k]}/events`);
    await page.waitForSelector("figure figcaption:not(:empty)");
    const before = await spent(session);
    const from = await page.evaluate((runs) => {
      const now = performance.now();
      location.hash = `#/runs?runs=${runs}`;
      return now;
    }, names.join());
    const wanted = [".runs-chart .run-legend li", chosen];
    times.push((await page.evaluate(frameWith, wanted)) - from);
    const after = minus(await spent(session), before);
    parts.push({ ...(await page.evaluate(answersSince, from)), ...after });
  }
  tell(`chart of ${chosen} chosen runs`, times, "ms", "500");
  tellParts(parts);
}

/** Measures the bytes of a new Overview (responses as transferred), and its first chart. */
async function overview(page, session, url) {
  const [times, bytes, parts] = [[], [], []];
  for (let k = 0; k < asked.rounds; k++) {
    let sum = 0;
    const asks = new Map();
    const asks_ = ({ requestId, request }) => asks.set(requestId, request.url);
    const ends = ({ requestId, encodedDataLength }) => {
      if (/\/api\/v1\//.test(asks.get(requestId) || "")) sum += encodedDataLength;
    };
    session.on("Network.requestWillBeSent", asks_);
    session.on("Network.loadingFinished", ends);
    await page.goto("about:blank");
    await page.goto(`${url}/#/run/${long}/overview`, { waitUntil: "commit" });
    times.push(await page.evaluate(frameWith, ["figure .u-over", 1]));
    parts.push({ ...(await page.evaluate(answersSince, 0)), ...(await spent(session)) });
    await page.waitForFunction(() =>
      [...document.querySelectorAll("figure")].every(
        (one) => one.querySelector(".body").firstChild,
      ),
    );
    await page.waitForTimeout(500);
    session.off("Network.requestWillBeSent", asks_);
    session.off("Network.loadingFinished", ends);
    bytes.push(sum / 1000);
  }
  const what = `${asked.steps} steps of ${asked.ranks} ranks`;
  tell(`first chart of ${what}`, times, "ms", "300");
  tellParts(parts);
  tell(`Overview of ${what}, answers`, bytes, "kB", "60");
}

const browser = await kit.launch();
try {
  if (!ownStore) makeRuns();
  const { port } = await kit.serve(0);
  const url = `http://127.0.0.1:${port}`;
  const page = await (
    await kit.newContext(browser, { viewport: { width: 1280, height: 900 } })
  ).newPage();
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  await session.send("Network.enable");
  await page.goto(`${url}/#token=${kit.token}`);
  await page.waitForSelector("#runs tr[data-run]");
  console.log(`medians of ${asked.rounds}; load ${loadavg()[0].toFixed(1)}`);
  await listOfRuns(page, session, url);
  await chartOfChosen(page, session, url);
  if (asked.steps) await overview(page, session, url);
  console.log(`load ${loadavg()[0].toFixed(1)}`);
} finally {
  kit.killAll();
  await browser.close();
  rmSync(dir, { recursive: true, force: true });
}
