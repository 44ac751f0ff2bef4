// browser.mjs - drives the dashboard and a report in a browser: every page, its numbers compared with the
// store's, live updates, a server that restarts, zoom, keys, themes, widths, accessibility, hostile texts. A
// console error or a violation of the content policy fails the test.
import assert from "node:assert";
import { execFileSync } from "node:child_process";
import { fileURLToPath, pathToFileURL } from "node:url";
import {
  accessible,
  bitrain,
  count,
  drag,
  drawn,
  end,
  env,
  figure,
  harmless,
  newContext,
  newPage,
  nth,
  pages,
  plain,
  problems,
  rows,
  serve,
  sql,
  start,
  tested,
  token,
  truth,
  walked,
} from "./browser_kit.mjs";
import { truths } from "./browser_truths.mjs";

const anyRun = "#runs tr[data-run=base]";
const currentTab = (name) => `.tabs a[href$="/${name}"][aria-current=page]`;

async function gate({ browser, page, url }) {
  const anonymous = await (await newContext(browser)).newPage();
  const enter = async (text) => {
    await anonymous.fill("input[type=password]", text);
    await anonymous.keyboard.press("Enter");
  };
  await anonymous.goto(url);
  await anonymous.waitForSelector("input[type=password]");
  await accessible(anonymous, "gate");
  await enter("0".repeat(32));
  await anonymous.waitForFunction(() =>
    document.getElementById("toast").textContent.includes("token"),
  );
  await enter(token);
  await anonymous.waitForSelector(anyRun);
  await anonymous.context().close();
  await page.goto(`${url}/#token=${token}`);
  await page.waitForSelector(anyRun);
  assert(!page.url().includes(token), "the token stays in the address");
}

async function runsTable({ page }) {
  const all = sql("SELECT * FROM runs ORDER BY run");
  const cell = (run, key) => page.locator(`#runs tr[data-run=${run}] td[data-key=${key}]`);
  const text = (run, key) => cell(run, key).textContent();
  assert.equal(await page.locator("#runs tbody tr").count(), all.length);
  for (const row of all) {
    assert.equal(await text(row.run, "steps"), count(row.steps));
    assert.equal(await text(row.run, "loss"), row.loss.toFixed(4));
    assert.equal(await text(row.run, "ranks"), String(row.ranks));
    assert.equal(await text(row.run, "goodput"), `${(row.goodput * 100).toFixed(0)} %`);
  }
  assert.match(await text("other", "note"), /coldwarm|warmcold/);
  await harmless(page, "runs");
  await filters(page);
  await columns(page);
  await sorting(page);
  await chartOfRuns(page);
  await accessible(page, "runs");
  await walked(page, "runs");
  await page.emulateMedia({ colorScheme: "dark" });
  await accessible(page, "runs, dark");
  await page.emulateMedia({ colorScheme: "light" });
}

/** The legend of the chart beside the table hides and isolates lines, and the address encodes the view. */
async function chartOfRuns(page) {
  const base = page.locator(".run-legend button", { hasText: "base" });
  const shown = (want) =>
    page.waitForFunction((text) => {
      const on = [...document.querySelectorAll('.run-legend button[aria-pressed="true"]')];
      const names = on.map((one) => one.textContent).sort();
      return names.join() === text;
    }, want);
  await page.goto(`${page.url().split("#")[0]}#/runs?filter=steps>0&runs=other,base,gone&up=1`);
  await page.waitForFunction(() => /the run gone no longer exists/.test(document.body.textContent));
  await shown("base,other");
  assert.equal(await page.inputValue("input[type=search]"), "steps>0");
  await base.click({ modifiers: ["Shift"] });
  await shown("base");
  await base.click({ modifiers: ["Shift"] });
  await shown("base,other");
  await base.click();
  await shown("other");
  await page.locator(".runs-chart select").nth(2).selectOption("optim.lr");
  await shown("lr 0.002 (2)");
  assert.match(page.url(), /runs=other,base&by=optim\.lr$/);
  await runsInPlanes(page);
  await page.goto(`${page.url().split("#")[0]}#/runs`);
  await shown("base,other");
}

/**
 * The same runs are drawn as points and over parallel axes; the address encodes that view, too, and a click
 * opens a run.
 */
