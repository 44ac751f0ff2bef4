// first_page.mjs - the first page of a failed run: message, reason, remedy, chips, texts; the initial range
// of a chart, its y axis, its readout; heat maps of equal and of many ranks; the search in settings; the
// button that restarts an ended run. run_first_page.sh creates the runs.
import assert from "node:assert";
import {
  accessible,
  drawn,
  end,
  env,
  figure,
  harmless,
  newContext,
  newPage,
  problems,
  serve,
  sql,
  tested,
  token,
  truth,
  walked,
} from "./browser_kit.mjs";

const trouble = "section.trouble";

/** The failure, its time, reason, remedy and command equal those of `top --json`. */
async function saysWhatHappened(page) {
  const says = (selector) => page.locator(`${trouble} ${selector}`);
  await page.waitForSelector(trouble);
  assert.equal(await says("h2").textContent(), "failed after step 150 of 200");
  assert.match(await says(".note").textContent(), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, .+ ago$/);
  const texts = await says("p").allTextContents();
  assert.equal(texts[1], "rank 1 was ended by signal 9 (Killed) <b id=hacked>");
  assert.match(
    texts[2],
    /^resume on nodes: training continues from the checkpoint of step 100 and repeats 50 steps/,
  );
  const command = await says("code").textContent();
  assert.equal(command, `bitrain train --resume failed --store ${env.BITRAIN_STORE}`);
  const mends = page.locator(`${trouble} button.main`);
  assert(await mends.isHidden(), "a button that would start the run on another machine");
  await harmless(page, "a failed run");
  return command;
}

async function copies(context, page, command, url) {
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
  await page.locator(`${trouble} button`, { hasText: "Copy" }).click();
  await page.waitForFunction(() => document.getElementById("toast").textContent === "copied");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), command);
}

async function chipsAndTexts(page) {
  const chips = await page.locator(".chips li").allTextContents();
  assert.deepEqual(chips, [
    "model nano, 3.14 M parameters",
    "data book.txt, 410 k tokens",
    "layout 2 ranks x 2 threads, dp 2",
    "lr 0.002, cosine",
    "batch 4096 tokens (16 x 256)",
  ]);
  const samples = page.locator(".sample");
  assert.deepEqual(await samples.locator("h2").allTextContents(), [
    "The model writes, step 100",
    "Before, step 50",
  ]);
  assert.deepEqual(await samples.locator("pre").allTextContents(), [
    "In the beginning <img src=x onerror=hacked=1>\nGod",
    "the of of",
  ]);
  assert.match(await page.locator("[data-tile=step] small").textContent(), /^of 200, 75 %/);
  assert.equal(await page.locator("[data-tile=step] progress").getAttribute("value"), "0.75");
  assert.match(await page.locator("[data-tile=tokens] small").textContent(), /1\.50 passes$/);
}

/**
 * If the validation loss rose again, the tile and the chart's sentence contain its minimum and the step of
 * the minimum.
 */
async function validationRose(page) {
  const at = (step) =>
    truth(`SELECT val_loss FROM steps WHERE run = 'failed' AND step = ${step}`).toFixed(4);
  const [first, least, last] = [at(49), at(99), at(149)];
  const tile = page.locator("[data-tile=validation]");
  assert.equal(await tile.locator("dd span").first().textContent(), last);
  assert.equal(await tile.locator("small").textContent(), `best ${least}, step 100`);
  const caption = await figure(page, "Loss").locator("figcaption").textContent();
  const said = `Validation fell from ${first} to ${least} at step 100, then rose to ${last} over`;
  assert(caption.includes(said), `${caption}, not ${said}`);
}

/** The labels of a chart's y axis are pixels, so the expected range is requested from the server. */
async function chartShowsTheRun(page, url) {
  const loss = figure(page, "Loss");
  const flip = loss.locator("button.range");
  await flip.waitFor();
  assert.equal(await flip.textContent(), "show all values");
  const answer = await page.request.get(`${url}/api/v1/runs/failed/series?metric=loss`);
  const [{ low, high, max }] = (await answer.json()).series;
  assert(high < 10 && Math.max(...max) > 90, `${low} to ${high}: the outliers are shown`);
  await flip.click();
  await page.waitForFunction(
    () => document.querySelector("button.range")?.textContent === "usual range",
  );
  await flip.click();
  await loss.focus();
  await page.keyboard.press("i"); // when zoomed in, the button resets the zoom
  await page.waitForFunction(
    () => document.querySelector("button.range")?.textContent === "usual range",
  );
  await page.keyboard.press("z");
  await page.waitForFunction(
    () => document.querySelector("button.range")?.textContent === "show all values",
  );
}

