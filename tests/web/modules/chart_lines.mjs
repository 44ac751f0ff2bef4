// chart_lines.mjs - numbers of a chart's lines (web/static/figures/chart_lines.js) compared with their
// definitions on small lines. monitor.tui.smoothing compares averages with the program's.
import assert from "node:assert";

const c = await import(`${process.env.BT_PAGE}/figures/chart_lines.js`);
const near = (a, b) => assert.ok(Math.abs(a - b) <= 1e-9 * (1 + Math.abs(b)), `${a}, not ${b}`);

// The average weighs each surrounding value by a decay with the distance in steps.
const keep = 0.7;
const line = { mean: [3, null, 5, -2, 8], step: [10, 11, 15, 16, 19] };
const all = { ...line, lo: line.mean.map(() => -9), hi: line.mean.map(() => 9) };
const averages = c.smoothed(all, keep);
assert.strictEqual(averages[1], null);
const widths = [1, 1, 4, 1, 3];
for (const at of [0, 2, 3, 4]) {
  const half = Math.sqrt(keep ** widths[at]);
  let above = 2 * (1 - half) * line.mean[at];
  let below = 2 * (1 - half);
  for (let i = 0; i < 5; i++) {
    if (i === at || line.mean[i] === null) continue;
    let remains = half * (1 - keep ** widths[i]);
    for (let k = Math.min(i, at) + 1; k < Math.max(i, at); k++) remains *= keep ** widths[k];
    above += remains * line.mean[i];
    below += remains;
  }
  near(averages[at], above / below);
}
assert.deepStrictEqual(c.smoothed({ mean: [1, 2, 4] }, 0), [1, 2, 4]);
// The average is within the surrounding values, here of a bucket of many rows.
assert.deepStrictEqual(
  c.smoothed({ mean: [1, 9], lo: [0, 8], hi: [2, 9.5], n: [20, 20] }, 0.99),
  [2, 8],
);

assert.strictEqual(c.keepOf(0.01, 100), 0);
near(c.keepOf(0.02, 100), Math.exp(-1 / 2));
near(c.keepOf(0.5, 100), Math.exp(-1 / 50));

assert.strictEqual(c.stepsCovered({ y: [1, 2, 3] }), 3);
assert.strictEqual(c.stepsCovered({ y: [1, 2, 3], step: [4, 5, 6] }), 3);
assert.strictEqual(c.stepsCovered({ y: [1, 2, 3], n: [4, 5, 6] }), 3);
assert.strictEqual(c.stepsCovered({ y: [1, 2], step: [9, 20], n: [10, 3] }), 21);
assert.strictEqual(c.stepsCovered({ y: [], step: [], n: [] }), 0);

const lines = [
  { x: [1], low: 2, high: 5 },
  { x: [1], low: 1, high: 4 },
  { x: [], low: -9, high: 9 },
  { x: [1], low: -9, high: 9, ghost: true },
  { x: [1], low: NaN, high: 9 },
  { x: [1] },
];
assert.deepStrictEqual(c.usualRange(lines), [1, 5]);
assert.strictEqual(c.usualRange(lines.slice(2)), null);
// One diverged run does not flatten the other lines.
assert.deepStrictEqual(c.usualRange([...lines, { x: [1], low: 2, high: 3.7e10 }]), [1, 5]);
assert.deepStrictEqual(c.usualRange([{ x: [1], low: 2, high: 3.7e10 }]), [2, 3.7e10]);

const at = { zoom: 1, pan: 0.25 };
assert.deepStrictEqual(c.zoomedRange([10, 18], { zoom: 0, pan: 0 }, false), [10, 18]);
assert.deepStrictEqual(c.zoomedRange([10, 18], at, false), [14, 18]);
assert.deepStrictEqual(c.zoomedRange([10, 18], { zoom: -1, pan: 0 }, false), [6, 22]);
const [low, high] = c.zoomedRange([1, 10 ** 4], at, true);
near(low, 100);
near(high, 10 ** 4);

// The common x axis is sorted and without duplicates; each line keeps its values at its positions.
const a = { x: [1, 3, 5], step: [10, 30, 50] };
const b = { x: [2, 3, null, 9], step: [21, 31, 41, 91] };
assert.deepStrictEqual(c.commonX([a, { x: [1, 3, 5] }]), { x: a.x, slots: [null, null] });
for (const close of [
  [1, 3],
  [1, 3, 6],
  [1, 3, 5, 7],
]) {
  const { x, slots } = c.commonX([a, { x: close }]);
  assert.deepStrictEqual(
    x,
    [...new Set([...a.x, ...close])].sort((p, q) => p - q),
  );
  assert.deepStrictEqual(
    slots[1].map((slot) => x[slot]),
    close,
  );
}
const { x, slots } = c.commonX([a, b]);
assert.deepStrictEqual(x, [1, 2, 3, 5, 9]);
assert.deepStrictEqual(slots, [
  [0, 2, 3],
  [1, 2, undefined, 4],
]);
assert.deepStrictEqual(c.commonX([{ x: [10, 9] }, { x: [100] }]).x, [9, 10, 100]);
assert.deepStrictEqual(c.spread([7, null, 8], slots[0], 5), [7, undefined, null, 8, undefined]);
const without = c.spread([4, 5, 6, 7], slots[1], 5);
assert.deepStrictEqual(without, [undefined, 4, 5, undefined, 7]);
assert.strictEqual(Object.keys(without).join(), "0,1,2,3,4");
const same = [1, 2];
assert.strictEqual(c.spread(same, null, 2), same);
assert.deepStrictEqual(c.stepsOf([a, b], slots, 5), [10, 21, 30, 50, 91]);
assert.deepStrictEqual(c.stepsOf([{}, { step: [5, 6] }], [null, null], 3), [5, 6, null]);

const steps = [2, 4, 4, 8, 16];
for (let step = 0; step < 20; step++) {
  const first = steps.findIndex((one) => one >= step);
  assert.strictEqual(c.indexOfStep(steps, step), first < 0 ? 4 : first, `step ${step}`);
}
assert.strictEqual(c.indexOfStep([7], 3), 0);

assert.deepStrictEqual(c.logRange(0, 5), [0.1, 1]);
assert.deepStrictEqual(c.logRange(null, 5), [0.1, 1]);
assert.deepStrictEqual(c.logRange(0.0347, 7), [0.03, 7]);
assert.deepStrictEqual(c.logRange(0.3, 0.3), [0.3, 3]);
assert.deepStrictEqual(c.logRange(200, 250), [200, 250]);

assert.deepStrictEqual(c.linearRange(null, 4), [0, 1]);
assert.deepStrictEqual(c.linearRange(undefined, 4), [0, 1]);
assert.deepStrictEqual(c.linearRange(0, 100), [-6, 106]);
assert.deepStrictEqual(c.linearRange(50, 100, 0), [0, 106]);
assert.deepStrictEqual(c.linearRange(-50, 50, 0), [-56, 56]);
assert.deepStrictEqual(c.linearRange(20, 20), [19, 21]);
assert.deepStrictEqual(c.linearRange(-20, -20), [-21, -19]);
assert.deepStrictEqual(c.linearRange(0, 0), [-1, 1]);