async function runsInPlanes(page) {
  const show = page.locator(".runs-chart select").first();
  const shapes = (name, n) =>
    page.waitForFunction(
      ([what, many]) => document.querySelectorAll(`.runs-chart .plane ${what}`).length === many,
      [name, n],
    );
  await show.selectOption("scatter");
  await shapes("circle", 2);
  await page.locator(".runs-chart select[aria-label=up]").selectOption("tokens_per_s");
  await page
    .locator(".plane circle title", { hasText: "tokens/s" })
    .first()
    .waitFor({ state: "attached" });
  const points = await page.locator(".plane circle title").allTextContents();
  const speed = truth("SELECT tokens_per_s FROM runs WHERE run = 'base'");
  const told = points.find((text) => text.startsWith("base:"));
  assert.equal(Number(/optim\.lr ([^,]+)/.exec(told)[1]), 0.002);
  assert(Math.abs(Number(/tokens\/s (\S+)$/.exec(told)[1]) / speed - 1) < 1e-6, told);
  assert.match(page.url(), /as=scatter&across=optim\.lr&over=tokens_per_s$/);
  await accessible(page, "runs as points");
  await show.selectOption("parallel");
  await shapes("path.run", 2);
  await page.locator(".runs-chart select[aria-label=axis]").selectOption("steps");
  await page.waitForFunction(() => document.querySelectorAll(".plane .drop").length === 4);
  assert.match(page.url(), /as=parallel&axes=optim\.lr,tokens_per_s,loss,steps$/);
  await accessible(page, "runs over parallel axes");
  await page.locator(".plane .drop").last().click();
  await page.waitForFunction(() => document.querySelectorAll(".plane .drop").length === 3);
}

async function filters(page) {
  for (const [filter, n] of [
    ["steps>250", 1],
    ["tags:warm", 1],
    ["state:running", 0],
    ["oth", 1],
    ["lr<3e-3", 2],
    ["lr<1e-3", 0],
    ["optim.lr=0.002 steps<250", 1],
    ["nonsense<3", 0],
    ["", 2],
  ]) {
    await page.fill("input[type=search]", filter);
    const shown = page.waitForFunction(
      (want) => document.querySelectorAll("#runs tbody tr[data-run]").length === want,
      n,
    );
    await shown.catch(() => assert.fail(`filter "${filter}": not ${n} runs`));
  }
}

/** One column is removed and one for a setting is added; the browser stores the selection. */
async function columns(page) {
  const box = (name) => page.locator(".picker label", { hasText: name }).locator("input");
  const rateIsShown = () =>
    page.waitForFunction(() => {
      const cell = document.querySelector("#runs tr[data-run=base] td[data-key='optim.lr']");
      return cell?.textContent === "0.002";
    });
  await page.locator(".picker summary").click();
  await box(/^goodput$/).uncheck();
  await page.selectOption(".picker select", "optim.lr");
  await rateIsShown();
  await accessible(page, "the columns to choose");
  await page.reload();
  await rateIsShown();
  assert.equal(await page.locator("#runs td[data-key=goodput]").count(), 0);
  await page.locator(".picker summary").click();
  await box(/^goodput$/).check();
  await box(/^optim\.lr$/).click();
  await page.locator(`${anyRun} td[data-key=goodput]`).waitFor();
  await page.waitForFunction(() => !document.querySelector("#runs td[data-key='optim.lr']"));
  await page.keyboard.press("Escape");
  await page.locator(".picker summary").click();
}

async function sorting(page) {
  const bySteps = page.locator("#runs thead button", { hasText: /^steps$/ });
  const order = () =>
    page.locator("#runs tbody tr").evaluateAll((all) => all.map((row) => row.dataset.run));
  await bySteps.press("Enter");
  assert.deepEqual(await order(), ["base", "other"]);
  await bySteps.press("Enter");
  assert.deepEqual(await order(), ["other", "base"]);
  assert.equal(await page.locator("#runs th[aria-sort=ascending]").count(), 1);
}

async function pagesOfRun({ page, url }) {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const name of pages) {
      await page.goto(`${url}/#/run/base/${name}`);
      await page.waitForSelector(currentTab(name));
      await drawn(page, name);
      if (scheme === "light") await truths[name](page);
      await harmless(page, name);
      await accessible(page, `${name}, ${scheme}`);
      if (scheme === "light") await walked(page, name);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
}

