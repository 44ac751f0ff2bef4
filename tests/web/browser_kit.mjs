// browser_kit.mjs - helpers of the browser tests: serve a store, collect errors, query expected values, check
// that a page is drawn, accessible, and usable by keyboard. run_browser.sh sets the environment; `problems`
// must be empty at the end.
import assert from "node:assert";
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

export const env = process.env;
export const token = env.BITRAIN_DASH_TOKEN;
export const pages = [
  "overview",
  "ranks",
  "steps",
  "comm",
  "ternary",
  "events",
  "system",
  "metrics",
];
export const problems = [];

const { chromium } = await import(pathToFileURL(`${env.BT_MODULES}/playwright-core/index.mjs`));
const axe = readFileSync(`${env.BT_MODULES}/axe-core/axe.min.js`, "utf8");
const children = [];

export function bitrain(...args) {
  return execFileSync(env.BITRAIN, args, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
}

export function start(program, args) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return child;
}

export function killAll() {
  for (const child of children) child.kill("SIGKILL");
}

/** Starts a server for the store; port 0: a free port. */
export async function serve(port, ...more) {
  const server = start(env.BITRAIN, ["dash", "--port", String(port), "--json", ...more]);
  let text = "";
  for await (const chunk of server.stdout) {
    text += chunk;
    if (text.includes("\n")) break;
  }
  return { server, port: JSON.parse(text).port };
}

export async function end(child, signal) {
  child.kill(signal);
  await new Promise((done) => {
    if (child.exitCode !== null) done();
    else child.on("exit", done);
  });
}

export function sql(text) {
  return JSON.parse(bitrain("query", "--json", text));
}

/** Returns the single value of a query. */
export function truth(text) {
  return Object.values(sql(text)[0])[0];
}

export function count(value) {
  return value.toLocaleString("en-US").replaceAll(",", "\u202f");
}

/** Converts a step of the store, which counts from 0, to the page, which counts from 1. */
export function nth(step) {
  return count(step + 1);
}

export function plain(text) {
  return Number(text.replace(/\D/g, ""));
}

/** Runs a whole test: body gets a browser; all problems must match `expected`, and the time is limited. */
export async function tested(body, done, { expected = null, seconds = 210 } = {}) {
  const browser = await launch();
  const clock = setTimeout(() => {
    console.error("out of time");
    process.exit(1);
  }, seconds * 1000);
  try {
    await body(browser);
    const left = problems.filter((text) => !expected || !expected.test(text));
    assert.deepEqual(left, [], "console errors, policy violations or serious findings");
    console.log(done);
  } finally {
    clearTimeout(clock);
    killAll();
    await browser.close();
  }
}

export function launch() {
  return chromium.launch({
    executablePath: env.BT_CHROMIUM || "/usr/bin/chromium",
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--disable-dev-shm-usage",
    ],
  });
}

// Tests wait for conditions and not for fixed times; on a loaded machine this may take long.
const patienceMs = 60000;

export async function newContext(browser, options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(patienceMs);
  return context;
}

const lost =
  /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/;

