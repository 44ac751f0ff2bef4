// series_card.js - a card with a chart of metrics of one run.
import { askEarly, series } from "../base/api.js";
import { dash, digits, nth, onAxis, reach, unit } from "../base/format.js";
import { axisNow, state } from "../base/state.js";
import { number } from "../base/table.js";
import { axes } from "../base/vocabulary.js";
import { Chart } from "../figures/chart.js";
import { keepOf, smoothed, stepsCovered } from "../figures/chart_lines.js";
import { Card } from "./card.js";

const tableRows = 400;
const toldLines = 3; // maximum number of lines described in the sentence

/** Returns the displayed steps as arguments of a route: the zoom, or nothing for all. */
export function zoomRange() {
  return state.zoom ? { x0: state.zoom.x0, x1: state.zoom.x1 } : {};
}

/** Returns the positions of a series' points on the current axis. */
export function placesOf(one) {
  return axisNow() === "step" ? one.step.map((step) => step + 1) : one.x;
}

/**
 * Number of points in the widest figure of the page, used for all figures, so that one request serves them.
 */
function points() {
  return Math.min(640, Math.max(160, Math.round(innerWidth / 3 / 16) * 16));
}

/**
 * spec is a row of `charts` in vocabulary.js: {title, sub, floor, lines: [{key, label, color, sparse, smooth,
 * hatch, best}]}, with
 *   wide, tall, tools, onpick, empty   as for Card and Chart
 *   stacked     stacked areas; share(): true draws them as shares of their sum
 *   rank()      the rank whose series is shown; without it the series of the run
 *   rules()     horizontal lines
 *   ghosts      also shows losses that a restart replaced
 */
export function seriesCard(ctx, spec) {
  let chart = null;
  const shown = (data) => {
    const lines = linesOf(data, spec);
    return spec.share && spec.share() ? sharesOf(lines) : lines;
  };
  const draw = (body, data) => {
    if (!chart) chart = new Chart(body, spec.tall);
    const lines = shown(data);
    const ghosts = spec.ghosts && lines.length ? ghostsOf(ctx.superseded, lines[0]) : [];
    chart.set({
      lines: [...lines, ...ghosts],
      unit: lines[0] && lines[0].unit,
      axis: axisNow(),
      stacked: spec.stacked,
      rules: spec.rules && spec.rules(),
      floor: spec.stacked ? 0 : spec.floor,
      events: ctx.events,
      redone: ctx.redone,
      empty: spec.empty,
      onpick: spec.onpick,
    });
  };
  const { title, sub, wide, tools } = spec;
  return new Card({
    title,
    sub,
    wide,
    tools,
    every: 0,
    marks: true,
    load: () => loadSeries(ctx.run, spec),
    draw,
    sentence: (data) => sentenceOf(shown(data)) + (spec.ghosts ? marksLeft(ctx) : ""),
    table: (data) => tableOf(shown(data)),
    keys: (event) => chart && chart.key(event),
    close: () => chart && chart.close(),
  });
}

function argumentsOf(spec) {
  return {
    x: axisNow(),
    rank: spec.rank ? spec.rank() : null,
    width: points(),
    ...zoomRange(),
  };
}

function metricsOf(spec) {
  return spec.lines.map((line) => line.key);
}

function loadSeries(run, spec) {
  return series(run, metricsOf(spec), argumentsOf(spec));
}

/** Sends the request of a card before the card exists. The response is used only if the card's own request is not
 * merged with requests of other cards. */
export function askSeriesEarly(run, spec) {
  askEarly(`runs/${run}/series`, { ...argumentsOf(spec), metric: metricsOf(spec).join() });
}

function linesOf(data, spec) {
  return spec.lines.flatMap((line) => {
    const one = data.series.find((s) => s.metric === line.key);
    return one ? [lineOf(line, one, spec.stacked)] : [];
  });
}

/** Replaces the first and the last mean of a line by the single values. */
function exactEnds(mean, first, last) {
  const y = mean.slice();
  if (y.length) y[0] = first[0];
  if (y.length > 1) y[y.length - 1] = last[last.length - 1];
  return y;
}

/** Number of steps averaged in a point; the ends of a line are single steps. */
function meantSteps(n) {
  return n.map((count, i) => (i === 0 || i === n.length - 1 ? 1 : count));
}

/** A sparse line consists of its points alone; other lines have gaps where values are unknown. */
function lineOf({ label, color, sparse, smooth, hatch, best }, one, stacked) {
  const wanted = (value, i) => (value !== null || !sparse ? i : -1);
  const kept = one.mean.map(wanted).filter((i) => i >= 0);
  const at = (values) => kept.map((i) => values[i]);
  const isPlain = sparse || stacked;
  return {
    label,
    color,
    sparse,
    hatch,
    unit: one.unit,
    x: at(placesOf(one)),
    y: stacked ? at(one.mean) : exactEnds(at(one.mean), at(one.first), at(one.last)),
    mean: at(one.mean),
    start: one.start,
    end: one.end,
    leastStep: one.least_step,
    mostStep: one.most_step,
    lost: one.lost_step ?? null,
    low: stacked ? null : one.low,
    high: stacked ? null : one.high,
    best: best ? at(one.min) : null,
    meant: stacked ? at(one.n) : meantSteps(at(one.n)),
    lo: isPlain ? null : at(one.min),
    hi: at(one.max),
    n: at(one.n),
    step: at(one.step),
    smooth: isPlain ? false : smooth,
  };
}