/**
 * The newest value is exact; the readout contains the steps that a bucket averages and the values that are
 * smoothed.
 */
async function readoutTellsBuckets(page, url) {
  const answers = [];
  page.on("response", (r) => /runs\/long\/series\?.*metric=loss/.test(r.url()) && answers.push(r));
  await page.goto(`${url}/#/run/long/overview`);
  await drawn(page, "a run of many steps");
  const loss = figure(page, "Loss");
  const text = () => loss.locator(".readout").textContent();
  const last = sql("SELECT step, loss FROM steps WHERE run = 'long' ORDER BY step DESC LIMIT 1")[0];
  const newest = (await text()).replaceAll("\u202f", "");
  assert(newest.startsWith(`step ${last.step + 1}`), newest);
  assert(newest.includes(`training ${last.loss.toFixed(4)}`), newest);
  assert.match(newest, /over 60 steps/, "2 % of 3000 steps");
  const { series } = await answers.at(-1).json();
  const average = averageOf(
    series.find((one) => one.metric === "loss"),
    60,
  );
  assert(newest.includes(`, ${average.toFixed(4)} over 60 steps`), `${newest}, not ${average}`);
  await loss.focus();
  await page.keyboard.press("Home");
  const first = truth("SELECT loss FROM steps WHERE run = 'long' AND step = 0");
  assert((await text()).includes(`training ${first.toFixed(4)}`), "the first point is exact");
  await page.keyboard.press("ArrowRight");
  const bucket = /^steps (\d+)–(\d+), mean/.exec((await text()).replaceAll("\u202f", ""));
  assert(bucket, `a bucket is told as one step: ${await text()}`);
  const [from, to] = [Number(bucket[1]) - 1, Number(bucket[2]) - 1];
  const mean = truth(
    `SELECT avg(loss) FROM steps WHERE run = 'long' AND step BETWEEN ${from} AND ${to}`,
  );
  assert((await text()).includes(`training ${mean.toFixed(4)}`), `${await text()}, not ${mean}`);
  await smoothsByShare(page, loss);
  await zoomedSentence(page, loss);
}

/** Returns the final value of means over n steps each, averaged over `window` steps. */
function averageOf({ mean, n }, window) {
  let [sum, weights, weight] = [0, 0, 1];
  for (let i = mean.length - 1; i >= 0; i--) {
    const after = weight * Math.exp(-n[i] / window); // weight of everything before this point
    sum += (weight - after) * mean[i];
    weights += weight - after;
    weight = after;
  }
  return sum / weights;
}

async function smoothsByShare(page, loss) {
  const slider = page.locator("input[type=range][aria-label=smooth]");
  await slider.focus();
  await page.keyboard.press("ArrowRight");
  assert.match(await loss.locator(".readout").textContent(), /over 150 steps/);
  await page.keyboard.press("Home");
  assert.doesNotMatch(await loss.locator(".readout").textContent(), /over \d+ steps/);
  for (let i = 0; i < 3; i++) await page.keyboard.press("ArrowRight");
  assert.match(await loss.locator(".readout").textContent(), /over 60 steps/);
}

/** The sentence about a zoomed range contains its first and last step, and the values there. */
async function zoomedSentence(page, loss) {
  await loss.focus();
  await page.keyboard.press("Home");
  for (let i = 0; i < 4; i++) await page.keyboard.press("Shift+ArrowRight");
  const asked = page.waitForRequest((r) => /series.*x0=\d+/.test(r.url()));
  await page.keyboard.press("+");
  const query = new URL((await asked).url()).searchParams;
  const [from, to] = [Number(query.get("x0")), Number(query.get("x1"))];
  await page.waitForFunction(() =>
    /between steps/.test(document.querySelector("figure figcaption").textContent),
  );
  const caption = (await loss.locator("figcaption").textContent()).replaceAll("\u202f", "");
  const said = /from ([\d.]+) to ([\d.]+) between steps (\d+) and (\d+)/.exec(caption);
  assert(said, caption);
  assert(Number(said[3]) - 1 <= from && from - Number(said[3]) < 16, `${caption}, from ${from}`);
  assert.equal(Number(said[4]) - 1, to);
  const at = (step) => truth(`SELECT loss FROM steps WHERE run = 'long' AND step = ${step}`);
  assert.equal(said[2], at(to).toFixed(4));
  await page.keyboard.press("z");
}

