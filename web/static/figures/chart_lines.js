// chart_lines.js - computes the numbers of a chart's lines: a common x, averages, ranges of axes. Pure functions. A
// line is {label, color, x, y, n, lo, hi, step, ...}, see chart.js.

const bandRows = 16;

/** Limits a value to the range of the values around point i, like limit_to_band in store/view/view_shape.c. */
function withinBand(value, i, { mean, lo, hi, n }) {
  const least = lo || mean;
  const most = hi || mean;
  const rowsOf = (k) => Math.max(1, (n && n[k]) || 1);
  let low = least[i];
  let high = most[i];
  let rows = rowsOf(i);
  for (let d = 1; rows < bandRows && (d <= i || i + d < mean.length); d += 1)
    for (const k of [i - d, i + d]) {
      if (k < 0 || k >= mean.length || mean[k] === null) continue;
      low = Math.min(low, least[k]);
      high = Math.max(high, most[k]);
      rows += rowsOf(k);
    }
  return Math.min(Math.max(value, low), high);
}

/** Returns the number of steps of each point since the previous point. */
function widthsOf({ mean, step, n }) {
  const rows = (i) => Math.max(1, (n && n[i]) || 1);
  return mean.map((none, i) => (i > 0 && step ? step[i] - step[i - 1] : rows(i)));
}

/** Smooths the line: each point is the average of the means on both sides, weighted by keep^(distance in
 * steps). The average has no lag, and is limited to the range of the values nearby, like bt_view_smooth in
 * store/view. */
export function smoothed(line, keep) {
  const { mean } = line;
  const kept = widthsOf(line).map((width) => keep ** width);
  const later = new Array(mean.length);
  let sum = 0;
  let weight = 0;
  const pass = (i) => {
    sum *= kept[i];
    weight *= kept[i];
    if (mean[i] === null) return;
    sum += (1 - kept[i]) * mean[i];
    weight += 1 - kept[i];
  };
  for (let i = mean.length - 1; i >= 0; i -= 1) {
    later[i] = [sum, weight];
    pass(i);
  }
  sum = 0;
  weight = 0;
  return mean.map((value, i) => {
    const half = Math.sqrt(kept[i]);
    const own = 2 * (1 - half);
    const above = value === null ? 0 : half * (sum + later[i][0]) + own * value;
    const below = half * (weight + later[i][1]) + own;
    pass(i);
    return value === null ? null : withinBand(above / below, i, line);
  });
}

/** Returns the decay per step of an average over a share of `steps` steps; 0: none, if that is fewer than two
 * steps. Like bt_view_keep in store/view. */
export function keepOf(share, steps) {
  const window = share * steps;
  return window >= 2 ? Math.exp(-1 / window) : 0;
}

/** Returns the number of steps of a line, including steps between its points that were not recorded. Like
 * bt_view_steps_shown in store/view. */
export function stepsCovered({ step, n, y }) {
  if (!step || !n) return y.length;
  return step.length ? step[step.length - 1] - step[0] + n[0] : 0;
}

const otherOrder = 20;

/** Returns the default range of several lines from the server's range of each; null: unknown. A line of another order
 * of magnitude does not widen the range. Like bt_view_join_ranges in store/view. */
export function usualRange(lines) {
  const isKnown = ({ x, ghost, low, high }) =>
    x.length && !ghost && Number.isFinite(low) && Number.isFinite(high);
  const known = lines.filter(isKnown);
  if (!known.length) return null;
  const byWidth = [...known].sort((a, b) => a.high - a.low - (b.high - b.low));
  const of = byWidth[(known.length - 1) >> 1];
  const room = otherOrder * Math.max(Math.abs(of.low), Math.abs(of.high)) || Infinity;
  const lows = known.map(({ low }) => low).filter((low) => low >= of.low - room);
  const highs = known.map(({ high }) => high).filter((high) => high <= of.high + room);
  return [Math.min(...lows), Math.max(...highs)];
}

/** Returns a range magnified 2^zoom times and moved by a fraction of itself. */
export function zoomedRange([low, high], { zoom, pan }, isLog) {
  const to = isLog ? Math.log : (value) => value;
  const back = isLog ? Math.exp : (value) => value;
  const [from, until] = [to(low), to(high)];
  const half = ((until - from) / 2) * 2 ** -zoom;
  const middle = (from + until) / 2 + pan * (until - from);
  return [back(middle - half), back(middle + half)];
}

/** Merges lines with separate x into one sorted x: {x, slots}. slots[line]: new index of each of its points;
 * null: unchanged. */
export function commonX(lines) {
  const first = lines[0].x;
  const isFirst = (line) =>
    line.x.length === first.length && line.x.every((x, i) => x === first[i]);
  if (lines.every(isFirst)) return { x: first, slots: lines.map(() => null) };
  const all = new Set(lines.flatMap((line) => line.x));
  const x = [...all].filter((value) => value !== null).sort((a, b) => a - b);
  const slotOf = new Map(x.map((value, i) => [value, i]));
  return { x, slots: lines.map((line) => line.x.map((value) => slotOf.get(value))) };
}

/**
 * Places the values of one line on the common x of `n` positions. undefined: the line has no point there;
 * null: a gap in the line.
 */
export function spread(values, slots, n) {
  if (!slots) return values;
  const out = new Array(n).fill(undefined);
  values.forEach((value, i) => {
    if (slots[i] !== undefined) out[slots[i]] = value;
  });
  return out;
}

/** Returns the step at each of the `n` positions of the common x: that of the first line with a point there. */
export function stepsOf(lines, slots, n) {
  const out = new Array(n).fill(null);
  lines.forEach((line, i) => {
    (line.step || []).forEach((step, k) => {
      const at = slots[i] ? slots[i][k] : k;
      if (at !== undefined && out[at] === null) out[at] = step;
    });
  });
  return out;
}

/**
 * Returns the index of the first step at or after `step` in ascending steps; the last index if all are before
 * it.
 */
export function indexOfStep(steps, step) {
  let low = 0;
  let high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the range of a logarithmic axis: from a round number below the data to their maximum. */
export function logRange(low, high) {
  if (!(low > 0)) return [0.1, 1];
  const unit = 10 ** Math.floor(Math.log10(low));
  const from = Number((Math.floor(low / unit + 1e-9) * unit).toPrecision(6));
  return [from, high > from ? high : from * 10];
}

/**
 * Returns the range of a linear axis: that of the data with a margin. floor: a value that the range includes.
 */
export function linearRange(low, high, floor) {
  if (low === null || low === undefined) return [0, 1];
  const least = floor === undefined ? low : Math.min(low, floor);
  const room = (high - least) * 0.06 || Math.abs(high) * 0.05 || 1;
  const onFloor = floor !== undefined && least >= floor;
  return [onFloor ? least : least - room, high + room];
}
