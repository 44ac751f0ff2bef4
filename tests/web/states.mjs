// states.mjs - messages of the page if there are no data, or no further ones: each is one sentence, and
// earlier content remains dimmed. run_states.sh lists the states.
import assert from "node:assert";
import {
  accessible,
  bitrain,
  drawn,
  end,
  env,
  newContext,
  newPage,
  serve,
  start,
  tested,
  token,
} from "./browser_kit.mjs";

const otherToken = "fedcba9876543210fedcba9876543210";
let page = null;
let server = null;
let port = 0;
const address = (hash) => `http://127.0.0.1:${port}/#/${hash}`;

async function again(signal = "SIGTERM") {
  if (server) await end(server, signal);
  ({ server, port } = await serve(port));
}

async function synth(...words) {
  const child = start(env.BT_SYNTH, [env.BITRAIN_STORE, ...words]);
  const status = await new Promise((done) => child.on("exit", done));
  assert.equal(status, 0, words.join(" "));
}

/** Checks that the page shows this sentence, without technical terms. */
async function says(text, what) {
  const isThere = (want) => new RegExp(want).test(document.body.innerText);
  await page.waitForFunction(isThere, text.source).catch(async () => {
    assert.fail(`${what}: ${await page.evaluate(() => document.body.innerText)}`);
  });
  const all = await page.evaluate(() => document.body.innerText);
  const talk = /\/api\/|\bGET\b|\bPOST\b|\bHTTP\b|\bJSON\b|undefined|\[object|status \d|\bfetch\b/;
  assert(!talk.test(all), `${what}: ${talk.exec(all)} in ${all}`);
  await accessible(page, what);
}

const isDimmed = (selector) =>
  page.evaluate(
    (one) => Number(getComputedStyle(document.querySelector(one)).opacity) < 0.9,
    selector,
  );

/** The database is created after the page was opened: the same page then shows its run. */
async function noDatabase() {
  await again();
  await page.goto(`http://127.0.0.1:${port}/#token=${token}`);
  await says(/nothing has been trained there yet/, "no database");
  await synth("base", "ranks=2", "steps=60");
  await page.locator("#runs tr[data-run=base]").waitFor();
  await synth("other", "ranks=1", "steps=40");
  await synth("third", "ranks=1", "steps=40");
  await page.locator("#runs tr[data-run=third]").waitFor();
}

async function serverGoes() {
  await end(server, "SIGTERM");
  await says(/the server does not answer/, "a list without its server");
  const color = (one) => getComputedStyle(one).color;
  const colors = [
    await page.locator("#runs td[data-key=loss]").first().evaluate(color),
    await page.locator(".runs-list .note").evaluate(color),
  ];
  assert.equal(colors[0], colors[1], "what is shown is dimmed");
  assert.equal(await page.locator("#runs tr[data-run]").count(), 3, "and still there");
  server = null;
  await again();
  await page.waitForFunction(() => !document.documentElement.classList.contains("away"));
  await page.getByText(/^3 of 3 runs$/).waitFor();
}

/**
 * The server restarts with another token: earlier content remains below the question for the token, then the
 * page continues.
 */
async function tokenChanges(hash, selector) {
  await page.goto(address(hash));
  await page.locator(selector).first().waitFor();
  const tokens = { [token]: otherToken, [otherToken]: token };
  process.env.BITRAIN_DASH_TOKEN = tokens[process.env.BITRAIN_DASH_TOKEN];
  await again();
  await says(/The token of this dashboard has changed/, `an old token at ${hash}`);
  assert(await page.locator(`.past ${selector}`).first().isVisible(), "what was shown is gone");
  assert(await isDimmed(".past > *"), "what was shown is not dimmed");
  await page.fill("input[type=password]", "0".repeat(32));
  await page.keyboard.press("Enter");
  await page.getByText("the token is missing or wrong").waitFor();
  await page.fill("input[type=password]", process.env.BITRAIN_DASH_TOKEN);
  await page.keyboard.press("Enter");
  await page.locator(".past").waitFor({ state: "detached" });
  await page.locator(selector).first().waitFor();
}

async function runGoes() {
  await page.goto(address("run/third/overview"));
  await drawn(page, "a run that will go");
  bitrain("runs", "rm", "third", "--yes");
  await says(/The run third was removed or has another name now/, "a run that was removed");
  await says(/its last known values/, "a run that was removed");
  assert.match(await page.locator(".past [data-tile=step]").textContent(), /40/);
  assert(await isDimmed(".past > *"), "what was shown is not dimmed");
  await page.getByText("all runs").click();
  await page.getByText(/^2 of 2 runs$/).waitFor();
}

async function linksOfBefore() {
  await page.goto(address("run/nobody/overview"));
  await says(/no run 'nobody'/, "a run that never was");
  await page.goto(address("run/base/nonsense"));
  await drawn(page, "a page that is not there");
  await page.goto(
    address("runs?metric=losss&metrics=nope&sort=none&by=no.setting&runs=base,third"),
  );
  await says(/there is no metric losss, nope|the run third no longer exists/, "a link of before");
  await page.locator("#runs tr[data-run=base] input:checked").waitFor();
  await page.locator(".runs-chart canvas").waitFor();
  await page.goto(address("compare?runs=base,third,other"));
  await says(/the run third no longer exists/, "a comparison of before");
  await drawn(page, "a comparison of before");
  await page.goto(address("compare?runs=third,nobody"));
  await says(/no run 'third'/, "a comparison of runs that are gone");
}

// The browser prints a message about the refused request.
await tested(
  async (browser) => {
    const context = await newContext(browser, { viewport: { width: 1280, height: 900 } });
    page = await newPage(context, "states");
    await noDatabase();
    await serverGoes();
    await tokenChanges("runs", "#runs tr[data-run=base]");
    await tokenChanges("run/base/overview", "figure canvas");
    await runGoes();
    await linksOfBefore();
  },
  "each state is one sentence",
  { expected: /status of (401|404)/, seconds: 100 },
);