/** Noise is not drawn as a difference, and 256 ranks fit into the window. */
async function heatMaps(context, url) {
  const page = await newPage(context, "256 ranks");
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(`${url}/#/run/many/ranks`);
  const map = figure(page, "Rank by time");
  await map.scrollIntoViewIfNeeded();
  await map.locator("canvas.heat").waitFor();
  await page.waitForFunction(() => document.querySelector("canvas.heat")?.clientHeight > 200);
  const scale = await map.locator(".readout span").first().textContent();
  assert.match(scale, /0\.8×/);
  assert.match(scale, /1\.25×/);
  const { height } = await map.locator("canvas.heat").boundingBox();
  assert(height >= 256 && height < 800 - 100, `${height} pixels for 256 ranks`);
  assert.match(
    await page.locator(".crowded").textContent(),
    /^host node0 was overloaded \(3\.0 runnable tasks per core/,
  );
  await linkNotMeasured(page, url);
  await page.close();
}

/** If a busy machine prevented the measurement of the link, no rate is shown. */
async function linkNotMeasured(page, url) {
  const sentence = (text) =>
    figure(page, "Kinds of exchange").locator("figcaption", { hasText: text });
  await page.goto(`${url}/#/run/many/comm`);
  await sentence("dp could not be measured, because the machine was busy").waitFor();
  await page.goto(`${url}/#/run/failed/comm`);
  await sentence("dp 20 µs and 76.3 MiB/s").waitFor();
}

async function settingsAreSearched(page, url) {
  await page.goto(`${url}/#/run/failed/system`);
  const card = figure(page, "Settings and facts");
  const keys = () => card.locator("tbody code").allTextContents();
  await card.locator("tbody code").first().waitFor();
  const all = await keys();
  assert(all.includes("optim.lr") && all.includes("params"));
  await card.locator("input[type=search]").fill("LR 0.002");
  await page.waitForFunction(
    (n) => document.querySelectorAll("figure tbody code").length < n,
    all.length,
  );
  assert.deepEqual(await keys(), ["optim.lr"]);
}

/**
 * The chart of a range test has one point per step, the smoothed line, and a vertical line at the suggested
 * rate.
 */
async function rateFinder(page, url) {
  await page.goto(`${url}/#/run/range/overview`);
  const card = figure(page, "Loss over learning rate");
  await card.locator("path.way").waitFor();
  const answer = await page.request.get(`${url}/api/v1/runs/range/lr_range`);
  const { lr, loss, suggested, top } = await answer.json();
  assert.equal(lr.length, 200);
  assert(suggested > 1e-4 && suggested < 1e-2, `${suggested}: the fall is steepest at 1e-3`);
  assert(top === null || Math.max(...loss) <= top, "a loss that only falls is shown whole");
  const { points, rule, way, texts } = await card.locator("svg.plane").evaluate((svg) => {
    const numbers = (one, names) => names.map((name) => Number(one.getAttribute(name)));
    const pathOf = (name) => svg.querySelector(`path.${name}`).getAttribute("d");
    return {
      points: [...svg.querySelectorAll("circle")].map((one) => numbers(one, ["cx", "cy"])),
      rule: Number(/^M([\d.]+) /.exec(pathOf("rule"))[1]),
      way: pathOf("way").split(/[ML]/).slice(1),
      texts: [...svg.querySelectorAll("text")].map((one) => one.textContent),
    };
  });
  const [width] = [points.at(-1)[0] - points[0][0]];
  assert.equal(points.length, 200);
  assert.equal(way.length, 200);
  points.forEach(([x, y], i) => {
    const wanted = points[0][0] + (width * i) / 199; // logarithmic axis
    assert(Math.abs(x - wanted) < 0.2, `point ${i} at ${x}, not ${wanted}`);
    assert(!i || y >= points[i - 1][1], "a smaller loss stands lower");
  });
  const at = points[0][0] + (width * Math.log(suggested / 1e-6)) / Math.log(1e6);
  assert(Math.abs(rule - at) < 0.5, `the rule at ${rule}, not ${at}`);
  for (const text of [
    "learning rate",
    "loss, nats",
    "0.001",
    "1",
    String(Number(suggested.toPrecision(2))),
  ])
    assert(texts.includes(text), `no "${text}" among ${texts.join()}`);
  assert.match(await card.locator("figcaption").textContent(), /^Suggested: 0\.00/);
  await accessible(page, "a range test");
}

/** No text is clipped at the edge of a drawing: "180 k" would read as 180. */
async function textsAreWhole(context, url) {
  const page = await newPage(context, "whole texts");
  await page.addInitScript(() => {
    window.drawn = 0;
    window.cut = [];
    const { prototype } = CanvasRenderingContext2D;
    const { fillText } = prototype;
    prototype.fillText = function (text, x, y) {
      const { width } = this.measureText(text);
      const align = { center: 0.5, right: 1, end: 1 }[this.textAlign] ?? 0;
      const m = this.getTransform();
      const isFlat = m.b === 0;
      const left = m.a * (x - align * width) + m.e;
      const right = left + m.a * width;
      window.drawn += 1;
      if (isFlat && (left < -1 || right > this.canvas.width + 1)) window.cut.push(text);
      return fillText.call(this, text, x, y);
    };
  });
  // The position of the last label depends on the width and on the steps.
  for (const width of [1600, 1280, 900, 640])
    for (const path of ["run/failed/overview", "run/long/steps", "compare?runs=failed,long"]) {
      await page.setViewportSize({ width, height: 5000 }); // everything is visible
      await page.goto(`${url}/#/${path}`);
      await page.reload();
      await drawn(page, path);
      for (const axis of ["step", "tokens", "time", "bytes"]) {
        await page.locator('select:has(option[value="bytes"])').first().selectOption(axis);
        await drawn(page, `${path} by ${axis}`);
      }
      const told = await page.evaluate(() => [window.drawn, [...new Set(window.cut)]]);
      assert(told[0] > 10, `${told[0]} texts are drawn on ${path}`);
      assert.deepEqual(told[1], [], `${path}, ${width} pixels wide`);
    }
  await page.close();
}

/** A compared run has no value after its end, or after its newest point if it is live. */
async function comparisonTellsEnds(page, url) {
  for (const [path, figure] of [
    ["compare?runs=failed,long,behind", "figure:not(.runs-chart)"],
    ["", "figure.runs-chart"],
  ]) {
    await page.goto(`${url}/#/${path}`);
    await page.waitForFunction((chart) => {
      const text = document.querySelector(`${chart} .readout`)?.textContent || "";
      return /failed ended/.test(text) && /long \d/.test(text) && /behind not there yet/.test(text);
    }, figure);
  }
}

/**
 * If the server has --control, the button asks for confirmation and restarts the run; the page then shows it.
 */
async function resumes(context, page, url) {
  await page.goto(`${url}/#/run/trained/overview`);
  await page.waitForSelector(trouble);
  assert.equal(await page.locator(`${trouble} h2`).textContent(), "stopped after step 4 of 12");
  await page.locator(`${trouble} button.main`, { hasText: "Resume" }).click();
  const asked = await page.locator("dialog h3").allTextContents();
  await page.locator("dialog button.main", { hasText: "Resume" }).click();
  await page.waitForFunction(() =>
    document.getElementById("toast").textContent.includes("started again"),
  );
  assert.deepEqual(asked, ["Resume trained?"]);
  const done = "SELECT state || steps FROM runs WHERE run = 'trained'";
  for (let i = 0; i < 600 && truth(done) !== "done12"; i++) await page.waitForTimeout(200);
  assert.equal(truth(done), "done12", "the run was started again, and ended");
  await page.reload();
  await page.waitForSelector("#state.done");
  assert(await page.locator(trouble).isHidden(), "nothing is wrong any more");
}

/** A run is started from the list: the dialog shows the action and errors, and opens the run. */
async function starts(page, url) {
  await page.goto(`${url}/#/runs`);
  await page.locator("button", { hasText: "Start a run" }).click();
  const dialog = page.locator("dialog");
  const field = (name) => dialog.locator(`[aria-label="${name}"]`);
  const said = dialog.locator("form p.note");
  assert.match(await said.textContent(), /^Trains nano on the built-in text/);
  await field("data").fill("synth:nothing");
  await field("steps").fill("2");
  await field("ranks").fill("1");
  await field("threads").fill("1");
  await field("name").fill("from page");
  assert.match(await said.textContent(), /2 steps.*--data synth:nothing --steps 2 --ranks 1/);
  const wrong = async (words) => {
    await dialog.locator("button.main").click();
    await page.waitForFunction(
      (text) => document.querySelector("dialog [role=alert]")?.textContent.includes(text),
      words,
    );
  };
  await wrong("'name' must be of letters");
  await accessible(page, "the dialog that starts a run");
  await field("name").fill("from-page");
  await wrong("synth:nothing");
  assert.equal(await field("steps").inputValue(), "2", "what was filled in stays");
  assert.equal(truth("SELECT count(*) FROM runs WHERE run = 'from-page'"), 0);
  await field("data").fill("synth:chain");
  await dialog.locator("button.main").click();
  await page.waitForURL(/#\/run\/from-page\/overview/);
  await page.waitForSelector("#state.done", { timeout: 60000 });
  assert.equal(truth("SELECT steps FROM runs WHERE run = 'from-page'"), 2);
  // The browser logs the refusal.
  const refused = problems.filter((one) => one.includes("status of 400"));
  assert.equal(refused.length, 2, problems.join("\n"));
  refused.forEach((one) => problems.splice(problems.indexOf(one), 1));
}

/** The name of an island links to its run if the database contains that run. */
async function islandsAreLinked(page, url) {
  await page.goto(`${url}/#/run/hub/islands`);
  const names = figure(page, "Islands").locator("tbody tr td:first-child");
  await names.first().waitFor();
  assert.deepEqual(await names.allTextContents(), ["elsewhere", "long"]);
  assert.equal(await names.locator("a").count(), 1);
  await names.locator("a", { hasText: "long" }).click();
  await page.waitForURL(/#\/run\/long\/overview/);
  await drawn(page, "the run of an island");
}

/** A server without --control has no such button. */
async function mayNot(context) {
  const { server, port } = await serve(0);
  const page = await newPage(context, "without control");
  await page.goto(`http://127.0.0.1:${port}/#token=${token}`);
  await page.waitForSelector("#runs tr[data-run=failed]");
  assert.equal(await page.locator("button", { hasText: "Start a run" }).count(), 0);
  await page.goto(`http://127.0.0.1:${port}/#/run/trained/overview`);
  await page.waitForSelector(trouble);
  await page.locator(`${trouble} button`, { hasText: "Copy" }).waitFor();
  assert(await page.locator(`${trouble} button.main`).isHidden(), "a button that nobody allowed");
  await page.close();
  await end(server, "SIGTERM");
}

await tested(async (browser) => {
  const { port } = await serve(0, "--control");
  const url = `http://127.0.0.1:${port}`;
  const viewport = { width: 1280, height: 2600 };
  const context = await newContext(browser, { viewport, colorScheme: "light" });
  const page = await newPage(context, "page");
  await page.goto(`${url}/#token=${token}`);
  await page.waitForSelector("#runs tr[data-run=failed]");
  await page.goto(`${url}/#/run/failed/overview`);
  await drawn(page, "a failed run");
  const command = await saysWhatHappened(page);
  await copies(context, page, command, url);
  await chipsAndTexts(page);
  await accessible(page, "a failed run");
  await walked(page, "a failed run");
  await validationRose(page);
  await chartShowsTheRun(page, url);
  await readoutTellsBuckets(page, url);
  await heatMaps(context, url);
  await rateFinder(page, url);
  await settingsAreSearched(page, url);
  await comparisonTellsEnds(page, url);
  await islandsAreLinked(page, url);
  await textsAreWhole(context, url);
  await mayNot(context);
  await resumes(context, page, url);
  await starts(page, url);
}, "the first page answers the first question");