/** Opens a page whose errors, dialogs and policy violations are collected as problems. */
export async function newPage(context, what) {
  const page = await context.newPage();
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !lost.test(text)) problems.push(`${what}: ${text}`);
  });
  page.on("pageerror", (error) => problems.push(`${what}: ${error.stack}`));
  page.on("dialog", (dialog) => {
    problems.push(`${what}: a dialog "${dialog.message()}"`);
    dialog.dismiss();
  });
  await page.addInitScript(() =>
    document.addEventListener("securitypolicyviolation", (event) =>
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`),
    ),
  );
  return page;
}

export function figure(page, title) {
  const heading = page.locator("h2", { hasText: new RegExp(`^${title}`) });
  return page.locator("figure", { has: heading });
}

/** Returns the texts of the rows found by a locator. */
export function cellsOf(rows) {
  return rows.evaluateAll((all) => all.map((row) => [...row.cells].map((c) => c.textContent)));
}

/** Returns the table behind a figure (key T) as texts. */
export async function rows(page, title) {
  const one = figure(page, title);
  await one.focus();
  await page.keyboard.press("t");
  await one.locator("table tbody tr").first().waitFor();
  const out = await cellsOf(one.locator("tbody tr"));
  await page.keyboard.press("t");
  return out;
}

/** Drags the pointer over a part of a box; from and to are shares of its width. */
export async function drag(page, box, from, to) {
  await page.mouse.move(box.x + box.width * from, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * to, box.y + 60, { steps: 4 });
  await page.mouse.up();
}

/** Checks that all figures are drawn, none with an error, each with a name. */
export async function drawn(page, what) {
  await page.waitForFunction(() => {
    const figures = [...document.querySelectorAll("figure")];
    const hasDrawn = (one) => one.querySelector(".body").childElementCount > 0;
    return figures.length > 0 && figures.every(hasDrawn);
  });
  assert.equal(await page.locator(".error").count(), 0, `an error on ${what}`);
  for (const one of await page.locator("figure").all())
    assert((await one.getAttribute("aria-label")).length > 3, `a figure without a name on ${what}`);
}

export async function accessible(page, what) {
  // A fading message has no contrast, so it is hidden at once while axe runs.
  const isStill = () => {
    const toast = document.getElementById("toast");
    if (toast) toast.style.transition = "none";
    return !toast || /^[01]?$/.test(getComputedStyle(toast).opacity);
  };
  await page.waitForFunction(isStill);
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, impact, help, nodes } of found.violations) {
    if (!["serious", "critical"].includes(impact)) continue;
    const where = nodes.slice(0, 3).map((node) => node.html.slice(0, 120));
    problems.push(`${what}: ${id}: ${help}: ${where.join(" | ")}`);
  }
  assert(found.passes.length > 5, "axe looked at nothing");
}

/** Checks that no text of a run became markup. */
export async function harmless(page, what) {
  const harm = await page.evaluate(() => [
    typeof window.hacked,
    document.querySelectorAll("img, #hacked").length,
  ]);
  assert.deepEqual(harm, ["undefined", 0], `a text of the run became markup on ${what}`);
}

/**
 * Checks that Tab reaches everything that a mouse reaches, visibly and with an outline, and that each drawing
 * has its sentence and its numbers.
 */
export async function walked(page, what) {
  await page.evaluate(() => {
    window.reached = new Set();
  });
  for (let i = 0, ends = 0; i < 2000 && ends < 2; i++) {
    await page.keyboard.press("Tab");
    const found = await page.evaluate(lookAtFocus);
    if (found === "twice") break;
    if (found === "end") ends++;
    else if (found) problems.push(`${what}: the focus is not seen on ${found}`);
  }
  for (const wanting of await page.evaluate(findWanting)) problems.push(`${what}: ${wanting}`);
}

/**
 * In the page: returns "" if the focus is visible, "end", "twice", or the element with the invisible focus.
 */
function lookAtFocus() {
  const el = document.activeElement;
  if (!el || el === document.body) return "end";
  if (window.reached.has(el)) return "twice";
  window.reached.add(el);
  const style = getComputedStyle(el);
  const box = el.getBoundingClientRect();
  const top = document.getElementById("top");
  const isOnTop = top.contains(el) || el.className === "skip";
  const roof = isOnTop ? 0 : top.getBoundingClientRect().bottom;
  const hasOutline = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const isInSight = box.width > 0 && box.bottom > roof && box.top < innerHeight;
  const isSeen = el.matches(":focus-visible") && hasOutline && isInSight;
  return isSeen ? "" : el.outerHTML.slice(0, 120);
}

/** In the page: lists elements that Tab did not reach, and drawings without a sentence or a table. */
function findWanting() {
  const controls = "a[href], button, input, select, summary, [tabindex='0']";
  const isThere = (el) => !el.disabled && el.checkVisibility({ visibilityProperty: true });
  const unreached = [...document.querySelectorAll(controls)].filter(
    (el) => isThere(el) && !window.reached.has(el),
  );
  const drawings = [...document.querySelectorAll("figure")].filter((one) =>
    one.querySelector("canvas, .lanes, .histogram, .bars, .bar.big"),
  );
  const isMute = (one) =>
    one.querySelector("figcaption").textContent.length < 12 ||
    one.getAttribute("aria-label").length < 16;
  const isTableless = (one) => !one.querySelector("button[title^='numbers as a table']");
  const title = (one) => one.querySelector("h2").textContent;
  return [
    ...unreached.map((el) => `not reached: ${el.outerHTML.slice(0, 120)}`),
    ...drawings.filter(isMute).map((one) => `no sentence: ${title(one)}`),
    ...drawings.filter(isTableless).map((one) => `no table: ${title(one)}`),
  ];
}
