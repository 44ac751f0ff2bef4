// browser.mjs - drives the dashboard: login by fragment, every page, numbers against the API, a table by key, an update that arrives live.
import assert from "node:assert";
import { execFileSync } from "node:child_process";
import { pathToFileURL } from "node:url";

const { chromium } = await import(pathToFileURL(`${process.env.BT_MODULES}/playwright-core/index.mjs`));
const url = process.env.BT_URL, token = process.env.BITRAIN_DASH_TOKEN, problems = [];
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
const api = async (path) => (await fetch(`${url}/api/v1/${path}`, { headers: { Authorization: `Bearer ${token}` } })).json();
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 2400 } });
  page.on("console", (m) => { if (m.type() === "error") problems.push(m.text()); });
  page.on("pageerror", (e) => problems.push(e.stack));
  await page.goto(`${url}/#token=${token}`);
  await page.waitForSelector("#runs tr[data-run=base]");
  assert(!page.url().includes(token), "the token stays in the address");

  const runs = (await api("runs")).runs.rows, row = runs.find((r) => r.run === "base");
  assert.equal(await page.locator("#runs tbody tr").count(), runs.length);
  const cell = (key) => page.locator(`#runs tr[data-run=base] td[data-key=${key}]`).textContent();
  assert.equal(await cell("steps"), String(row.steps));
  assert.equal(Number(await cell("loss")), Number(row.loss.toPrecision(4)));
  await page.fill("input[type=search]", "steps>250");
  assert.equal(await page.locator("#runs tbody tr").count(), 1);

  for (const name of ["overview", "ranks", "steps", "comm", "ternary", "events", "system"]) {
    await page.goto(`${url}/#/run/base/${name}`);
    await page.waitForSelector(`.tabs a[href$="/${name}"][aria-current=page]`);
    await page.waitForFunction(() => document.querySelectorAll("figure").length > 0 && [...document.querySelectorAll("figure")].every((f) => f.querySelector(".body").childElementCount > 0));
    assert.equal(await page.locator(".error").count(), 0, `an error on ${name}`);
    assert.equal(await page.locator(".tabs [aria-current=page]").count(), 1);
    for (const f of await page.locator("figure").all()) assert((await f.getAttribute("aria-label")).length > 3);
    if (name === "ranks") assert.match(await page.locator(".says").textContent(), /^rank 2 /);
    if (name === "overview") {
      const head = (await api("runs/base/head")).head;
      assert((await page.locator("[data-tile=loss] dd span").textContent()) === String(Number(head.loss.toPrecision(4))));
      const figure = page.locator("figure").first();
      await figure.focus();
      await page.keyboard.press("t");
      await figure.locator("table tbody tr").first().waitFor();
      assert.equal(await figure.locator("tbody tr td").first().textContent(), String(head.newest_step));
      await page.keyboard.press("t");
      const plot = await figure.locator(".u-over").boundingBox(), asked = page.waitForRequest((r) => /series.*x0=\d+/.test(r.url()));
      await page.mouse.move(plot.x + plot.width * 0.3, plot.y + 50);
      await page.mouse.down();
      await page.mouse.move(plot.x + plot.width * 0.6, plot.y + 60, { steps: 4 });
      await page.mouse.up();
      await asked;
    }
  }
  await page.goto(`${url}/#/compare?runs=base,other`);
  await page.waitForSelector("section.card table");
  assert.equal(await page.locator("section.card table").first().locator("tbody tr").count(), 2);

  await page.setViewportSize({ width: 400, height: 900 });
  for (const name of ["overview", "ranks", "events"]) {
    await page.goto(`${url}/#/run/base/${name}`);
    await page.waitForSelector("figure figcaption:not(:empty)");
    assert((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${name} is wider than 400 px`);
  }
  await page.goto(`${url}/#/runs`);                      // a run that appears while the page is open
  await page.waitForSelector("#runs tr[data-run=base]");
  execFileSync(process.env.BT_SYNTH, [process.env.BITRAIN_STORE, "late", "ranks=2", "steps=20"]);
  await page.waitForSelector("#runs tr[data-run=late]", { timeout: 15000 });
  assert.deepEqual(problems, [], "console errors or policy violations");
  console.log("every page drew, and said what the API says");
} finally {
  await browser.close();
}
