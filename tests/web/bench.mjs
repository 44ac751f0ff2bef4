// bench.mjs - cost of the page in a browser: time from a step's commit to its number and point on the screen;
// processor time of a live page; drawing 100 000 points.
//         cmake --build build --target browser-modules
//         BT_BIN=build node tests/web/bench.mjs [seconds] [milliseconds a step]
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const bin = resolve(process.env.BT_BIN || "build");
const dir = mkdtempSync(`${tmpdir()}/bitrain-bench-`);
const token = "0123456789abcdef0123456789abcdef";
const seconds = Number(process.argv[2] || 20);
const pace = Number(process.argv[3] || 250);
const env = {
  ...process.env,
  BITRAIN_STORE: `${dir}/w.db`,
  XDG_RUNTIME_DIR: dir,
  BITRAIN_DASH_TOKEN: token,
};
const profile = `bitrain-bench-${process.pid}`; // identifies the processes of this Chromium
const children = [];
const playwright = `${bin}/tests/web/node_modules/playwright-core/index.mjs`;
const { chromium } = await import(pathToFileURL(playwright));

function quantile(values, q) {
  const sorted = values.slice().sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];
}

function start(program, args) {
  const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return child;
}

/** Writes a growing run; maps each step to the time of its commit in milliseconds. */
function writeRun() {
  const committed = new Map();
  const args = [env.BITRAIN_STORE, "live", "ranks=4", "steps=1000000", `pace_ms=${pace}`];
  const writer = start(`${bin}/tests/t.store.synth_runs`, args);
  writer.stdout.on("data", (data) => {
    for (const match of String(data).matchAll(/step (\d+) (\d+)/g))
      committed.set(Number(match[1]), Number(match[2]) / 1000);
  });
  return committed;
}

/** Returns the address of a server for the store. */
async function serve() {
  const server = start(`${bin}/bitrain`, ["dash", "--port", "0", "--json"]);
  let text = "";
  for await (const chunk of server.stdout) {
    text += chunk;
    if (text.includes("\n")) break;
  }
  return `http://127.0.0.1:${JSON.parse(text).port}`;
}

/**
 * In the page, after every frame: the step that the tile and the loss chart show, and the time at which it
 * appeared.
 */
function watchFrames() {
  window.seen = { tile: [], chart: [] };
  const step = (selector) => {
    const text = document.querySelector(selector)?.textContent || "";
    return Number(text.replace(/\D/g, "")) - 1;
  };
  const note = (list, shown, now) => {
    if (shown !== list.at(-1)?.[0]) list.push([shown, now]);
  };
  const look = () => {
    const now = performance.timeOrigin + performance.now();
    note(window.seen.tile, step("[data-tile=step] dd span"), now);
    note(window.seen.chart, step("figure .readout b"), now);
    requestAnimationFrame(look);
  };
  look();
}

async function latency(page, url, committed) {
  await page.goto(`${url}/#/run/live/overview`);
  await page.waitForSelector("figure .readout b");
  await page.evaluate(watchFrames);
  await page.waitForTimeout(seconds * 1000);
  const seen = await page.evaluate(() => window.seen);
  const steps = [...committed].sort((a, b) => a[0] - b[0]);
  for (const [what, shown] of Object.entries(seen)) {
    const late = [];
    let at = 1;
    for (const [step, time] of steps) {
      if (step <= shown[0][0] || step > shown.at(-1)[0]) continue;
      while (shown[at][0] < step) at++;
      late.push(shown[at][1] - time);
    }
    const q = (share) => quantile(late, share).toFixed(0);
    console.log(
      `step committed -> drawn in the ${what}: median ${q(0.5)} ms, p95 ${q(0.95)} ms, ` +
        `largest ${q(1)} ms (${late.length} steps, one every ${pace} ms)`,
    );
  }
}

