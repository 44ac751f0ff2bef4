// verbs.mjs - controls a training from its page: the buttons of each state, and the outcome of each button,
// which the run records. run_verbs.sh starts the runs: "live" takes long, "short" has ended.
import assert from "node:assert";
import { existsSync } from "node:fs";
import {
  accessible,
  newContext,
  newPage,
  serve,
  sql,
  tested,
  token,
  truth,
} from "./browser_kit.mjs";

// buttons of the bar by state, in order (states.def, verbs.def)
const notes = ["Note here", "Name, tags, note"];
const offered = {
  running: ["Pause", "Checkpoint", "Stop", "Evaluate", "Learning rate", "Sample", ...notes],
  paused: ["Resume", "Checkpoint", "Stop", "Evaluate", "Learning rate", "Sample", ...notes],
  stopped: ["Resume", ...notes, "Remove"],
  done: [...notes, "Remove"],
};

let page = null;
const bar = () => page.locator(".verbs");

/** Waits until the page shows this state, and checks its buttons. */
async function offers(state) {
  await page.waitForSelector(`#state.${state}`);
  const same = (want) => {
    const shown = [...document.querySelectorAll(".verbs button")].filter((one) => !one.hidden);
    const texts = shown.map((one) => one.textContent.replace(/^(Learning rate).*/, "$1"));
    return texts.join() === want;
  };
  await page.waitForFunction(same, offered[state].join()).catch(async () => {
    const texts = await bar().locator("button:visible").allTextContents();
    assert.fail(`${state}: ${texts.join()}, not ${offered[state].join()}`);
  });
  await accessible(page, `the verbs of a run that is ${state}`);
}

const eventsOf = (run) =>
  sql(`SELECT seq, kind, title FROM events WHERE run = '${run}' ORDER BY seq`);

/** Fills in a dialog; fields: values by label; true ticks a box. */
async function answerDialog(title, fields, action) {
  const dialog = page.locator("dialog");
  await dialog.waitFor();
  assert.match(await dialog.locator("h3").first().textContent(), title);
  for (const [label, value] of Object.entries(fields)) {
    const field = dialog
      .locator(`[aria-label="${label}"], label:has-text("${label}") input`)
      .first();
    if (value === true) await field.check();
    else await field.fill(value);
  }
  await accessible(page, `the dialog ${title}`);
  await dialog.locator("button", { hasText: new RegExp(`^${action}$`) }).click();
}

async function fillDialog(title, fields, action) {
  await answerDialog(title, fields, action);
  await page.locator("dialog").waitFor({ state: "detached" });
}

const refusal = /status of 400/; // the browser's log of refusedDialog

/** A refused request leaves the dialog open with its fields and the server's message. */
async function refusedDialog(title, fields, action, why) {
  await answerDialog(title, fields, action);
  assert.match(await page.locator("dialog [role=alert]").textContent(), why);
  for (const [label, value] of Object.entries(fields)) {
    const field = page.locator(`dialog [aria-label="${label}"]`);
    assert.equal(await field.inputValue(), value);
  }
}

// A better validation is saved, followed by a sample; checkpoints are verified in between.
const onTheirOwn = ["checkpoint", "sample", "ckpt_verified"];

/**
 * Presses a button, completes its dialog, and waits for the message in the bar. events: the kinds that the
 * run records as a result, each once.
 */
async function does(run, { press, dialog, says, events }) {
  const before = eventsOf(run).length;
  await bar()
    .locator("button:visible", { hasText: new RegExp(`^${press}`) })
    .click();
  if (dialog) await fillDialog(...dialog);
  const said = (text) => new RegExp(text).test(document.querySelector(".verbs .note").textContent);
  await page.waitForFunction(said, says.source).catch(async () => {
    const text = await bar().locator(".note").textContent();
    assert.fail(`${press}: the bar says "${text}", not ${says}`);
  });
  const kinds = () => eventsOf(run).slice(before);
  const count = (list, kind) => list.filter((one) => one === kind).length;
  const isThere = (kind) =>
    count(
      kinds().map((one) => one.kind),
      kind,
    ) >= count(events, kind);
  for (let i = 0; i < 100 && !events.every(isThere); i++) await page.waitForTimeout(50);
  await page.waitForTimeout(150); // no further event
  const got = kinds().filter(({ kind }) => events.includes(kind) || !onTheirOwn.includes(kind));
  // Kinds that also occur on their own, such as the checkpoint of every ten steps, may occur once more.
  const once = got.filter(
    (one, i) =>
      !onTheirOwn.includes(one.kind) || got.findIndex(({ kind }) => kind === one.kind) === i,
  );
  assert.deepEqual(
    once.map(({ kind }) => kind).sort(),
    events.slice().sort(),
    `${press}: ${JSON.stringify(got)}`,
  );
}

const working = (steps) => [
  {
    press: "Learning rate",
    dialog: [/^Learning rate of live$/, { "peak learning rate": "1e-4" }, "Set"],
    says: /peak learning rate is 0\.0001/,
    events: ["control", "control"], // the sender; the first step with the change
  },
  {
    press: "Sample",
    dialog: [/^A sample of live$/, { prompt: "In the beginning" }, "Write"],
    says: /In the beginning|sample after/,
    events: ["control", "sample"],
  },
  { press: "Evaluate", says: steps.evaluate, events: ["control", "evaluation"] },
  { press: "Checkpoint", says: steps.checkpoint, events: ["control", "checkpoint"] },
  {
    press: "Note here",
    dialog: [/^Note at step \S+ of live$/, { note: "look here" }, "Note"],
    says: /^noted at step \d+$/,
    events: ["annotation"],
  },
];