async function axes({ page, url }) {
  for (const [axis, title] of [
    ["tokens", "tokens"],
    ["time", "wall time"],
    ["active", "active time"],
    ["bytes", "bytes"],
  ]) {
    await page.goto(`${url}/#/run/base/overview`);
    await page.selectOption("select[aria-label=x]", axis);
    await page.waitForFunction((text) => {
      const place = document.querySelectorAll("figure .readout > span")[1];
      return place?.textContent.startsWith(text);
    }, title);
  }
  await page.selectOption("select[aria-label=x]", "step");
}

/** Enlarges a card to the page's width and back. */
async function largeCard({ page, url }) {
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.goto(`${url}/#/run/base/overview`);
  await drawn(page, "overview");
  await page.setViewportSize({ width: 1600, height: 900 });
  const ends = await page.evaluate(() => {
    const right = (one) => Math.round(one.getBoundingClientRect().right);
    const cards = [...document.querySelectorAll(".grid > .card")].filter((one) => one.offsetWidth);
    return [right(cards[0]), right(cards.at(-1))];
  });
  assert.equal(ends[1], ends[0], "the last card leaves the rest of its row empty");
  await page.setViewportSize({ width: 1280, height: 900 });
  const card = figure(page, "Gradient norm");
  const large = card.locator("button", { hasText: /^Large$/ });
  const width = async (one) => Math.round((await one.boundingBox()).width);
  const small = await width(card);
  const grows = (least) =>
    page.waitForFunction(
      ([title, want]) => {
        const isOne = (one) => one.querySelector("h2").textContent === title;
        const one = [...document.querySelectorAll("figure")].find(isOne);
        const { width: w, height: h } = one.querySelector("canvas").getBoundingClientRect();
        return want ? w > want && h > 0.6 * innerHeight : h < 0.4 * innerHeight;
      },
      ["Gradient norm", least],
    );
  await large.press("Enter");
  await grows(1.7 * small);
  assert.equal(await large.getAttribute("aria-pressed"), "true");
  assert.equal(await width(card), await width(figure(page, "Loss")), "as wide as the page");
  assert((await rows(page, "Gradient norm")).length > 100, "its numbers are there as before");
  await accessible(page, "a large card");
  await large.click();
  await grows(0);
  assert.equal(await width(card), small);
  assert.equal(await large.getAttribute("aria-pressed"), "false");
  await page.setViewportSize({ width: 1280, height: 2600 });
}

/** The modules also work unbundled: each imports what it uses, which the bundle would not reveal. */
async function modules({ context, url }) {
  const tree = fileURLToPath(new URL("../../web/static/", import.meta.url));
  const page = await newPage(context, "modules of the tree");
  let loaded = 0;
  await page.route(`${url}/assets/app.js`, (route) =>
    route.fulfill({ contentType: "text/javascript", body: 'import "/modules/app.js";' }),
  );
  await page.route(`${url}/modules/**`, (route) => {
    const path = tree + new URL(route.request().url()).pathname.replace("/modules/", "");
    loaded++;
    return route.fulfill({ contentType: "text/javascript", path });
  });
  await page.goto(`${url}/#/runs`);
  await page.waitForSelector(anyRun);
  assert(loaded > 20, `${loaded} modules: this looks at nothing`);
  for (const place of [...pages.map((name) => `run/base/${name}`), "compare?runs=base,other"]) {
    await page.goto(`${url}/#/${place}`);
    await drawn(page, `${place}, of the tree's modules`);
  }
  await page.keyboard.press("?");
  await page.locator("dialog").waitFor();
  await page.close();
}

// ---- compare

async function comparison({ page, url }) {
  await page.goto(`${url}/#/runs`);
  await page.waitForSelector("#runs tr[data-run=other]");
  await page.locator("#runs input").first().focus();
  for (const key of ["Space", "ArrowDown", "Space", "c"]) await page.keyboard.press(key);
  const levels = await levelsShown(page);
  assert.deepEqual(levels.map((level) => level[0]).sort(), ["base", "other"]);
  assert.match(levels[1][4], /none in \d+/, "synthetic losses are equal bit for bit");
  await drawn(page, "compare");
  await accessible(page, "compare");
  await walked(page, "compare");
  await page.emulateMedia({ colorScheme: "dark" });
  await accessible(page, "compare, dark");
  await page.emulateMedia({ colorScheme: "light" });
  await zoomOfComparison(page);
}

