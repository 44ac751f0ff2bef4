// figures.mjs - scales of charts, the area that represents a dense line, and the responses stored in a report
// (web/static/figures/plane.js, envelope.js, base/kept_answers.js).
import assert from "node:assert";

const page = process.env.BT_PAGE;
const series = (metric) => ({
  metric,
  low: 2,
  high: 8,
  x: [0, 1, 2, 3],
  step: [0, 10, 20, 30],
  first: [0, 5, 15, 25],
  last: [4, 14, 24, 34],
  min: [1, 3, null, 7],
  max: [2, 4, null, 9],
  mean: [1.5, 3.5, null, 8],
  n: [5, 10, 10, 10],
});
const kept = {
  "runs/a/head": { one: 1 },
  "runs/a/series": { unit: "u", series: [series("loss"), series("lr")] },
  "runs/a/series?rank=0": { series: [series("busy")] },
  "runs/a/axis?x=time": { series: [{ step: [0, 10, 30], x: [0, 5, 9] }] },
  "runs/a/heatmap?value=busy": "busy",
  "runs/a/heatmap?value=wait": "wait",
};
// A minimal document for drawings.
class Element {
  kids = [];
  style = {};
  heard = {};
  constructor(tag) {
    this.tag = tag;
  }
  setAttribute(name, value) {
    this[name] = String(value);
  }
  append(kid) {
    this.kids.push(kid);
  }
  addEventListener(name, heard) {
    this.heard[name] = heard;
  }
}
globalThis.document = {
  createElementNS: (_, tag) => new Element(tag),
  getElementById: (id) => {
    assert.strictEqual(id, "bitrain-data");
    return { textContent: JSON.stringify({ run: "a", answers: kept }) };
  },
};
const { keptAnswer, report } = await import(`${page}/base/kept_answers.js`);
const { plane, scaleOf, short, wantsLog } = await import(`${page}/figures/plane.js`);
const { envelope } = await import(`${page}/figures/envelope.js`);

assert.strictEqual(report.run, "a");
assert.deepStrictEqual(keptAnswer("runs/a/head", {}), { one: 1 });
assert.strictEqual(keptAnswer("runs/a/log", {}), undefined);
assert.strictEqual(keptAnswer("runs/b/series", { metric: "loss" }), undefined);
assert.strictEqual(keptAnswer("runs/a/heatmap", {}), "busy");
assert.strictEqual(keptAnswer("runs/a/heatmap", { value: "wait" }), "wait");
const whole = keptAnswer("runs/a/series", { metric: "lr,none,loss", rank: null });
assert.strictEqual(whole.unit, "u");
assert.deepStrictEqual(
  whole.series.map((one) => one.metric),
  ["lr", "loss"],
);
// The usual values are within [2, 8], and the line reaches both.
assert.deepStrictEqual(whole.series[0], series("lr"));
assert.strictEqual(keptAnswer("runs/a/series", { metric: "busy", rank: 0 }).series.length, 1);
assert.strictEqual(keptAnswer("runs/a/series", { metric: "busy" }).series.length, 0);
// A part contains the points from one step to another, and the usual values of the whole line.
const [part] = keptAnswer("runs/a/series", { metric: "loss", x0: 10, x1: 20, x: "step" }).series;
assert.deepStrictEqual(
  [part.step, part.x, part.n],
  [
    [10, 20],
    [1, 2],
    [10, 10],
  ],
);
assert.deepStrictEqual(
  [part.first, part.last],
  [
    [5, 15],
    [14, 24],
  ],
);
assert.deepStrictEqual(
  [part.min, part.max, part.mean],
  [
    [3, null],
    [4, null],
    [3.5, null],
  ],
);
assert.deepStrictEqual([part.low, part.high], [3, 4]);
const [start] = keptAnswer("runs/a/series", { metric: "loss", x0: 0, x1: 5 }).series;
assert.deepStrictEqual([start.step, start.low, start.high], [[0], 2, 2]);
const [all] = keptAnswer("runs/a/series", { metric: "loss", x0: 10 }).series; // no end: not zoomed
assert.deepStrictEqual(all.step, [0, 10, 20, 30]);
const [nowhere] = keptAnswer("runs/a/series", { metric: "loss", x1: 0 }).series;
assert.deepStrictEqual(nowhere.step, all.step);
const [end] = keptAnswer("runs/a/series", { metric: "loss", x0: 30, x1: 40 }).series;
assert.deepStrictEqual([end.low, end.high], [7, 8]);
// On another axis, a step between two positions uses the later one.
const [timed] = keptAnswer("runs/a/series", { metric: "loss", x: "time" }).series;
assert.deepStrictEqual(
  [timed.step, timed.x],
  [
    [0, 10, 20, 30],
    [0, 5, 9, 9],
  ],
);
// If no usual value is visible, the visible range counts.
kept["runs/a/series"].series[0].low = 100;
report.answers["runs/a/series"].series[0].low = 100;
const [rare] = keptAnswer("runs/a/series", { metric: "loss", x0: 0, x1: 10 }).series;
assert.deepStrictEqual([rare.low, rare.high], [1, 4]);