async function whileItRuns() {
  await offers("running");
  const said = { evaluate: /validation|evaluat/, checkpoint: /checkpoint/ };
  for (const one of working(said)) await does("live", one);
  await does("live", {
    press: "Name, tags, note",
    dialog: [
      /^Name, tags and note of live$/,
      { tags: "warm\nto be cited", note: "from the page" },
      "Keep",
    ],
    says: /^live: noted$/,
    events: [],
  });
  const row = sql("SELECT tags, note FROM runs WHERE run = 'live'")[0];
  assert.deepEqual(row, { tags: "warm to\u00a0be\u00a0cited", note: "from the page" });
  await does("live", {
    press: "Pause",
    says: /^paused after step \d+/,
    events: ["control", "paused"],
  });
  await offers("paused");
  for (const one of working(said)) await does("live", one);
  await does("live", {
    press: "Resume",
    says: /^resumed after a pause of/,
    events: ["control", "continued"],
  });
  await offers("running");
}

/** Stops the run; all later events are compared until the run has ended. */
async function stops(run) {
  await bar().locator("button:visible", { hasText: /^Stop/ }).click();
  await fillDialog(/^Stop /, {}, "Stop");
  await offers("stopped");
  const titles = eventsOf(run).map(({ kind, title }) => `${kind}: ${title}`);
  const count = (text) => titles.filter((title) => title.startsWith(text)).length;
  return count("stopped: stopped after step");
}

async function whenItHasEnded(url) {
  assert.equal(await stops("live"), 1);
  await does("live", {
    press: "Note here",
    dialog: [/^Note at step/, { note: "the end" }, "Note"],
    says: /^noted at step \d+$/,
    events: ["annotation"],
  });
  await bar().locator("button", { hasText: "Name, tags, note" }).click();
  const description = /^Name, tags and note of live$/;
  await refusedDialog(description, { name: "a/b", note: "the end" }, "Keep", /'a\/b'/);
  assert.equal(truth("SELECT note FROM runs WHERE run = 'live'"), "the end");
  await fillDialog(description, { name: "live-2" }, "Keep");
  await page.waitForURL(/#\/run\/live-2\/overview/);
  await offers("stopped");
  const steps = truth("SELECT steps FROM runs WHERE run = 'live-2'");
  await bar()
    .locator("button:visible", { hasText: /^Resume/ })
    .click();
  await page.waitForSelector("#state.running");
  await page.goto(`${url}/#/run/live-2/overview`);
  await offers("running");
  assert.equal(truth("SELECT attempts FROM runs WHERE run = 'live-2'"), 2);
  assert(truth("SELECT steps FROM runs WHERE run = 'live-2'") >= steps);
  assert.equal(await stops("live-2"), 2);
}

/** Removes a run; its checkpoints are removed only if that box was ticked. */
async function removes(url, run, withCheckpoints) {
  const folder = truth(`SELECT out_dir FROM runs WHERE run = '${run}'`);
  const newest = () => truth(`SELECT max(path) FROM checkpoints WHERE run = '${run}'`);
  const path = newest();
  const there = () => existsSync(path.startsWith("/") ? path : `${folder}/${path}`);
  assert(there(), `${path} in ${folder}`);
  await page.goto(`${url}/#/run/${run}/overview`);
  await bar().locator("button:visible", { hasText: "Remove" }).click();
  const fields = withCheckpoints ? { "its checkpoints": true } : {};
  await fillDialog(/^Remove .* for good\?$/, fields, "Remove");
  await page.waitForURL(/#\/runs/);
  await page.waitForFunction(() => /removed/.test(document.getElementById("toast").textContent));
  assert.equal(truth(`SELECT count(*) FROM runs WHERE run = '${run}'`), 0);
  assert.equal(there(), !withCheckpoints, `${folder}: checkpoints ${withCheckpoints}`);
}

/** A server without --control has no buttons, and the page explains how to enable them. */
async function readOnly(context) {
  const { port } = await serve(0);
  const other = await newPage(context, "read-only");
  await other.goto(`http://127.0.0.1:${port}/#token=${token}`);
  await other.waitForSelector("#runs tr[data-run=short]");
  await other.goto(`http://127.0.0.1:${port}/#/run/short/overview`);
  await other.waitForSelector("#state.done");
  assert.equal(await other.locator(".verbs").count(), 0);
  assert.match(await other.locator(".read-only").textContent(), /bitrain dash --control/);
  await other.close();
}

await tested(
  async (browser) => {
    const { port } = await serve(0, "--control");
    const url = `http://127.0.0.1:${port}`;
    const context = await newContext(browser, { viewport: { width: 1280, height: 900 } });
    page = await newPage(context, "page");
    await page.goto(`${url}/#token=${token}`);
    await page.waitForSelector("#runs tr[data-run=live]");
    await page.goto(`${url}/#/run/live/overview`);
    await whileItRuns();
    await whenItHasEnded(url);
    await page.goto(`${url}/#/run/short/overview`);
    await offers("done");
    await readOnly(context);
    await removes(url, "short", false);
    await removes(url, "live-2", true);
  },
  "every verb does what it says, in every state",
  { expected: refusal },
);
