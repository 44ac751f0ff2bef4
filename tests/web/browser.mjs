// browser.mjs - drives the dashboard and a report: every page, its numbers against the store's, live updates, a server that restarts,
// zoom, keys, themes, widths, accessibility, hostile texts. No console error and no policy violation anywhere.
import assert from "node:assert";
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const {
  BITRAIN,
  BT_SYNTH,
  BT_MODULES,
  BT_DIR,
  BITRAIN_STORE,
  BITRAIN_DASH_TOKEN: token,
} = process.env;
const { chromium } = await import(pathToFileURL(`${BT_MODULES}/playwright-core/index.mjs`));
const axe = readFileSync(`${BT_MODULES}/axe-core/axe.min.js`, "utf8");
const pages = ["overview", "ranks", "steps", "comm", "ternary", "events", "system"];
const problems = [],
  children = [];
const sql = (text) =>
  JSON.parse(execFileSync(BITRAIN, ["query", "--json", text], { encoding: "utf8" }));
const truth = (text) => Object.values(sql(text)[0])[0];
const four = (v) => String(Number(v.toPrecision(4)));
const count = (v) => v.toLocaleString("en-US").replaceAll(",", "\u202f");
const nth = (v) => count(v + 1); // the store counts steps from 0, the page from 1

async function serve(port, ...more) {
  const p = spawn(BITRAIN, ["dash", "--port", String(port), "--json", ...more], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(p);
  let text = "";
  for await (const chunk of p.stdout) {
    text += chunk;
    if (text.includes("\n")) break;
  }
  return { p, port: JSON.parse(text).port };
}
const ended = (p) =>
  new Promise((done) => {
    if (p.exitCode !== null) done();
    else p.on("exit", done);
  });

function watch(page, what) {
  page.on("console", (m) => {
    if (
      m.type() === "error" &&
      !/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/.test(
        m.text(),
      )
    )
      problems.push(`${what}: ${m.text()}`);
  });
  page.on("pageerror", (e) => problems.push(`${what}: ${e.stack}`));
  page.on("dialog", (d) => {
    problems.push(`${what}: a dialog "${d.message()}"`);
    d.dismiss();
  });
  return page.addInitScript(() =>
    document.addEventListener("securitypolicyviolation", (e) =>
      console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`),
    ),
  );
}

// all figures drew, none with an error, each with a name
async function drawn(page, what) {
  await page.waitForFunction(() => {
    const f = [...document.querySelectorAll("figure")];
    return f.length > 0 && f.every((x) => x.querySelector(".body").childElementCount > 0);
  });
  assert.equal(await page.locator(".error").count(), 0, `an error on ${what}`);
  for (const f of await page.locator("figure").all())
    assert((await f.getAttribute("aria-label")).length > 3, `a figure without a name on ${what}`);
}

async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] })); // eslint-disable-line no-undef
  for (const v of found.violations)
    if (["serious", "critical"].includes(v.impact))
      problems.push(
        `${what}: ${v.id}: ${v.help}: ${v.nodes
          .map((n) => n.html.slice(0, 120))
          .slice(0, 3)
          .join(" | ")}`,
      );
  assert(found.passes.length > 5, "axe looked at nothing");
}

// Tab reaches all that a mouse does, in sight and with an outline; each drawing has its sentence and its numbers
async function walked(page, what) {
  await page.evaluate(() => {
    window.reached = new Set();
  });
  for (let i = 0, ends = 0; i < 500 && ends < 2; i++) {
    await page.keyboard.press("Tab");
    const said = await page.evaluate(() => {
      const el = document.activeElement;
      if (!el || el === document.body) return "end";
      if (window.reached.has(el)) return "twice";
      window.reached.add(el);
      const style = getComputedStyle(el),
        box = el.getBoundingClientRect(),
        top = document.getElementById("top"),
        roof = top.contains(el) || el.className === "skip" ? 0 : top.getBoundingClientRect().bottom;
      return el.matches(":focus-visible") &&
        style.outlineStyle !== "none" &&
        parseFloat(style.outlineWidth) >= 2 &&
        box.width > 0 &&
        box.bottom > roof &&
        box.top < innerHeight
        ? ""
        : el.outerHTML.slice(0, 120);
    });
    if (said === "twice") break;
    if (said === "end") ends++;
    else if (said) problems.push(`${what}: the focus is not seen on ${said}`);
  }
  const wanting = await page.evaluate(() => {
    const all = [
      ...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']"),
    ].filter((el) => !el.disabled && el.checkVisibility({ visibilityProperty: true }));
    const drawings = [...document.querySelectorAll("figure")].filter((f) =>
      f.querySelector("canvas, .lanes, .histogram, .bars, .bar.big"),
    );
    return [
      ...all
        .filter((el) => !window.reached.has(el))
        .map((el) => `not reached: ${el.outerHTML.slice(0, 120)}`),
      ...drawings
        .filter(
          (f) =>
            f.querySelector("figcaption").textContent.length < 12 ||
            f.getAttribute("aria-label").length < 16,
        )
        .map((f) => `no sentence: ${f.querySelector("h2").textContent}`),
      ...drawings
        .filter((f) => !f.querySelector("button[title^='numbers as a table']"))
        .map((f) => `no table: ${f.querySelector("h2").textContent}`),
    ];
  });
  for (const w of wanting) problems.push(`${what}: ${w}`);
}

const figure = (page, title) =>
  page.locator("figure", { has: page.locator("h2", { hasText: new RegExp(`^${title}`) }) });
async function rows(page, title) {
  // the table behind a figure (T), as text
  const f = figure(page, title);
  await f.focus();
  await page.keyboard.press("t");
  await f.locator("table tbody tr").first().waitFor();
  const out = await f
    .locator("tbody tr")
    .evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((c) => c.textContent)));
  await page.keyboard.press("t");
  return out;
}

// what each page says, against the store
const truths = {
  async overview(page) {
    const head = sql(
      "SELECT loss, step FROM steps WHERE run = 'base' ORDER BY step DESC LIMIT 1",
    )[0];
    assert.equal(
      await page.locator("[data-tile=loss] dd span").textContent(),
      head.loss.toFixed(4),
    );
    assert.equal(await page.locator("[data-tile=step] dd span").textContent(), nth(head.step));
    assert.equal(
      await figure(page, "Loss").locator(".readout b").first().textContent(),
      nth(head.step),
      "the tile and the curve count alike",
    );
    assert.equal(
      await page.locator("[data-tile=goodput] dd span").textContent(),
      `${(truth("SELECT goodput FROM runs WHERE run = 'base'") * 100).toFixed(1)} %`,
    );
    const table = await rows(page, "Loss");
    assert.equal(table[0][0], nth(head.step));
    assert.equal(
      Number(table[0][2]),
      Number(
        truth(
          `SELECT avg(loss) FROM steps WHERE run = 'base' AND step BETWEEN ${Number(table[1][0])} AND ${head.step}`,
        ).toPrecision(6),
      ),
      "the newest point of the loss",
    );
    const at = await figure(page, "Loss").locator(".u-over").boundingBox(),
      asked = page.waitForRequest((r) => /series.*x0=\d+/.test(r.url()));
    await page.mouse.move(at.x + at.width * 0.3, at.y + 50);
    await page.mouse.down();
    await page.mouse.move(at.x + at.width * 0.6, at.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.mouse.move(3, 3);
    const wide = new URL((await asked).url()).searchParams,
      from = Number(wide.get("x0")),
      to = Number(wide.get("x1"));
    assert(from > 60 && from < 120 && to > 150 && to < 210, `zoomed to ${from} - ${to}`);
    await page.waitForFunction(
      (s) => document.querySelector(".readout b")?.textContent === s,
      nth(to),
    );
    const zoomed = await rows(page, "Loss");
    assert.equal(zoomed[0][0], nth(to), "zoom shows its own steps");
    assert.equal(zoomed.length, to - from + 1, "each step of a short range is drawn");
    assert.equal(
      Number(zoomed[0][2]),
      Number(truth(`SELECT loss FROM steps WHERE run = 'base' AND step = ${to}`).toPrecision(6)),
    );
    await figure(page, "Loss").focus(); // the cursor by keys, in all figures at once
    await page.keyboard.press("Home");
    assert.equal(await figure(page, "Loss").locator(".readout b").first().textContent(), nth(from));
    await page.waitForFunction(
      (s) =>
        [...document.querySelectorAll("figure")].every(
          (f) => f.querySelector(".readout b")?.textContent === s,
        ),
      nth(from),
    );
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(
      (s) => document.getElementById("said").textContent.startsWith(`step ${s}`),
      nth(from + 1),
    ); // told to a screen reader
    assert.equal(
      await figure(page, "Loss").locator(".readout b").first().textContent(),
      nth(from + 1),
    );
    const back = page.waitForRequest((r) => /series/.test(r.url()) && !/x0=/.test(r.url()));
    await page.keyboard.press("z");
    await back;
  },
  async ranks(page) {
    assert.match(await page.locator(".says").textContent(), /^rank 2 is late because of data/);
    const cells = await page
      .locator("figure table tbody tr")
      .first()
      .locator("td")
      .allTextContents();
    assert.equal(cells[0], "2");
    assert.equal(cells[3], "153 ms", "busy of the straggler: 10 * 5 + 30 + 60 + 8 + 5");
    assert.match(
      await page.locator("figure .bar-tools .note").first().textContent(),
      /153 ms → 113 ms a step, 26\.1 % less/,
    );
  },
  async steps(page) {
    const mean = sql(
      "SELECT rank, avg(data_ms) AS data, avg(wait_ms) AS wait, avg(step_ms) AS step FROM rank_steps WHERE run = 'base' AND step > 171 GROUP BY rank ORDER BY rank",
    );
    const table = await rows(page, "Where the step goes"),
      ms = (v) =>
        v === 0 ? "0 ms" : `${v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2)} ms`;
    mean.forEach((m, i) =>
      assert.deepEqual(
        [table[i][0], table[i][1], table[i][5], table[i][9]],
        [String(m.rank), ms(m.step), ms(m.data), ms(m.wait)],
      ),
    );
    const area = figure(page, "Phases over time"),
      says = (text) =>
        page.waitForFunction(
          (t) =>
            [...document.querySelectorAll("figure")]
              .find((f) => f.querySelector("h2").textContent === "Phases over time")
              .textContent.includes(t),
          text,
        );
    await says("stacked, rank 2"); // the worst
    await says("data 50.0 ms");
    await area.locator("select[aria-label=rank]").selectOption("median");
    await says("wait 40.0 ms");
    await area.locator("select[aria-label=show]").selectOption("share");
    await says("data 6.5 %"); // 10 of 153 ms
  },
  async comm(page) {
    const table = await rows(page, "Transfer by rank");
    for (const r of table) assert.deepEqual(r.slice(1, 5), ["4 MB", "1 MB", "4", "16.0 ms"]);
    const kinds = await figure(page, "Kinds of exchange")
      .locator("tbody tr")
      .evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((c) => c.textContent)));
    const want = sql(
      "SELECT op, axis, count(DISTINCT rank) AS ranks, sum(bytes_wire) / sum(steps) AS wire, sum(exposed_ms) / sum(steps) AS exposed, sum(wait_ms) / sum(steps) AS wait FROM comm_ops WHERE run = 'base' AND step = (SELECT max(step) FROM comm_ops WHERE run = 'base') GROUP BY op, axis ORDER BY exposed + wait DESC",
    );
    assert.equal(kinds.length, want.length);
    want.forEach((w, i) => assert.deepEqual(kinds[i].slice(0, 3), [w.op, w.axis, String(w.ranks)]));
    const pairs = sql(
        "SELECT rank, peer, sum(bytes_wire) / sum(steps) AS bytes FROM comm_pairs WHERE run = 'base' AND step = (SELECT max(step) FROM comm_pairs WHERE run = 'base') GROUP BY rank, peer ORDER BY rank, peer",
      ),
      matrix = await rows(page, "Who gets from whom");
    assert(pairs.length > 0, "no pairs of ranks in the store: this looks at nothing");
    assert.deepEqual(
      matrix.map((r) => [r[0], r[1], r[3]]),
      pairs.map((p) => [
        String(p.rank),
        String(p.peer),
        p.bytes >= 1e6 ? `${p.bytes / 1e6} MB` : `${p.bytes / 1e3} kB`,
      ]),
    );
    assert.deepEqual(
      [kinds[0][5], kinds[0][8], kinds[0][9]],
      [
        `${want[0].wire / 1e3} kB`,
        `${want[0].exposed.toFixed(2)} ms`,
        `${want[0].wait.toFixed(2)} ms`,
      ],
    );
  },
  async ternary(page) {
    const want = sql(
      "SELECT * FROM layers WHERE run = 'base' AND step = (SELECT max(step) FROM layers WHERE run = 'base') ORDER BY layer, tensor",
    );
    const got = await figure(page, "Codes of each tensor")
      .locator("tbody tr")
      .evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((c) => c.textContent)));
    assert.equal(got.length, want.length);
    want.forEach((w, i) =>
      assert.deepEqual(
        [got[i][0], got[i][2], got[i][3]],
        [
          `${w.layer} ${w.tensor}`,
          `${(w.zero_frac * 100).toFixed(1)} %`,
          `${(w.pos_frac * 100).toFixed(1)} %`,
        ],
      ),
    );
    const titles = await figure(page, "Codes of each tensor").locator("thead th").allTextContents();
    for (const [key, title] of [
      ["flip_frac", "flipped"],
      ["sign_flip_frac", "sign flips"],
      ["oscillation_frac", "taken back"],
      ["boundary_frac", "near threshold"],
    ]) {
      const at = titles.indexOf(title);
      assert.equal(at >= 0, typeof want[0][key] === "number", `the column "${title}"`);
      if (at >= 0)
        want.forEach((w, i) => assert.equal(got[i][at], `${(w[key] * 100).toFixed(2)} %`));
    }
    const heat = figure(page, "Tensor by time");
    for (const [kind, key, show] of [
      ["zero_history", "zero_frac", (v) => `${(v * 100).toFixed(2)} %`],
      ["boundary_history", "boundary_frac", (v) => `${(v * 100).toFixed(2)} %`],
      ["grad_norm_history", "grad_norm", (v) => String(Number(v.toPrecision(3)))],
    ]) {
      await heat.locator("select").selectOption(kind);
      const table = await rows(page, "Tensor by time");
      want.forEach((w, i) =>
        assert.equal(table[i].at(-1), show(w[key]), `the newest ${kind} of ${w.tensor}`),
      );
    }
  },
  async events(page) {
    assert.equal(await page.locator(".lanes .lost").count(), 1, "what was done again is shaded");
    assert.match(
      await figure(page, "Timeline").locator("figcaption").textContent(),
      new RegExp(`^${truth("SELECT count(*) FROM events WHERE run = 'base'")} events`),
    );
    assert.match(
      await figure(page, "Goodput").locator("figcaption").textContent(),
      new RegExp(
        `^Goodput ${(truth("SELECT goodput FROM runs WHERE run = 'base'") * 100).toFixed(1)} %`,
      ),
    );
    assert.equal(await figure(page, "Attempts").locator("tbody tr").count(), 2);
    assert.equal(
      await figure(page, "Checkpoints").locator("tbody tr").count(),
      truth("SELECT count(*) FROM checkpoints WHERE run = 'base'"),
    );
    assert.match(
      await figure(page, "Events").locator("tbody").textContent(),
      /<img src=x onerror=hacked=1>/,
      "a hostile title is shown as the text it is",
    );
  },
  async system(page) {
    const table = await figure(page, "Ranks and their machines")
      .locator("tbody tr")
      .evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((c) => c.textContent)));
    assert.deepEqual(
      table.map((r) => r[5]),
      ["100 MiB", "101 MiB", "102 MiB", "103 MiB"],
    );
  },
};

async function harmless(page, what) {
  const harm = await page.evaluate(() => [
    typeof window.hacked,
    document.querySelectorAll("img, #hacked").length,
  ]);
  assert.deepEqual(harm, ["undefined", 0], `a text of the run became markup on ${what}`);
}

// every wait is for something to be so, none for a time to pass; on a machine that is busy with other things that may take long
const patience = 60000;
function patient(context) {
  context.setDefaultTimeout(patience);
  return context;
}
const browser = await chromium.launch({
  executablePath: process.env.BT_CHROMIUM || "/usr/bin/chromium",
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
const clock = setTimeout(() => {
  console.error("out of time");
  process.exit(1);
}, 210000);
try {
  let { p: server, port } = await serve(0, "--control");
  const url = `http://127.0.0.1:${port}`;
  const context = patient(
      await browser.newContext({ viewport: { width: 1280, height: 2600 }, colorScheme: "light" }),
    ),
    page = await context.newPage();
  await watch(page, "page");

  // the gate: no token, a wrong one, the right one
  problems.length = 0;
  const anonymous = await patient(await browser.newContext()).newPage();
  await anonymous.goto(url);
  await anonymous.waitForSelector("input[type=password]");
  await accessible(anonymous, "gate");
  await anonymous.fill("input[type=password]", "0".repeat(32));
  await anonymous.keyboard.press("Enter");
  await anonymous.waitForFunction(() =>
    document.getElementById("toast").textContent.includes("token"),
  );
  await anonymous.fill("input[type=password]", token);
  await anonymous.keyboard.press("Enter");
  await anonymous.waitForSelector("#runs tr[data-run=base]");
  await anonymous.context().close();
  await page.goto(`${url}/#token=${token}`);
  await page.waitForSelector("#runs tr[data-run=base]");
  assert(!page.url().includes(token), "the token stays in the address");

  // runs
  const all = sql("SELECT * FROM runs ORDER BY run");
  assert.equal(await page.locator("#runs tbody tr").count(), all.length);
  const cell = (run, key) =>
    page.locator(`#runs tr[data-run=${run}] td[data-key=${key}]`).textContent();
  for (const r of all) {
    assert.equal(await cell(r.run, "steps"), count(r.steps));
    assert.equal(await cell(r.run, "loss"), r.loss.toFixed(4));
    assert.equal(await cell(r.run, "ranks"), String(r.ranks));
    assert.equal(await cell(r.run, "goodput"), `${(r.goodput * 100).toFixed(0)} %`);
  }
  assert.match(await cell("other", "note"), /coldwarm|warmcold/);
  await harmless(page, "runs");
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
    await page
      .waitForFunction(
        (want) => document.querySelectorAll("#runs tbody tr[data-run]").length === want,
        n,
      )
      .catch(() => assert.fail(`filter "${filter}": not ${n} runs`));
  }
  // columns: one goes, a setting comes, and the browser remembers
  await page.locator(".picker summary").click();
  await page
    .locator(".picker label", { hasText: /^goodput$/ })
    .locator("input")
    .uncheck();
  await page.selectOption(".picker select", "optim.lr");
  await page.waitForFunction(
    () =>
      document.querySelector("#runs tr[data-run=base] td[data-key='optim.lr']")?.textContent ===
      "0.002",
  );
  await accessible(page, "the columns to choose");
  await page.reload();
  await page.waitForFunction(
    () =>
      document.querySelector("#runs tr[data-run=base] td[data-key='optim.lr']")?.textContent ===
      "0.002",
  );
  assert.equal(await page.locator("#runs td[data-key=goodput]").count(), 0);
  await page.locator(".picker summary").click();
  await page
    .locator(".picker label", { hasText: /^goodput$/ })
    .locator("input")
    .check();
  await page
    .locator(".picker label", { hasText: /^optim\.lr$/ })
    .locator("input")
    .click();
  await page.locator("#runs tr[data-run=base] td[data-key=goodput]").waitFor();
  assert.equal(await page.locator("#runs td[data-key='optim.lr']").count(), 0);
  await page.keyboard.press("Escape");
  await page.locator(".picker summary").click();
  await page.locator("#runs thead button", { hasText: /^steps$/ }).press("Enter");
  assert.deepEqual(
    await page.locator("#runs tbody tr").evaluateAll((l) => l.map((r) => r.dataset.run)),
    ["base", "other"],
  );
  await page.locator("#runs thead button", { hasText: /^steps$/ }).press("Enter");
  assert.deepEqual(
    await page.locator("#runs tbody tr").evaluateAll((l) => l.map((r) => r.dataset.run)),
    ["other", "base"],
  );
  assert.equal(await page.locator("#runs th[aria-sort=ascending]").count(), 1);
  await accessible(page, "runs");
  await walked(page, "runs");
  await page.emulateMedia({ colorScheme: "dark" });
  await accessible(page, "runs, dark");
  await page.emulateMedia({ colorScheme: "light" });

  // each page, both themes
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const name of pages) {
      await page.goto(`${url}/#/run/base/${name}`);
      await page.waitForSelector(`.tabs a[href$="/${name}"][aria-current=page]`);
      await drawn(page, name);
      if (scheme === "light") await truths[name](page);
      await harmless(page, name);
      await accessible(page, `${name}, ${scheme}`);
      if (scheme === "light") await walked(page, name);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  for (const axis of ["tokens", "time", "active", "bytes"]) {
    await page.goto(`${url}/#/run/base/overview`);
    await page.selectOption("select[aria-label=x]", axis);
    await page.waitForFunction(
      (a) =>
        document
          .querySelectorAll("figure .readout > span")[1]
          ?.textContent.startsWith(
            { tokens: "tokens", time: "wall time", active: "active time", bytes: "bytes" }[a],
          ),
      axis,
    );
  }
  await page.selectOption("select[aria-label=x]", "step");

  // compare, chosen by keys from the table
  await page.goto(`${url}/#/runs`);
  await page.waitForSelector("#runs tr[data-run=other]");
  await page.locator("#runs input").first().focus();
  await page.keyboard.press("Space");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Space");
  await page.keyboard.press("c");
  const levels = await (
    await page.waitForFunction(() => {
      // the table stands before its rows, and may be drawn anew
      const trs = [
        ...([...document.querySelectorAll("section.card")]
          .find((c) => c.querySelector("h2")?.textContent === "At equal tokens")
          ?.querySelectorAll("tbody tr") ?? []),
      ].map((tr) => [...tr.cells].map((c) => c.textContent));
      return trs.length === 2 && trs.every((l) => l.length > 4) && trs;
    })
  ).jsonValue();
  assert.deepEqual(levels.map((l) => l[0]).sort(), ["base", "other"]);
  assert.match(levels[1][4], /none in \d+/, "synthetic losses are equal bit for bit");
  await drawn(page, "compare");
  await accessible(page, "compare");
  await walked(page, "compare");
  await page.emulateMedia({ colorScheme: "dark" });
  await accessible(page, "compare, dark");
  await page.emulateMedia({ colorScheme: "light" });
  const whole = await rows(page, "Compare"),
    area = await figure(page, "Compare").locator(".u-over").boundingBox(),
    closer = page.waitForRequest((r) => /series.*x0=\d+/.test(r.url()));
  await page.mouse.move(area.x + area.width * 0.2, area.y + 50);
  await page.mouse.down();
  await page.mouse.move(area.x + area.width * 0.4, area.y + 60, { steps: 4 });
  await page.mouse.up();
  await closer;
  await page.locator("button", { hasText: "Reset zoom" }).waitFor();
  const near = (await rows(page, "Compare")).map((r) => Number(r[1]));
  assert(
    Math.min(...near) > 40 && Math.max(...near) < 140,
    `compare zoomed to ${Math.min(...near)} - ${Math.max(...near)}`,
  );
  await page.locator("button", { hasText: "Reset zoom" }).click();
  await page.locator("button", { hasText: "Reset zoom" }).waitFor({ state: "hidden" });
  assert.deepEqual(await rows(page, "Compare"), whole);

  // two runs that part: one bit of one loss
  execFileSync("sqlite3", [
    BITRAIN_STORE,
    "UPDATE step SET loss = loss + 1e-15 WHERE step = 149 AND aid = (SELECT a.id FROM attempt a JOIN run r ON r.id = a.run WHERE r.name = 'other')",
  ]);
  assert.equal(
    truth(
      "SELECT count(*) FROM steps x JOIN steps y USING (step) WHERE x.run = 'base' AND y.run = 'other' AND x.loss IS NOT y.loss",
    ),
    1,
  );
  await page.reload();
  await page
    .getByText(`first differs from base at step ${nth(149)}`)
    .first()
    .waitFor();
  await page
    .locator("section.card", { hasText: "At equal tokens" })
    .locator("tr", { hasText: "other" })
    .locator("td", { hasText: new RegExp(`^${nth(149)}$`) })
    .waitFor();

  // 400 px wide: nothing is cut off, on any page
  await page.setViewportSize({ width: 400, height: 900 });
  for (const place of ["runs", "compare?runs=base,other", ...pages.map((p) => `run/base/${p}`)]) {
    await page.goto(`${url}/#/${place}`);
    await page.waitForSelector("figure figcaption:not(:empty), #runs tr[data-run]");
    assert(
      (await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0,
      `${place} is wider than 400 px`,
    );
  }
  await accessible(page, "400 px");
  await page.setViewportSize({ width: 1280, height: 2600 });

  // a run that is being written: it appears, two tabs follow it, the server goes and comes back, and they go on by themselves
  await page.goto(`${url}/#/runs`);
  await page.waitForSelector("#runs tr[data-run=base]");
  const writer = spawn(BT_SYNTH, [BITRAIN_STORE, "late", "ranks=2", "steps=4000", "pace_ms=40"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(writer);
  let committed = -1;
  writer.stdout.on("data", (d) => {
    const m = [...String(d).matchAll(/step (\d+)/g)].pop();
    if (m) committed = Number(m[1]);
  });
  await page.waitForSelector("#runs tr[data-run=late]");
  const second = await context.newPage(),
    streams = [];
  await watch(second, "second tab");
  for (const p of [page, second])
    p.on("request", (r) => {
      if (r.url().endsWith("/stream")) streams.push(p === page ? "first" : "second");
    });
  for (const p of [page, second]) {
    await p.goto(`${url}/#/run/late/overview`);
    await drawn(p, "a live run");
  }
  const reaches = (p, n) =>
    p.waitForFunction(
      (want) =>
        Number(document.querySelector("[data-tile=step] dd span")?.textContent.replace(/\D/g, "")) >
        want,
      n,
    );
  assert.equal(await page.locator("#state").textContent(), "running");
  assert(await page.locator(".verbs").isVisible(), "a live run has its buttons");
  for (const p of [page, second]) await reaches(p, committed);
  assert.deepEqual(streams, ["first"], "two tabs share one event stream");
  // behind a proxy that keeps the stream to itself
  const behind = patient(await browser.newContext()),
    muffled = await behind.newPage();
  await watch(muffled, "behind a proxy");
  await muffled.route("**/stream", () => {});
  await muffled.goto(`${url}/#token=${token}`);
  await muffled.waitForSelector("#runs tr[data-run=late]");
  await muffled.goto(`${url}/#/run/late/overview`);
  await drawn(muffled, "a page without its stream");
  await reaches(muffled, committed);
  await behind.close();
  const reached = committed; // the curve itself goes as far as the store did when asked
  await page.waitForFunction(
    (want) =>
      Number(document.querySelector("figure .readout b").textContent.replace(/\D/g, "")) > want,
    reached,
  );
  assert(Number((await rows(page, "Loss"))[0][0].replace(/\D/g, "")) > reached);
  server.kill("SIGTERM");
  await ended(server);
  await page.waitForFunction(() =>
    document.getElementById("stream").textContent.includes("connection lost"),
  );
  ({ p: server } = await serve(port));
  const now = committed;
  for (const p of [page, second]) await reaches(p, now);
  await page.waitForFunction(() => document.getElementById("stream").textContent === "");
  // the tab that held the stream goes: the other one takes it over
  const holder = streams.at(-1) === "first" ? page : second,
    heir = holder === page ? second : page;
  await holder.goto("about:blank");
  await reaches(heir, committed);
  assert.equal(streams.at(-1), heir === page ? "first" : "second", "the other tab listens now");
  await heir.reload(); // this server was started without --control
  await drawn(heir, "a live run without control");
  assert.equal(await heir.locator(".verbs").count(), 0, "buttons that nobody allowed");
  await second.close();
  writer.kill("SIGKILL");
  await ended(writer);

  // the report: a file, no server, the same pages and numbers
  server.kill("SIGTERM");
  await ended(server);
  execFileSync(BITRAIN, ["report", "base", "-o", `${BT_DIR}/r.html`], { stdio: "ignore" });
  const offline = patient(
      await browser.newContext({ offline: true, viewport: { width: 1280, height: 2400 } }),
    ),
    paper = await offline.newPage();
  await watch(paper, "report");
  paper.on("request", (r) => {
    if (!/^(file|data|blob):/.test(r.url())) problems.push(`the report asks for ${r.url()}`);
  });
  for (const name of pages) {
    await paper.goto(`${pathToFileURL(`${BT_DIR}/r.html`)}#/run/base/${name}`);
    await paper.waitForSelector(`.tabs a[href$="/${name}"][aria-current=page]`);
    await drawn(paper, `the report's ${name}`);
    if (name !== "overview") await truths[name](paper);
    await harmless(paper, `the report's ${name}`);
  }
  assert.equal((await paper.locator("title").textContent()).includes("base"), true);
  await accessible(paper, "report");
  assert.deepEqual(problems, [], "console errors, policy violations or serious findings");
  console.log("every page drew, and said what the store says");
} finally {
  clearTimeout(clock);
  for (const c of children) c.kill("SIGKILL");
  await browser.close();
}