assert.ok(wantsLog([1, 31, null, NaN]) && wantsLog([0.001, 0.5]));
assert.ok(!wantsLog([1, 30]) && !wantsLog([0, 100]) && !wantsLog([-1, 100]) && !wantsLog([]));
assert.deepStrictEqual([9999, 10000, -12345, 0.12345].map(short), [
  "10000",
  "10 k",
  "-12.3 k",
  "0.123",
]);
assert.deepStrictEqual(scaleOf([0, 5]).ticks, [0, 1, 2, 3, 4, 5]);
assert.deepStrictEqual(scaleOf([0, 30]).ticks, [0, 10, 20, 30]);
for (const [low, high] of [
  [0, 1],
  [-3, 7],
  [0.002, 0.0031],
  [1e6, 1e9],
  [-5, -4.9],
]) {
  const scale = scaleOf([high, null, low, NaN, (low + high) / 2]);
  assert.deepStrictEqual([scale.low, scale.high, scale.at(low), scale.at(high)], [low, high, 0, 1]);
  assert.ok(Math.abs(scale.at((low + high) / 2) - 0.5) < 1e-9);
  const { ticks } = scale;
  const step = ticks[1] - ticks[0];
  assert.ok(ticks.length >= 3 && ticks.length <= 6, `${ticks}`);
  assert.ok(
    [1, 2, 5, 10].some((k) => Math.abs(Math.log10(step / k) % 1) < 1e-6),
    `step ${step}`,
  );
  ticks.forEach((tick, i) => {
    assert.ok(tick >= low - 1e-9 * step && tick <= high + 1e-6 * step, `${tick}`);
    assert.ok(Math.abs(tick - (ticks[0] + i * step)) < 1e-6 * step);
    assert.ok(Math.abs(tick / step - Math.round(tick / step)) < 1e-6, `${tick} is not round`);
  });
  assert.ok(ticks[0] - step < low && ticks.at(-1) + step > high); // no tick is missing
}
assert.ok(
  Object.is(
    scaleOf([-1, 1]).ticks.find((tick) => Math.abs(tick) < 1e-6),
    0,
  ),
);
const log = scaleOf([1e-3, 100, -5, 0], true);
assert.deepStrictEqual([log.low, log.high], [1e-3, 100]);
assert.ok(Math.abs(log.at(0.1) - 0.4) < 1e-12);
assert.deepStrictEqual(
  log.ticks.map((tick) => Math.round(Math.log10(tick))),
  [-3, -2, -1, 0, 1, 2],
);
assert.deepStrictEqual(scaleOf([1, 1e16], true).ticks.map(Math.log10), [0, 3, 6, 9, 12, 15]);
assert.deepStrictEqual(scaleOf([2, 8], true).ticks, [2, 4, 8]);
assert.deepStrictEqual([scaleOf([]).low, scaleOf([]).high], [0, 1]);
assert.deepStrictEqual([scaleOf([], true).low, scaleOf([-1], true).high], [1, 10]);
for (const one of [0, 5, -5]) {
  const scale = scaleOf([one, one]);
  assert.deepStrictEqual(
    [scale.low, scale.high],
    [one - (Math.abs(one) || 1), one + (Math.abs(one) || 1)],
  );
  assert.strictEqual(scale.at(one), 0.5);
}
assert.deepStrictEqual([scaleOf([4], true).low, scaleOf([4], true).high], [2, 8]);

// The chart is 300 wide and 150 high, with margins 62, 14, 12 and 38.

const picked = [];
const points = [
  { x: 0.5, y: 1, color: "--s1", title: "first", key: "a" },
  { x: 32, y: 3, title: "last", faint: true },
  { x: 0, y: 2, title: "nothing on a logarithmic axis" },
  { x: null, y: 2 },
  { x: 4, y: NaN },
];
const spec = {
  x: { label: "across", log: true },
  y: { label: "up" },
  points,
  line: [
    [0.5, 2],
    [4, 3],
    [32, 1],
  ],
  rules: [{ x: 4, label: "here" }],
  onpick: (key) => picked.push(key),
};
const drawing = plane(spec, 300, 150, "a plane");
assert.deepStrictEqual(
  [drawing.tag, drawing.viewBox, drawing["aria-label"]],
  ["svg", "0 0 300 150", "a plane"],
);
const all_ = (tag, name) =>
  drawing.kids.filter((one) => one.tag === tag && (!name || one.class === name));