/** The table is drawn before its rows, and may be redrawn. */
async function levelsShown(page) {
  const found = await page.waitForFunction(() => {
    const isLevels = (card) => card.querySelector("h2")?.textContent === "At equal tokens";
    const card = [...document.querySelectorAll("section.card")].find(isLevels);
    const all = [...(card?.querySelectorAll("tbody tr") ?? [])];
    const levels = all.map((row) => [...row.cells].map((cell) => cell.textContent));
    return levels.length === 2 && levels.every((level) => level.length > 4) && levels;
  });
  return found.jsonValue();
}

async function zoomOfComparison(page) {
  const whole = await rows(page, "Compare");
  const box = await figure(page, "Compare").locator(".u-over").boundingBox();
  const closer = page.waitForRequest((r) => /series.*x0=\d+/.test(r.url()));
  const reset = page.locator("button", { hasText: "Reset zoom" });
  await drag(page, box, 0.2, 0.4);
  await closer;
  await reset.waitFor();
  const near = (await rows(page, "Compare")).map((row) => Number(row[1]));
  const [from, to] = [Math.min(...near), Math.max(...near)];
  assert(from > 40 && to < 140, `compare zoomed to ${from} - ${to}`);
  await reset.click();
  await reset.waitFor({ state: "hidden" });
  assert.deepEqual(await rows(page, "Compare"), whole);
}

/** The two runs differ in one bit of one loss. */
async function differingRuns({ page }) {
  const attempt = "SELECT a.id FROM attempt a JOIN run r ON r.id = a.run WHERE r.name = 'other'";
  execFileSync("sqlite3", [
    env.BITRAIN_STORE,
    `UPDATE step SET loss = loss + 1e-15 WHERE step = 149 AND aid = (${attempt})`,
  ]);
  const differing = truth(
    "SELECT count(*) FROM steps x JOIN steps y USING (step) " +
      "WHERE x.run = 'base' AND y.run = 'other' AND x.loss IS NOT y.loss",
  );
  assert.equal(differing, 1);
  await page.reload();
  const sentence = `first differs from base at step ${nth(149)}`;
  await page.getByText(sentence).first().waitFor();
  const levels = page.locator("section.card", { hasText: "At equal tokens" });
  const other = levels.locator("tr", { hasText: "other" });
  await other.locator("td", { hasText: new RegExp(`^${nth(149)}$`) }).waitFor();
}

async function narrow({ page, url }) {
  await page.setViewportSize({ width: 400, height: 900 });
  for (const place of ["runs", "compare?runs=base,other", ...pages.map((p) => `run/base/${p}`)]) {
    await page.goto(`${url}/#/${place}`);
    await page.waitForSelector("figure figcaption:not(:empty), #runs tr[data-run]");
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert(over <= 0, `${place} is wider than 400 px`);
  }
  await accessible(page, "400 px");
  await page.setViewportSize({ width: 1280, height: 2600 });
}

/** Waits until the tile of a page shows a later step than n. */
function reaches(page, n) {
  return page.waitForFunction((want) => {
    const text = document.querySelector("[data-tile=step] dd span")?.textContent;
    return Number(text?.replace(/\D/g, "")) > want;
  }, n);
}

/** Writes a run with a step every 40 ms; `committed` is its newest step. */
function writeRun() {
  const args = [env.BITRAIN_STORE, "late", "ranks=2", "steps=4000", "pace_ms=40"];
  const writer = { child: start(env.BT_SYNTH, args), committed: -1 };
  writer.child.stdout.on("data", (data) => {
    const last = [...String(data).matchAll(/step (\d+)/g)].pop();
    if (last) writer.committed = Number(last[1]);
  });
  return writer;
}

