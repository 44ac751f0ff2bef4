// runs.mjs - the filter of the table of runs, and mean curves of runs that share a setting
// (web/static/pages/run_filter.js, run_means.js).
import assert from "node:assert";

const filter = await import(`${process.env.BT_PAGE}/pages/run_filter.js`);
const { meanLines } = await import(`${process.env.BT_PAGE}/pages/run_means.js`);

const row = {
  run: "Warm-1",
  state: "done",
  host: "alpha",
  tags: "ab cd two\u00a0words",
  note: "a Note",
  loss: 2.5,
};
const names = [
  "optim.lr",
  "train.steps",
  "data.steps",
  "lr",
  "model.name",
  "data.nothing",
  "a.loss",
];
const settings = { "optim.lr": 0.001, "train.steps": 200, lr: 3, "model.name": "BitNet" };
const settingOf = (one, name) => {
  assert.strictEqual(one, row);
  return settings[name] ?? null;
};
const verdicts = {
  "": true,
  warm: true,
  cold: false,
  "warm cold": false,
  "  warm   done  ": true,
  ALPHA: true,
  "ab cd note": true,
  "loss<2.6": true,
  "loss<2.5": false,
  "loss<=2.5": true,
  "loss<=2.4": false,
  "loss>2.4": true,
  "loss>2.5": false,
  "loss>=2.5": true,
  "loss>=2.6": false,
  "loss=2.5": true,
  "loss=2.50": true,
  "loss=2": false,
  "loss:2.": true,
  "loss:3": false,
  "state:on": true,
  "state=done": true,
  "state=DONE": true,
  "state=don": false,
  "lr=3": true, // The exact name has priority over one that ends with it.
  "optim.lr<0.01": true,
  "steps>100": true,
  "steps>200": false,
  "name:bit": true,
  'tags:"two words"': true,
  '"two words"': true,
  'tags:"cd two wo': true,
  'tags:"words two"': false,
  "name=bitnet": true,
  "teps>100": false, // A part of a name is an ordinary word, which no run contains.
  "nothing<1": false, // An unknown setting satisfies no comparison.
  "nothing>=0": false,
  "nothing=null": false,
  "nothing:null": true, // The displayed text can be searched.
  "bad<": false,
};
for (const [words, wanted] of Object.entries(verdicts))
  assert.strictEqual(filter.matches(row, words, names, settingOf), wanted, `'${words}'`);
assert.deepStrictEqual(filter.settingsIn("lr<1 loss<2 steps>3 word teps<1 nothing:x", row, names), [
  "lr",
  "train.steps",
  "data.nothing",
]);
assert.deepStrictEqual(filter.settingsIn("lr<1", null, names), []);

const range = (from, to) => Array.from({ length: (to - from) / 2 + 1 }, (_, i) => from + 2 * i);
const straight = (label, from, to, slope, more) => {
  const x = [];
  for (let i = from; i <= to; i += 2) x.push(i);
  const y = x.map((v) => slope * v);
  return {
    label,
    unit: "nats",
    x,
    y,
    step: x.map((v) => v * 10),
    low: y[0],
    high: y.at(-1),
    ...more,
  };
};
const curves = [
  straight("a", 0, 320, 1),
  straight("b", 160, 480, 3, { step: range(160, 480).map((v) => v * 20) }),
  straight("c", 0, 10, 1, { low: NaN, high: NaN }),
  straight("none", 2, 0, 1),
  straight("d", 0, 10, 1),
];
const values = { a: 10, b: 10, c: 9, d: null };
const lines = meanLines(curves, "optim.lr", (label) => values[label]);
assert.deepStrictEqual(
  lines.map((line) => line.label),
  ["lr unknown (1)", "lr 9 (1)", "lr 10 (2)"],
);
assert.deepStrictEqual(
  lines.map((line) => line.color),
  ["--s0", "--s1", "--s2"],
);
const [, alone, mean] = lines;
assert.strictEqual(mean.unit, "nats");
assert.strictEqual(mean.smooth, false);
assert.deepStrictEqual([mean.low, mean.high], [0, 1440]);
assert.deepStrictEqual([mean.x.length, mean.x[0], mean.x.at(-1)], [161, 0, 480]);
mean.x.forEach((x, i) => {
  const known = [...(x <= 320 ? [x] : []), ...(x >= 160 ? [3 * x] : [])];
  const middle = known.reduce((sum, one) => sum + one) / known.length;
  assert.ok(Math.abs(mean.y[i] - middle) < 1e-9, `${x}: ${mean.y[i]}, not ${middle}`);
  assert.deepStrictEqual([mean.lo[i], mean.hi[i]], [known[0], known.at(-1)]);
  assert.strictEqual(mean.step[i], (x >= 160 ? 20 : 10) * x); // the furthest of its runs
});
assert.deepStrictEqual([alone.low, alone.high], [undefined, undefined]);
assert.deepStrictEqual([alone.x[0], alone.x.at(-1)], [0, 10]);
const twice = {
  label: "t",
  x: [0, 5, 5, 10],
  y: [0, 1, 2, 3],
  step: [0, 1, 2, 3],
  low: 0,
  high: 3,
};
// Between two points a curve is straight, and it has no value outside them.
const bent = {
  ...twice,
  x: [0, 1, 7, 8, 50, 160],
  y: [3, -2, 9, 9, 1, 40],
  step: [0, 1, 2, 3, 4, 5],
};
const [line] = meanLines([bent], "k", () => 1);
line.x.forEach((x, i) => {
  const k = Math.max(
    1,
    bent.x.findIndex((one) => one >= x),
  );
  const share = (x - bent.x[k - 1]) / (bent.x[k] - bent.x[k - 1]);
  const wanted = bent.y[k - 1] + share * (bent.y[k] - bent.y[k - 1]);
  assert.ok(Math.abs(line.y[i] - wanted) < 1e-9, `${x}: ${line.y[i]}, not ${wanted}`);
});
// Two points at one position, and text values in their order.
assert.ok(meanLines([twice], "k", () => 1)[0].y.every(Number.isFinite));
const named = ["b", "a", "c"].map((label) => ({ ...twice, label }));
const words = meanLines(named, "k", (label) => label).map((line) => line.label);
assert.deepStrictEqual(words, ["k a (1)", "k b (1)", "k c (1)"]);