const dots = all_("circle");
assert.deepStrictEqual(
  dots.map((dot) => [dot.cx, dot.cy, dot.r, dot.class, dot.style.fill, ...dot.kids[0].kids]),
  [
    ["66.0", "108.0", "5", undefined, "var(--s1)", "first"],
    ["282.0", "16.0", "1.5", "faint", undefined, "last"],
  ],
);
for (const dot of dots) dot.heard.click?.();
assert.deepStrictEqual(picked, ["a"]);
assert.deepStrictEqual(all_("path", "way")[0].d, "M66.0 62.0L174.0 16.0L282.0 108.0");
assert.deepStrictEqual(all_("path", "rule")[0].d, "M174.0 12v100");
const grid = all_("path", "grid").map((one) => one.d);
const across = ["108.0", "85.0", "62.0", "39.0", "16.0"].map((y) => `M62 ${y}h224`);
assert.deepStrictEqual(grid, [...across, "M102.0 12v100", "M221.6 12v100"]);
const written = all_("text").map((one) => [one.x, one.y, one.class, one.kids[0]]);
assert.deepStrictEqual(written[0], ["56", "112", "end", "1"]);
assert.deepStrictEqual(written[5], ["102.0", "128", "middle", "1"]);
assert.deepStrictEqual(written.slice(-3), [
  ["178", "22", undefined, "here"],
  ["174", "146", "middle", "across"],
  [undefined, undefined, "middle", "up"],
]);
assert.strictEqual(all_("text").at(-1).transform, "translate(12 62) rotate(-90)");
const bare = plane(
  {
    x: {},
    y: { log: true },
    points: [
      { x: -1, y: 5 },
      { x: 1, y: -5, key: "b" },
    ],
  },
  300,
  150,
  "",
);
assert.strictEqual(bare.kids.filter((one) => one.tag === "circle").length, 1);
assert.strictEqual(
  bare.kids.filter((one) => one.class === "way" || one.class === "rule").length,
  0,
);

let drawn = [];
globalThis.Path2D = class {
  moveTo(...at) {
    drawn.push([at]);
  }
  lineTo(...at) {
    drawn.at(-1).push(at);
  }
  closePath() {
    drawn.at(-1).closed = true;
  }
};
const area = (x, y, more) => {
  drawn = [];
  const spec = { x, y, from: 0, to: x.length - 1, left: 100, width: 3, half: 0.5 };
  const path = envelope({
    ...spec,
    endOf: (column) => column + 1,
    toPixel: (value) => 50 - value,
    ...more,
  });
  assert.ok(path instanceof Path2D && drawn.every((one) => one.closed));
  return drawn.map((one) => [...one]);
};
// Two columns: maximum and minimum of each, where the second includes the last point of the first.
assert.deepStrictEqual(area([0, 0.5, 1, 1.5], [1, 2, 3, 1]), [
  [
    [100, 46.5],
    [101, 46.5],
    [101, 49.5],
    [100, 49.5],
  ],
]);
// A jump of more than three pixels is vertical, half a pixel earlier.
assert.deepStrictEqual(area([0, 1.5], [0, 10]), [
  [
    [100, 49.5],
    [100.5, 49.5],
    [100.5, 39.5],
    [101, 39.5],
    [101, 50.5],
    [100, 50.5],
  ],
]);
assert.strictEqual(area([0, 1.5], [0, 3])[0].length, 4);
// A gap divides the area and a missing point does not; the last column contains all later points.
assert.strictEqual(area([0, 1.5, 2.5], [1, null, 2]).length, 2);
assert.strictEqual(area([0, 1.5, 2.5], [1, undefined, 2]).length, 1);
assert.deepStrictEqual(area([0, 1.5, 2.5], [1, null, 2])[1], [
  [102, 47.5],
  [102, 48.5],
]);
assert.deepStrictEqual(area([9, 10], [1, 2]), [
  [
    [103, 47.5],
    [103, 49.5],
  ],
]);
assert.deepStrictEqual(area([0, 1, 2, 3], [9, 1, 2, 9], { from: 1, to: 2 }), [
  [
    [100, 48.5],
    [101, 47.5],
    [101, 49.5],
    [100, 49.5],
  ],
]);
assert.deepStrictEqual(area([], []), []);
// A gap between two points of a column is not a zero.
assert.deepStrictEqual(area([0, 0.5, 0.7], [5, null, 6])[0].flat(), [100, 43.5, 100, 45.5]);
