// chart_lines.js - the numbers behind a chart's lines: a common x, averages, ranges of axes. Pure
// functions. A line is {label, color, x, y, n, lo, hi, step, ...}, see chart.js.

/**
 * Exponential average: of each step `keep` of the average before remains. A point that stands for n
 * steps counts n times, so that a curve looks alike at every zoom. The average is corrected for its
 * start, where there is nothing before. As bt_view_ema in store/view.
 */
export function exponentialAverage(values, keep, n) {
  let sum = 0;
  let weight = 0;
  return values.map((value, i) => {
    if (value === null) return null;
    const kept = keep ** Math.max(1, (n && n[i]) || 1);
    sum = kept * sum + (1 - kept) * value;
    weight = kept * weight + (1 - kept);
    return sum / weight;
  });
}

/**
 * What an average over a share of `steps` steps keeps of itself at each step; 0: none, as below two
 * steps. As bt_view_keep in store/view.
 */
export function keepOf(share, steps) {
  const window = share * steps;
  return window >= 2 ? Math.exp(-1 / window) : 0;
}

/**
 * How many steps a line covers: those that were not recorded between its points count as well. As
 * bt_view_steps_shown in store/view.
 */
export function stepsCovered({ step, n, y }) {
  if (!step || !n) return y.length;
  return step.length ? step[step.length - 1] - step[0] + n[0] : 0;
}

/** The range in which the usual values of all lines lie, as the server tells; null: not known. */
export function usualRange(lines) {
  const known = lines.filter((line) => line.x.length && !line.ghost && Number.isFinite(line.low));
  if (!known.length) return null;
  const low = Math.min(...known.map((line) => line.low));
  const high = Math.max(...known.map((line) => line.high));
  return [low, high];
}

/** A range seen closer (zoom > 0: 2^zoom times) and moved by a share of itself. */
export function zoomedRange([low, high], { zoom, pan }, isLog) {
  const to = isLog ? Math.log : (value) => value;
  const back = isLog ? Math.exp : (value) => value;
  const [from, until] = [to(low), to(high)];
  const half = ((until - from) / 2) * 2 ** -zoom;
  const middle = (from + until) / 2 + pan * (until - from);
  return [back(middle - half), back(middle + half)];
}

/**
 * Lines of their own x on one sorted x: {x, slots}. slots[line]: where each of its points went;
 * null: they stay.
 */
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
 * Values of one line on the common x of `n` places. undefined: the line has no point there; null: a
 * hole in the line.
 */
export function spread(values, slots, n) {
  if (!slots) return values;
  const out = new Array(n).fill(undefined);
  values.forEach((value, i) => {
    if (slots[i] !== undefined) out[slots[i]] = value;
  });
  return out;
}

/**
 * The step at each of the `n` places of the common x; where lines share a place, the first line
 * says.
 */
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
 * The index of the first step that is not before `step`, in steps that grow; the last index if all
 * are before.
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

/** The range of a logarithmic axis: from a round number below its data to where they end. */
export function logRange(low, high) {
  if (!(low > 0)) return [0.1, 1];
  const unit = 10 ** Math.floor(Math.log10(low));
  const from = Number((Math.floor(low / unit + 1e-9) * unit).toPrecision(6));
  return [from, high > from ? high : from * 10];
}

/**
 * The range of a linear axis: the data's with room around them. floor: a value that the axis
 * reaches down to.
 */
export function linearRange(low, high, floor) {
  if (low === null || low === undefined) return [0, 1];
  const least = floor === undefined ? low : Math.min(low, floor);
  const room = (high - least) * 0.06 || Math.abs(high) * 0.05 || 1;
  const onFloor = floor !== undefined && least >= floor;
  return [onFloor ? least : least - room, high + room];
}
