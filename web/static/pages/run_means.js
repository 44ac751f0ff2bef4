// run_means.js - mean and spread of the curves of runs with equal values of a setting.
import { usualRange } from "../figures/chart_lines.js";

const places = 160; // number of points of a mean

/** Interpolates a curve at a position on the axis; null: beyond its ends. */
function valueAt({ x, y }, place) {
  const last = x.length - 1;
  if (last < 0 || place < x[0] || place > x[last]) return null;
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= place) low = middle;
    else high = middle;
  }
  if (x[high] === x[low]) return y[low];
  return y[low] + ((y[high] - y[low]) * (place - x[low])) / (x[high] - x[low]);
}

/** The line of one group: the mean of its runs, and a band from the smallest to the largest value. */
function meanLine(label, color, curves) {
  const from = Math.min(...curves.map((curve) => curve.x[0]));
  const to = Math.max(...curves.map((curve) => curve.x[curve.x.length - 1]));
  const line = { label, color, unit: curves[0].unit, x: [], y: [], lo: [], hi: [], step: [] };
  for (let i = 0; i <= places; i += 1) {
    const place = from + ((to - from) * i) / places;
    const values = curves.map((curve) => valueAt(curve, place)).filter((value) => value !== null);
    if (!values.length) continue;
    const steps = curves.map(({ x, step }) => valueAt({ x, y: step }, place));
    line.x.push(place);
    line.y.push(values.reduce((sum, value) => sum + value, 0) / values.length);
    line.lo.push(Math.min(...values));
    line.hi.push(Math.max(...values));
    line.step.push(Math.round(Math.max(...steps.filter((step) => step !== null))));
  }
  const [low, high] = usualRange(curves) || [];
  return { ...line, low, high, smooth: false };
}

/** Returns a line for each value of a setting; valueOf(run) returns that value, or null. */
export function meanLines(curves, setting, valueOf) {
  const groups = new Map();
  for (const curve of curves) {
    if (!curve.x.length) continue;
    const value = valueOf(curve.label);
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(curve);
  }
  const order = (a, b) => Number(a) - Number(b) || (String(a) < String(b) ? -1 : 1);
  const name = setting.split(".").pop();
  return [...groups.keys()].sort(order).map((value, i) => {
    const runs = groups.get(value);
    return meanLine(`${name} ${value ?? "unknown"} (${runs.length})`, `--s${i % 12}`, runs);
  });
}
