// many_runs.mjs - the table of 500 runs: only visible rows are drawn, in the right order; focus and selection
// survive scrolling; searching and printing draw all rows; screen readers get the total. run_many_runs.sh
// creates the runs.
import assert from "node:assert";
import { execFileSync } from "node:child_process";
import {
  accessible,
  env,
  harmless,
  newContext,
  newPage,
  serve,
  sql,
  tested,
  token,
} from "./browser_kit.mjs";

const total = 500;
const drawnMost = 90; // rows in the document
const nameOf = (i) => `run-${String(i + 1).padStart(3, "0")}`;

let page = null;
const row = (run) => page.locator(`#runs tr[data-run=${run}]`);
const tick = (run) => row(run).locator("input");

/** In the page: returns the rows in the document, and those visible at the top and the bottom of the list. */
function look() {
  const box = document.querySelector(".runs-list .scroll");
  const head = document.querySelector("#runs thead th").getBoundingClientRect();
  const { left, bottom } = box.getBoundingClientRect();
  const seenAt = (y) => document.elementFromPoint(left + 60, y)?.closest("tr")?.dataset.run;
  const rows = [...document.querySelectorAll("#runs tbody tr[data-run]")];
  return {
    drawn: rows.map((one) => one.dataset.run),
    indices: rows.map((one) => Number(one.getAttribute("aria-rowindex"))),
    count: Number(document.getElementById("runs").getAttribute("aria-rowcount")),
    top: seenAt(head.bottom + 2),
    bottom: seenAt(bottom - 18),
    scrolled: box.scrollTop,
    isAtEnd: box.scrollTop + box.clientHeight >= box.scrollHeight - 1,
  };
}

/** Scrolls to a position, waits for the next frame, and returns the rows. */
async function scrollTo(top) {
  await page.evaluate(async (to) => {
    document.querySelector(".runs-list .scroll").scrollTop = to;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  }, top);
  return page.evaluate(look);
}

/** Checks that the drawn rows are consecutive, in order, and numbered as screen readers count. */
function checkDrawn({ drawn, indices, count }, order) {
  const from = order.indexOf(drawn[0]);
  assert.deepEqual(drawn, order.slice(from, from + drawn.length));
  assert.deepEqual(
    indices,
    drawn.map((none, i) => from + i + 2),
    "the titles are row 1",
  );
  assert.equal(count, order.length + 1);
}

async function rowsComeAsItScrolls(order) {
  const seen = new Set();
  let last = await scrollTo(0);
  const height = await row(order[0]).evaluate((one) => one.getBoundingClientRect().height);
  for (let top = 0; ; top += 400) {
    last = await scrollTo(top);
    checkDrawn(last, order);
    assert(last.drawn.length < drawnMost, `${last.drawn.length} rows are in the document`);
    const first = order.indexOf(last.top);
    assert(Math.abs(first - last.scrolled / height) <= 1, `${last.top} at ${last.scrolled} px`);
    assert(last.drawn.includes(last.bottom), `nothing is drawn at the bottom: ${last.bottom}`);
    order.slice(first, order.indexOf(last.bottom) + 1).forEach((run) => seen.add(run));
    if (last.isAtEnd) break;
  }
  assert.equal(last.bottom, order.at(-1));
  assert.equal(seen.size, order.length, "runs that were in sight at some time");
}

/** Jumps far, as a user does who drags the scroll bar; a column widened by a distant row remains wide. */
async function jumps(order) {
  const widths = () =>
    page.locator("#runs thead th").evaluateAll((all) => all.map((one) => one.offsetWidth));
  checkDrawn(await scrollTo(9000), order);
  await scrollTo(1e6);
  const wide = await widths();
  for (const top of [0, 5000, 100]) {
    checkDrawn(await scrollTo(top), order);
    const now = await widths();
    now.forEach((width, i) => assert(width >= wide[i] - 1, `column ${i} is ${width} px`));
  }
}

const focused = () =>
  page.evaluate(
    () => document.activeElement.closest("tr")?.dataset.run || document.activeElement.className,
  );