/** Returns the processor seconds in a stat file of /proc. */
function processorSeconds(path) {
  const fields = readFileSync(path, "utf8").split(") ").pop().split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/**
 * Returns the seconds used so far by the page's own thread (script, style, layout, paint), by its process,
 * which also rasterizes, and by the compositing process, which uses a graphics card in a user's browser.
 */
function spent() {
  const out = { page: 0, renderer: 0, "gpu-process": 0 };
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      const kind = /--type=([\w-]+)/.exec(line)?.[1];
      if (!line.includes(profile) || !(kind in out)) continue;
      out[kind] += processorSeconds(`/proc/${pid}/stat`);
      if (kind === "renderer") out.page += processorSeconds(`/proc/${pid}/task/${pid}/stat`);
    } catch {
      // the process has ended
    }
  }
  return out;
}

async function processor(page, url) {
  await page.goto("about:blank"); // the script that watches frames ends
  for (const where of ["overview", "ranks", "steps", "comm", "ternary", "events"]) {
    await page.goto(`${url}/#/run/live/${where}`);
    await page.waitForSelector("figure figcaption:not(:empty)");
    await page.waitForTimeout(1500);
    const before = spent();
    const began = performance.now();
    await page.waitForTimeout(6000);
    const after = spent();
    const lasted = performance.now() - began;
    const share = (kind) => {
      const percent = (1e5 * (after[kind] - before[kind])) / lasted;
      return `${percent.toFixed(1).padStart(5)} %`;
    };
    console.log(
      `${where.padEnd(10)} page thread ${share("page")} of a core, its process ${share("renderer")}, ` +
        `compositing without a graphics card ${share("gpu-process")}`,
    );
  }
}

/**
 * In the page: measures the milliseconds until the chart has drawn, and until the next frame, ten times each.
 */
async function drawPoints() {
  const { Chart } = await import("/modules/figures/chart.js");
  const host = document.createElement("div");
  const drawn = [];
  const shown = [];
  const warmUp = 4;
  document.getElementById("main").replaceChildren(host);
  const lines = Array.from({ length: 10 }, (none, k) => {
    const x = Array.from({ length: 10000 }, (other, i) => i);
    const y = x.map((i) => Math.sin(i / 300 + k) + Math.random() * 0.2 + k);
    return { label: `line ${k}`, color: `--s${k}`, x, y, step: x, smooth: false };
  });
  const frameIsShown = () =>
    new Promise((done) =>
      requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = done;
        channel.port2.postMessage(null);
      }),
    );
  for (let i = 0; i < warmUp + 10; i++) {
    const chart = new Chart(host, true);
    await new Promise((done) => requestAnimationFrame(done));
    const began = performance.now();
    chart.set({ lines, unit: "nats", axis: "step", events: [] });
    await new Promise((done) => queueMicrotask(done));
    drawn.push(performance.now() - began);
    await frameIsShown();
    shown.push(performance.now() - began);
    chart.close();
  }
  return { drawn: drawn.slice(warmUp), "on the screen": shown.slice(warmUp) };
}

/** The page is a single script, so its modules are loaded from the source tree. */
async function points(page, url) {
  const tree = fileURLToPath(new URL("../../web/static/", import.meta.url));
  await page.route(`${url}/modules/**`, (route) => {
    const path = tree + new URL(route.request().url()).pathname.replace("/modules/", "");
    return route.fulfill({ path, contentType: "text/javascript" });
  });
  await page.goto(`${url}/#/runs`);
  await page.waitForSelector("#runs tr[data-run=live]");
  for (const [what, times] of Object.entries(await page.evaluate(drawPoints))) {
    const q = (share) => quantile(times, share).toFixed(1);
    console.log(`100 000 points ${what}: median ${q(0.5)} ms, largest ${q(1)} ms`);
  }
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    `--user-agent=${profile}`,
  ],
});
try {
  const committed = writeRun();
  await new Promise((done) => setTimeout(done, 1500));
  const url = await serve();
  const page = await browser.newPage({ viewport: { width: 1280, height: 1400 } });
  await page.goto(`${url}/#token=${token}`);
  await page.waitForSelector("#runs tr[data-run=live]");
  await latency(page, url, committed);
  await processor(page, url);
  await points(page, url);
} finally {
  for (const child of children) child.kill("SIGKILL");
  await browser.close();
  rmSync(dir, { recursive: true, force: true });
}
