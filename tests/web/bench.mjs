// bench.mjs - what the page costs in a browser: from a step's commit to the number and the point on the screen; 100 000 points drawn.
//   cmake --build build --target browser-modules && BT_BIN=build node tests/web/bench.mjs [seconds] [milliseconds a step]
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const bin = resolve(process.env.BT_BIN || "build"),
  dir = mkdtempSync(`${tmpdir()}/bitrain-bench-`),
  token = "0123456789abcdef0123456789abcdef";
const [seconds, pace] = [Number(process.argv[2] || 20), Number(process.argv[3] || 250)];
const { chromium } = await import(
  pathToFileURL(`${bin}/tests/web/node_modules/playwright-core/index.mjs`)
);
const env = {
  ...process.env,
  BITRAIN_STORE: `${dir}/w.db`,
  XDG_RUNTIME_DIR: dir,
  BITRAIN_DASH_TOKEN: token,
};
const quantile = (v, q) =>
  v.slice().sort((a, b) => a - b)[Math.min(v.length - 1, Math.floor(v.length * q))];
const children = [];
// seconds of processor time of Chromium's parts so far
function spent() {
  const out = { page: 0, renderer: 0, "gpu-process": 0 },
    seconds = (path) => {
      const f = readFileSync(path, "utf8").split(") ").pop().split(" ");
      return (Number(f[11]) + Number(f[12])) / 100;
    };
  for (const p of readdirSync("/proc").filter((n) => /^\d+$/.test(n))) {
    try {
      const line = readFileSync(`/proc/${p}/cmdline`, "utf8"),
        kind = /--type=([\w-]+)/.exec(line)?.[1];
      if (!line.includes(profile) || !(kind in out)) continue;
      out[kind] += seconds(`/proc/${p}/stat`);
      if (kind === "renderer") out.page += seconds(`/proc/${p}/task/${p}/stat`);
    } catch {
      /* it ended */
    }
  }
  return out;
}
const start = (program, args) => {
  const p = spawn(program, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  children.push(p);
  return p;
};
const profile = `bitrain-bench-${process.pid}`; // tells this Chromium's processes from others
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
  const writer = start(`${bin}/tests/t.store.synth_runs`, [
      env.BITRAIN_STORE,
      "live",
      "ranks=4",
      "steps=1000000",
      `pace_ms=${pace}`,
    ]),
    committed = new Map();
  writer.stdout.on("data", (d) => {
    for (const m of String(d).matchAll(/step (\d+) (\d+)/g))
      committed.set(Number(m[1]), Number(m[2]) / 1000);
  });
  await new Promise((done) => setTimeout(done, 1500));
  const dash = start(`${bin}/bitrain`, ["dash", "--port", "0", "--json"]);
  let text = "";
  for await (const chunk of dash.stdout) {
    text += chunk;
    if (text.includes("\n")) break;
  }
  const url = `http://127.0.0.1:${JSON.parse(text).port}`,
    page = await browser.newPage({ viewport: { width: 1280, height: 1400 } });
  await page.goto(`${url}/#token=${token}`);
  await page.waitForSelector("#runs tr[data-run=live]");
  await page.goto(`${url}/#/run/live/overview`);
  await page.waitForSelector("figure .readout b");
  // after every frame: which step do the tile and the loss chart show, and since when
  await page.evaluate(() => {
    window.seen = { tile: [], chart: [] };
    const plain = (s) => Number((s || "").replace(/\D/g, ""));
    const look = () => {
      const now = performance.timeOrigin + performance.now(),
        a = plain(document.querySelector("[data-tile=step] dd span")?.textContent) - 1,
        b = plain(document.querySelector("figure .readout b")?.textContent) - 1;
      if (a !== window.seen.tile.at(-1)?.[0]) window.seen.tile.push([a, now]);
      if (b !== window.seen.chart.at(-1)?.[0]) window.seen.chart.push([b, now]);
      requestAnimationFrame(look);
    };
    look();
  });
  await page.waitForTimeout(seconds * 1000);
  const seen = await page.evaluate(() => window.seen);
  for (const what of ["tile", "chart"]) {
    const late = [];
    let at = 1;
    for (const [step, time] of [...committed].sort((a, b) => a[0] - b[0])) {
      if (step <= seen[what][0][0] || step > seen[what].at(-1)[0]) continue;
      while (seen[what][at][0] < step) at++;
      late.push(seen[what][at][1] - time);
    }
    console.log(
      `step committed -> drawn in the ${what}: median ${quantile(late, 0.5).toFixed(0)} ms, p95 ${quantile(late, 0.95).toFixed(0)} ms, largest ${Math.max(...late).toFixed(0)} ms (${late.length} steps, one every ${pace} ms)`,
    );
  }
  // processor time, which a busy machine does not inflate: the page's own thread (script, style, layout, paint); with raster and compositing in
  // its process; the process that composites without a graphics card, which a reader's browser does on one
  await page.goto("about:blank"); // the watcher of frames ends
  for (const where of ["overview", "ranks", "steps", "comm", "ternary", "events"]) {
    await page.goto(`${url}/#/run/live/${where}`);
    await page.waitForSelector("figure figcaption:not(:empty)");
    await page.waitForTimeout(1500);
    const a = spent(),
      t = performance.now();
    await page.waitForTimeout(6000);
    const b = spent(),
      share = (k) => ((1e5 * (b[k] - a[k])) / (performance.now() - t)).toFixed(1);
    console.log(
      `${where.padEnd(10)} page thread ${share("page").padStart(5)} % of a core, its process ${share("renderer").padStart(5)} %, compositing without a graphics card ${share("gpu-process").padStart(5)} %`,
    );
  }
  // 100 000 points through chart.js: ten lines of 10 000, as many as a screen would ever hold. The page is one script: its modules come from the tree
  const tree = new URL("../../web/static/", import.meta.url).pathname;
  await page.route(`${url}/modules/*`, (r) =>
    r.fulfill({ path: tree + r.request().url().split("/").pop(), contentType: "text/javascript" }),
  );
  await page.goto(`${url}/#/runs`);
  await page.waitForSelector("#runs tr[data-run=live]");
  const times = await page.evaluate(async () => {
    const { Chart } = await import("/modules/chart.js");
    const host = document.createElement("div"),
      drawn = [],
      shown = [];
    document.getElementById("main").replaceChildren(host);
    const n = 10000,
      lines = Array.from({ length: 10 }, (_, k) => {
        const x = Array.from({ length: n }, (__, i) => i),
          y = x.map((i) => Math.sin(i / 300 + k) + Math.random() * 0.2 + k);
        return { label: `line ${k}`, color: `--s${k}`, x, y, step: x, smooth: false };
      });
    for (let i = 0; i < 14; i++) {
      const chart = new Chart(host, true),
        frame = await new Promise((done) => requestAnimationFrame(done)),
        t = performance.now();
      chart.set({ lines, unit: "nats", axis: "step", events: [] });
      await new Promise((done) => queueMicrotask(done));
      drawn.push(performance.now() - t);
      await new Promise((done) =>
        requestAnimationFrame(() => {
          const c = new MessageChannel();
          c.port1.onmessage = done;
          c.port2.postMessage(frame);
        }),
      );
      shown.push(performance.now() - t);
      chart.close();
    }
    return { drawn: drawn.slice(4), shown: shown.slice(4) };
  });
  for (const [what, v] of Object.entries(times))
    console.log(
      `100 000 points ${what === "drawn" ? "drawn" : "on the screen"}: median ${quantile(v, 0.5).toFixed(1)} ms, largest ${Math.max(...v).toFixed(1)} ms`,
    );
} finally {
  for (const c of children) c.kill("SIGKILL");
  await browser.close();
  rmSync(dir, { recursive: true, force: true });
}
