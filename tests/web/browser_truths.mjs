// browser_truths.mjs - compares each page of the run "base" with the store.
import assert from "node:assert";
import { cellsOf, drag, figure, nth, rows, sql, truth } from "./browser_kit.mjs";

const newestOf = (table) =>
  `FROM ${table} WHERE run = 'base' AND step = (SELECT max(step) FROM ${table} WHERE run = 'base')`;

function ms(value) {
  if (value === 0) return "0 ms";
  const decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(decimals)} ms`;
}

function percent(value, decimals) {
  return `${(value * 100).toFixed(decimals)} %`;
}

function goodput() {
  return percent(truth("SELECT goodput FROM runs WHERE run = 'base'"), 1);
}

function meanLoss(from, to) {
  const range = `step BETWEEN ${from} AND ${to}`;
  const mean = truth(`SELECT avg(loss) FROM steps WHERE run = 'base' AND ${range}`);
  return Number(mean.toPrecision(6));
}

function shownStep(page) {
  return figure(page, "Loss").locator(".readout b").first().textContent();
}

async function overview(page) {
  const [head] = sql("SELECT loss, step FROM steps WHERE run = 'base' ORDER BY step DESC LIMIT 1");
  const tile = (name) => page.locator(`[data-tile=${name}] dd span`).textContent();
  assert.equal(await tile("loss"), head.loss.toFixed(4));
  assert.equal(await tile("step"), nth(head.step));
  assert.equal(await shownStep(page), nth(head.step), "the tile and the curve count alike");
  assert.equal(await tile("goodput"), goodput());
  await validation(page);
  const small = (name) => page.locator(`[data-tile=${name}] small`).textContent();
  assert.equal(await small("communication"), "overlap 50 %, newest steps");
  assert.equal(await small("memory"), "largest rank, newest step");
  const table = await rows(page, "Loss");
  assert.equal(table[0][0], nth(head.step));
  const newest = meanLoss(Number(table[1][0]), head.step);
  assert.equal(Number(table[0][2]), newest, "the newest point of the loss");
  const [from, to] = await zoomByDragging(page);
  await walkByKeys(page, from);
  assert(to > from);
  const back = page.waitForRequest((r) => /series/.test(r.url()) && !/x0=/.test(r.url()));
  await page.keyboard.press("z");
  await back;
}

/** The tile shows the newest and the best validation; the chart has a separate series. */
async function validation(page) {
  const own = "FROM steps WHERE run = 'base' AND val_loss IS NOT NULL";
  const newest = truth(`SELECT val_loss ${own} ORDER BY step DESC LIMIT 1`);
  const best = truth(`SELECT min(val_loss) ${own}`);
  const tile = page.locator("[data-tile=validation]");
  assert.equal(await tile.locator("dd span").textContent(), newest.toFixed(4));
  assert.equal(await tile.locator("small").textContent(), `best ${best.toFixed(4)}`);
  assert.match(await figure(page, "Loss").locator(".readout").textContent(), /validation/);
}

/** Returns the first and the last step of the zoom. */
async function zoomByDragging(page) {
  const box = await figure(page, "Loss").locator(".u-over").boundingBox();
  const asked = page.waitForRequest((r) => /series.*x0=\d+/.test(r.url()));
  await drag(page, box, 0.3, 0.6);
  await page.mouse.move(3, 3);
  const query = new URL((await asked).url()).searchParams;
  const from = Number(query.get("x0"));
  const to = Number(query.get("x1"));
  assert(from > 60 && from < 120 && to > 150 && to < 210, `zoomed to ${from} - ${to}`);
  await page.waitForFunction(
    (step) => document.querySelector(".readout b")?.textContent === step,
    nth(to),
  );
  const zoomed = await rows(page, "Loss");
  assert.equal(zoomed[0][0], nth(to), "zoom shows its own steps");
  assert.equal(zoomed.length, to - from + 1, "each step of a short range is drawn");
  assert.equal(Number(zoomed[0][2]), meanLoss(to, to));
  return [from, to];
}

/** Keys move the cursor in all figures at once, and a screen reader announces it. */
async function walkByKeys(page, from) {
  await figure(page, "Loss").focus();
  await page.keyboard.press("Home");
  assert.equal(await shownStep(page), nth(from));
  await page.waitForFunction((step) => {
    const figures = [...document.querySelectorAll("figure")];
    return figures.every((one) => one.querySelector(".readout b")?.textContent === step);
  }, nth(from));
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(
    (step) => document.getElementById("said").textContent.startsWith(`step ${step}`),
    nth(from + 1),
  );
  assert.equal(await shownStep(page), nth(from + 1));
}

async function ranks(page) {
  assert.match(
    await page.locator(".says").textContent(),
    /^rank 2 .*slow.*; \d+ % of its delay is in data/,
  );
  const first = page.locator("figure table tbody tr").first();
  const cells = await first.locator("td").allTextContents();
  assert.equal(cells[0], "2");
  assert.equal(cells[3], "153 ms", "busy of the straggler: 10 * 5 + 30 + 60 + 8 + 5");
  const gain = await page.locator("figure .bar-tools .note").first().textContent();
  assert.match(gain, /153 ms → 113 ms a step, 26\.1 % less/);
}

async function steps(page) {
  const means = sql(
    "SELECT rank, avg(data_ms) AS data, avg(wait_ms) AS wait, avg(step_ms) AS step FROM rank_steps " +
      "WHERE run = 'base' AND step > 171 GROUP BY rank ORDER BY rank",
  );
  const table = await rows(page, "Where the step goes");
  means.forEach((mean, i) =>
    assert.deepEqual(
      [table[i][0], table[i][1], table[i][5], table[i][9]],
      [String(mean.rank), ms(mean.step), ms(mean.data), ms(mean.wait)],
    ),
  );
  assert.deepEqual(
    [table[4][0], table[4][1], table[4][6], table[4][7], table[4][9]],
    ["plan", "120 ms", "30.0 ms", "60.0 ms", "5.00 ms"],
    "what was predicted stands below the ranks",
  );
  const area = figure(page, "Phases over time");
  const says = (text) =>
    page.waitForFunction((wanted) => {
      const isArea = (one) => one.querySelector("h2").textContent === "Phases over time";
      const one = [...document.querySelectorAll("figure")].find(isArea);
      return one.textContent.includes(wanted);
    }, text);
  await says("stacked, rank 2"); // the slowest rank
  await says("data 50.0 ms");
  await area.locator("select[aria-label=rank]").selectOption("median");
  await says("wait 40.0 ms");
  await area.locator("select[aria-label=show]").selectOption("share");
  await says("data 6.5 %"); // 10 of 153 ms
}

async function comm(page) {
  for (const row of await rows(page, "Transfer by rank"))
    assert.deepEqual(row.slice(1, 5), ["3.81 MiB", "977 KiB", "4", "16.0 ms"]);
  await kindsOfExchange(page);
  const pairs = sql(
    `SELECT rank, peer, sum(bytes_wire) / sum(steps) AS bytes ${newestOf("comm_pairs")} ` +
      "GROUP BY rank, peer ORDER BY rank, peer",
  );
  assert(pairs.length > 0, "no pairs of ranks in the store: this looks at nothing");
  const bytes = (value) =>
    value >= 999.5 * 1024
      ? `${(value / 1024 ** 2).toPrecision(3)} MiB`
      : `${(value / 1024).toPrecision(3)} KiB`;
  const matrix = await rows(page, "Traffic by sender and receiver");
  assert.deepEqual(
    matrix.map((row) => [row[0], row[1], row[3]]),
    pairs.map((pair) => [String(pair.rank), String(pair.peer), bytes(pair.bytes)]),
  );
}

async function kindsOfExchange(page) {
  const want = sql(
    "SELECT op, axis, count(DISTINCT rank) AS ranks, sum(bytes_wire) / sum(steps) AS wire, " +
      "sum(exposed_ms) / sum(steps) AS exposed, sum(wait_ms) / sum(steps) AS wait " +
      `${newestOf("comm_ops")} GROUP BY op, axis ORDER BY exposed + wait DESC`,
  );
  const got = await cellsOf(figure(page, "Kinds of exchange").locator("tbody tr"));
  assert.equal(got.length, want.length);
  want.forEach(({ op, axis, ranks: n }, i) =>
    assert.deepEqual(got[i].slice(0, 3), [op, axis, String(n)]),
  );
  const [{ wire, exposed, wait }] = want;
  assert.deepEqual(
    [got[0][5], got[0][8], got[0][9]],
    [`${(wire / 1024).toPrecision(3)} KiB`, `${exposed.toFixed(2)} ms`, `${wait.toFixed(2)} ms`],
  );
}

async function ternary(page) {
  const want = sql(`SELECT * ${newestOf("layers")} ORDER BY layer, tensor`);
  const codes = figure(page, "Codes of each tensor");
  const got = await cellsOf(codes.locator("tbody tr"));
  assert.equal(got.length, want.length);
  want.forEach((row, i) =>
    assert.deepEqual(
      [got[i][0], got[i][2], got[i][3]],
      [`${row.layer} ${row.tensor}`, percent(row.zero_frac, 1), percent(row.pos_frac, 1)],
    ),
  );
  const titles = await codes.locator("thead th").allTextContents();
  for (const [key, title] of [
    ["flip_frac", "flips"],
    ["sign_flip_frac", "sign flips"],
    ["oscillation_frac", "undone flips"],
    ["boundary_frac", "near threshold"],
  ]) {
    const at = titles.indexOf(title);
    assert.equal(at >= 0, typeof want[0][key] === "number", `the column "${title}"`);
    if (at >= 0) want.forEach((row, i) => assert.equal(got[i][at], percent(row[key], 2)));
  }
  await tensorByTime(page, want);
  await distribution(page);
  await curvesOfLayers(page, want);
}

/** The newest sample of a tensor's histogram, as shares, equals that in the database. */
async function distribution(page) {
  const title = "Distribution of a tensor";
  const card = figure(page, title);
  for (const kind of ["gradients", "weights"]) {
    await card.locator("select").last().selectOption(kind);
    const of = `${newestOf("distributions")} AND layer = 0 AND tensor = 'attn_o'`;
    const [{ all }] = sql(`SELECT sum(${kind}) AS "all" ${of}`);
    const want = sql(`SELECT ${kind} AS n ${of} AND ${kind} > 0 ORDER BY bin DESC`);
    const got = await rows(page, title);
    const filled = got.filter((row) => row.at(-1) !== percent(0, 2));
    assert.deepEqual(
      filled.map((row) => row.at(-1)),
      want.map(({ n }) => percent(n / all, 2)),
      `the newest ${kind}`,
    );
  }
  const caption = await card.locator("figcaption").textContent();
  assert.match(caption, /^0 attn_o: 66\.7\s% of the latent weights .* 0\.0\s% beyond 2 scales/);
  const tensors = card.locator("select").first();
  if ((await tensors.locator("option").count()) < 2) return; // a report contains one tensor
  await tensors.selectOption({ label: "0 ffn_up" });
  await card.locator("select").last().selectOption("weights");
  await card.locator(".empty", { hasText: "not ternary" }).waitFor();
}

/** Each layer of the chosen tensor has a curve that ends at its newest value. */
async function curvesOfLayers(page, want) {
  const title = "Curves of the layers";
  await figure(page, title).locator("select").first().selectOption("zero_history");
  await figure(page, title).locator("select").last().selectOption("ffn_up");
  const newest = (await rows(page, title)).at(-1);
  const layers = want.filter(({ tensor }) => tensor === "ffn_up");
  layers.forEach((row, i) =>
    assert.equal(Number(newest[i + 1]), Number(row.zero_frac.toPrecision(4))),
  );
}

async function tensorByTime(page, want) {
  const heat = figure(page, "Tensor by time");
  for (const [kind, key, show] of [
    ["zero_history", "zero_frac", (value) => percent(value, 2)],
    ["boundary_history", "boundary_frac", (value) => percent(value, 2)],
    ["grad_norm_history", "grad_norm", (value) => String(Number(value.toPrecision(3)))],
  ]) {
    await heat.locator("select").selectOption(kind);
    const table = await rows(page, "Tensor by time");
    want.forEach((row, i) =>
      assert.equal(table[i].at(-1), show(row[key]), `the newest ${kind} of ${row.tensor}`),
    );
  }
}

async function events(page) {
  const count = (table) => truth(`SELECT count(*) FROM ${table} WHERE run = 'base'`);
  const caption = (title) => figure(page, title).locator("figcaption").textContent();
  const rowsOf = (title) => figure(page, title).locator("tbody tr").count();
  assert.equal(await page.locator(".lanes .lost").count(), 1, "what was done again is shaded");
  assert.match(await caption("Timeline"), new RegExp(`^${count("events")} events`));
  assert.match(await caption("Goodput"), new RegExp(`^Goodput ${goodput()}`));
  assert.match(await caption("Goodput"), /training again after 4(\.0)? s on average\.$/);
  assert.equal(await rowsOf("Attempts"), 2);
  assert.equal(await rowsOf("Checkpoints"), count("checkpoints"));
  assert.match(
    await figure(page, "Events").locator("tbody").textContent(),
    /<img src=x onerror=hacked=1>/,
    "a hostile title is shown as the text it is",
  );
}

async function system(page) {
  const table = await cellsOf(figure(page, "Ranks and their machines").locator("tbody tr"));
  assert.deepEqual(
    table.map((row) => row[5]),
    ["100 MiB", "101 MiB", "102 MiB", "103 MiB"],
  );
}

/** The page shows the newest mean of each metric in the database's table of metrics. */
async function metrics(page) {
  const rows = await cellsOf(page.locator("figure tbody tr"));
  assert.equal(
    rows.length,
    Number(truth("SELECT count(*) FROM metrics WHERE view <> 'distributions'")),
  );
  const loss = rows.find(([key, scope]) => key === "loss" && scope === "step");
  const newest =
    "SELECT printf('%.4f', loss) FROM steps WHERE run = 'base' ORDER BY step DESC LIMIT 1";
  assert.equal(loss[2], String(truth(newest)));
}

export const truths = { overview, ranks, steps, comm, ternary, events, system, metrics };