async function focusSurvives(order) {
  await scrollTo(0);
  await tick(order[3]).focus();
  await scrollTo(6000);
  assert.equal(await focused(), "scroll", "the list has it while the row is away");
  assert.equal(await row(order[3]).count(), 0);
  await scrollTo(0);
  assert.equal(await focused(), order[3], "and gives it back");
  await scrollTo(6000);
  await page.keyboard.press("ArrowDown");
  assert.equal(await focused(), order[4], "arrows go on from the row that had it");
  for (let i = 0; i < 60; i++) await page.keyboard.press("ArrowDown");
  assert.equal(await focused(), order[64]);
  const { top, bottom } = await page.evaluate(look);
  assert(order.indexOf(top) <= 64 && order.indexOf(bottom) >= 64, "and it is in sight");
  await page.keyboard.press("End");
  assert.equal(await focused(), order.at(-1));
  await page.keyboard.press("Home");
  assert.equal(await focused(), order[0]);
}

/** New records move neither the scroll position nor the focus. */
async function newRunKeepsPlace(order) {
  await scrollTo(4000);
  await tick(order[140]).focus();
  const { scrolled } = await page.evaluate(look);
  execFileSync("sqlite3", [
    env.BITRAIN_STORE,
    "CREATE TEMP TABLE one AS SELECT * FROM run WHERE id = 1;" +
      "UPDATE one SET id = 501, name = 'newest', created_us = created_us + 1; INSERT INTO run SELECT * FROM one",
  ]);
  await page.getByText(`${total + 1} of ${total + 1} runs`).waitFor();
  assert.equal(await focused(), order[140]);
  const now = await page.evaluate(look);
  assert.equal(now.scrolled, scrolled);
  order.unshift("newest");
  checkDrawn(now, order);
}

/** Selects a range by a click, and one with Shift 300 rows below. */
async function rangesByShift(order) {
  await scrollTo(0);
  await tick(order[2]).click();
  await scrollTo(300 * 31);
  await tick(order[302]).click({ modifiers: ["Shift"] });
  await page.getByText("Compare 301 runs").waitFor();
  for (const [top, from, to] of [
    [0, 0, 20],
    [5000, 2, 303],
    [1e6, 480, 501],
  ]) {
    const { drawn } = await scrollTo(top);
    const ticked = await page
      .locator("#runs tbody tr:has(input:checked)")
      .evaluateAll((all) => all.map((one) => one.dataset.run));
    const want = drawn.filter((run) => order.indexOf(run) >= 2 && order.indexOf(run) <= 302);
    assert.deepEqual(ticked, want, `ticked rows at ${top} px`);
    assert(drawn.some((run) => order.indexOf(run) >= from && order.indexOf(run) < to));
  }
  assert.match(page.url(), new RegExp(`runs=.*${order[302]}`), "the link is the choice");
}

/** Ctrl+F searches all runs; another order restores the short list. Printing draws all runs, too. */
async function searchAndPrint(order) {
  const far = order[444];
  const drawn = () => page.locator("#runs tbody tr[data-run]").count();
  const becomes = (want) =>
    page.waitForFunction((n) => document.querySelectorAll("#runs tbody tr").length === n, want);
  await scrollTo(0);
  assert.equal(await row(far).count(), 0);
  await page.locator(".runs-list .scroll").focus();
  await page.keyboard.press("Control+f");
  await becomes(order.length);
  assert(await page.evaluate((text) => window.find(text), far), "the page is searched");
  checkDrawn(await page.evaluate(look), order);
  await page.locator("#runs thead button", { hasText: /^loss$/ }).click();
  await page.waitForFunction(
    (n) => document.querySelectorAll("#runs tbody tr").length < n,
    drawnMost,
  );
  const byLoss = sql("SELECT run FROM runs ORDER BY loss DESC").map(({ run }) => run);
  const now = await scrollTo(0);
  assert.deepEqual(now.drawn.slice(0, 20), byLoss.slice(0, 20));
  assert((await drawn()) < drawnMost);
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  assert.equal(await drawn(), order.length);
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  assert((await drawn()) < drawnMost, "after printing the list is as before");
}

await tested(
  async (browser) => {
    const { port } = await serve(0);
    const context = await newContext(browser, { viewport: { width: 1280, height: 900 } });
    page = await newPage(context, "many runs");
    await page.goto(`http://127.0.0.1:${port}/#token=${token}`);
    await row(nameOf(0)).waitFor();
    await page.getByText(`${total} of ${total} runs`).waitFor();
    const order = Array.from({ length: total }, (none, i) => nameOf(i));
    await rowsComeAsItScrolls(order);
    await jumps(order);
    await focusSurvives(order);
    await newRunKeepsPlace(order);
    await rangesByShift(order);
    await searchAndPrint(order);
    await accessible(page, "500 runs");
    await harmless(page, "500 runs");
  },
  "500 runs scroll as twenty",
  { seconds: 160 },
);