async function liveRun(world) {
  const { context, page, url } = world;
  await page.goto(`${url}/#/runs`);
  await page.waitForSelector(anyRun);
  const writer = writeRun();
  await page.waitForSelector("#runs tr[data-run=late]");
  const second = await newPage(context, "second tab");
  const streams = [];
  for (const one of [page, second]) {
    const name = one === page ? "first" : "second";
    one.on("request", (r) => r.url().endsWith("/stream") && streams.push(name));
  }
  for (const one of [page, second]) {
    await one.goto(`${url}/#/run/late/overview`);
    await drawn(one, "a live run");
  }
  assert.equal(await page.locator("#state").textContent(), "running");
  assert(await page.locator(".verbs").isVisible(), "a live run has its buttons");
  for (const one of [page, second]) await reaches(one, writer.committed);
  assert.deepEqual(streams, ["first"], "two tabs share one event stream");
  await behindProxy(world, writer);
  await curveGrows(page, writer);
  await serverRestarts(world, [page, second], writer);
  await tabTakesOver([page, second], streams, writer);
  await second.close();
  await end(writer.child, "SIGKILL");
}

/** A proxy that buffers the event stream does not block the page. */
async function behindProxy({ browser, url }, writer) {
  const context = await newContext(browser);
  const page = await newPage(context, "behind a proxy");
  await page.route("**/stream", () => {});
  await page.goto(`${url}/#token=${token}`);
  await page.waitForSelector("#runs tr[data-run=late]");
  await page.goto(`${url}/#/run/late/overview`);
  await drawn(page, "a page without its stream");
  await reaches(page, writer.committed);
  await context.close();
}

/** The curve reaches the newest step in the store. */
async function curveGrows(page, writer) {
  const reached = writer.committed;
  await page.waitForFunction((want) => {
    const text = document.querySelector("figure .readout b").textContent;
    return Number(text.replace(/\D/g, "")) > want;
  }, reached);
  assert(plain((await rows(page, "Loss"))[0][0]) > reached);
}

async function serverRestarts(world, both, writer) {
  const [page] = both;
  await end(world.server, "SIGTERM");
  await page.waitForFunction(() =>
    document.getElementById("stream").textContent.includes("connection lost"),
  );
  ({ server: world.server } = await serve(world.port));
  const now = writer.committed;
  for (const one of both) await reaches(one, now);
  await page.waitForFunction(() => document.getElementById("stream").textContent === "");
}

/** The tab with the event stream is closed, and the other tab opens the stream. */
async function tabTakesOver([page, second], streams, writer) {
  const holder = streams.at(-1) === "first" ? page : second;
  const heir = holder === page ? second : page;
  await holder.goto("about:blank");
  await reaches(heir, writer.committed + 20); // excludes steps that the closed tab forwarded
  assert.equal(streams.at(-1), heir === page ? "first" : "second", "the other tab listens now");
  await heir.reload(); // this server was started without --control
  await drawn(heir, "a live run without control");
  assert.equal(await heir.locator(".verbs").count(), 0, "buttons that nobody allowed");
}

async function report({ browser }) {
  const file = `${env.BT_DIR}/r.html`;
  bitrain("report", "base", "-o", file);
  const viewport = { width: 1280, height: 2400 };
  const page = await newPage(await newContext(browser, { offline: true, viewport }), "report");
  page.on("request", (r) => {
    if (!/^(file|data|blob):/.test(r.url())) problems.push(`the report asks for ${r.url()}`);
  });
  for (const name of pages) {
    await page.goto(`${pathToFileURL(file)}#/run/base/${name}`);
    await page.waitForSelector(currentTab(name));
    await drawn(page, `the report's ${name}`);
    if (name !== "overview") await truths[name](page);
    const without = page.locator("figure", { hasText: "nothing recorded yet" }).locator("h2");
    assert.deepEqual(await without.allTextContents(), [], `the report's ${name} lacks data`);
    await harmless(page, `the report's ${name}`);
  }
  assert((await page.locator("title").textContent()).includes("base"));
  await accessible(page, "report");
}

await tested(async (browser) => {
  const { server, port } = await serve(0, "--control");
  const viewport = { width: 1280, height: 2600 };
  const context = await newContext(browser, { viewport, colorScheme: "light" });
  const page = await newPage(context, "page");
  const world = { browser, context, page, server, port, url: `http://127.0.0.1:${port}` };
  await gate(world);
  await runsTable(world);
  await pagesOfRun(world);
  await axes(world);
  await largeCard(world);
  await modules(world);
  await comparison(world);
  await differingRuns(world);
  await narrow(world);
  await liveRun(world);
  await end(world.server, "SIGTERM");
  await report(world);
}, "every page drew, and said what the store says");