function sharesOf(lines) {
  if (!lines.length) return lines;
  const height = (value) => Math.max(0, value || 0);
  const sum = lines[0].y.map((none, i) => lines.reduce((all, line) => all + height(line.y[i]), 0));
  const share = (value, i) => (sum[i] ? height(value) / sum[i] : null);
  return lines.map((line) => ({ ...line, unit: "ratio", y: line.y.map(share) }));
}

/**
 * Former values of steps that a restart repeated, one line per attempt, at the positions of the current
 * steps.
 */
function ghostsOf(superseded, now) {
  const ofAttempt = new Map();
  if (!now.x.length) return [];
  for (const { attempt, step, loss } of superseded) {
    const at = now.step.findIndex((value) => value >= step);
    if (at < 0 || step < now.step[0]) continue;
    if (!ofAttempt.has(attempt)) ofAttempt.set(attempt, emptyGhost(now.unit));
    const ghost = ofAttempt.get(attempt);
    if (ghost.x[ghost.x.length - 1] === now.x[at]) ghost.y[ghost.y.length - 1] = loss;
    else {
      ghost.x.push(now.x[at]);
      ghost.y.push(loss);
      ghost.step.push(now.step[at]);
      ghost.n.push(1);
    }
  }
  return [...ofAttempt.values()];
}

function emptyGhost(unit) {
  const style = { ghost: true, label: "", color: "--soft", smooth: false };
  return { ...style, unit, x: [], y: [], step: [], n: [] };
}

function sentenceOf(lines) {
  const some = lines.filter((line) => line.x.length);
  return some.map(lineSentence).slice(0, toldLines).join(" ");
}

/** Returns the first step of a point, which is named after its last step. */
function firstStep({ step, n }) {
  return step[0] - Math.max(1, n[0] || 1) + 1;
}

/** Reports that charts omit some events if there are very many. */
function marksLeft(ctx) {
  const { events, markable } = ctx;
  return markable > events.length ? ` ${events.length} of ${markable} events are marked.` : "";
}

/**
 * "Training fell from 5.1 to 2.2 over 1.2 M tokens."; with a zoom "between steps 100 and 200."; for a line
 * with a turn "Validation fell from 5.5 to 4.6 at step 90, then rose to 4.9 over 1.2 M tokens." The ends of a
 * smoothed line are means of many steps.
 */
function lineSentence(line) {
  const keep = line.smooth === false ? 0 : keepOf(state.smooth, stepsCovered(line));
  const values = keep > 0 ? smoothed(line, keep) : line.y;
  const known = values.filter((value) => value !== null);
  if (!known.length) return "";
  const [first, last] = keep > 0 ? [line.start ?? known[0], line.end ?? known.at(-1)] : ends(known);
  const was = unit(line.unit, first);
  const now = unit(line.unit, last);
  const name = line.label[0].toUpperCase() + line.label.slice(1);
  const lost = lostText(line);
  if (known.length < 2) return `${name}: ${was}${lost}.`;
  const turn = turnOf(line, { values, isRaw: keep === 0, first, last });
  if (was === now && !turn) return `${name}: ${now} at the end as at the start${lost}.`;
  const at = line.x.length - 1;
  const where = state.zoom
    ? `between steps ${nth(firstStep(line))} and ${nth(line.step[at])}`
    : reach(axisNow(), line.x[at]);
  const how = turn ? turn.how : last > first ? "rose" : "fell";
  return `${name} ${how} from ${was} to ${turn ? turn.text : ""}${now} ${where}${lost}.`;
}

function ends(known) {
  return [known[0], known[known.length - 1]];
}

/** Reports a gradient or loss that is not finite in the newest steps. */
function lostText({ lost }) {
  return lost === null ? "" : `, and is not finite since step ${nth(lost)}`;
}

const turnShare = 0.25; // a turn counts if it exceeds both ends by this share of the line's range

/** Returns the turn of a line between its ends: {how: "fell", text: "4.6 at step 90, then rose to "}; null:
 * none. For a line whose best value is marked, the turn is its minimum. */
function turnOf(line, { values, isRaw, first, last }) {
  const marked = line.best ? line.best.filter(Number.isFinite) : [];
  const known = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const below = Math.min(first, last) - low;
  const above = high - Math.max(first, last);
  const told = (value) => unit(line.unit, value);
  const isNew = (text) => text !== told(first) && text !== told(last);
  if (marked.length) {
    const least = told(Math.min(...marked));
    return isNew(least) ? fellThenRose(least, line.leastStep) : null;
  }
  if (Math.max(below, above) <= turnShare * (high - low)) return null;
  if (below >= above)
    return isNew(told(low))
      ? fellThenRose(told(low), isRaw ? line.leastStep : line.step[values.indexOf(low)])
      : null;
  if (!isNew(told(high))) return null;
  const step = isRaw ? line.mostStep : line.step[values.indexOf(high)];
  return { how: "rose", text: `${told(high)} at step ${nth(step)}, then fell to ` };
}

function fellThenRose(least, step) {
  return { how: "fell", text: `${least} at step ${nth(step)}, then rose to ` };
}

/** Returns the newest points, one column per line; rows are indices of the first line. */
function tableOf(lines) {
  const first = lines[0] || { x: [], step: [] };
  const value = (line, i) => {
    const at = line.step.indexOf(first.step[i]);
    return at < 0 || line.y[at] === null ? dash : digits(line.y[at], 6);
  };
  return {
    columns: [
      number("step", (i) => nth(first.step[i])),
      number(axes[axisNow()].title, (i) => onAxis(axisNow(), first.x[i])),
      ...lines.map((line) => number(line.label, (i) => value(line, i))),
    ],
    rows: [...first.x.keys()].slice(-tableRows).reverse(),
  };
}
