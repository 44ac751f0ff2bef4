// skew_card.js - the time between the first and the last rank's arrival (the wait of the first one) in the
// newest steps.
import { get } from "../base/api.js";
import { empty } from "../base/dom.js";
import { count, ms, nth } from "../base/format.js";
import { report } from "../base/kept_answers.js";
import { state } from "../base/state.js";
import { number } from "../base/table.js";
import { histogram } from "../figures/histogram.js";
import { Card } from "./card.js";
import { zoomRange } from "./series_card.js";

const steps = 480; // number of newest steps

/** Returns the steps to request: the zoom or the newest steps. A report contains a single response. */
function rangeOf(ctx) {
  if (report) return {};
  if (state.zoom) return zoomRange();
  const newest = ctx.head ? ctx.head.newest_step : 0;
  return { x0: Math.max(0, newest - steps + 1), x1: newest };
}

function sortedWaits({ step, cells }) {
  const longest = step.map((none, i) => Math.max(...cells.map((row) => row[i] ?? -1)));
  return longest.filter((value) => value >= 0).sort((a, b) => a - b);
}

function quantile(sorted, q) {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];
}

function drawing(heatmap, width) {
  const sorted = sortedWaits(heatmap);
  const top = quantile(sorted, 0.99) || 0;
  if (sorted.length >= 2 && top > 0) return histogram(sorted, top, width);
  return empty(heatmap.rows > 1 ? "no rank waited" : "one rank has no other to wait for");
}

function sentence({ heatmap }) {
  const sorted = sortedWaits(heatmap);
  if (!sorted.length) return "";
  if (!(quantile(sorted, 1) > 0))
    return `No rank waited in the ${count(sorted.length)} newest samples.`;
  const half = `Half of the ${count(sorted.length)} newest samples below ${ms(quantile(sorted, 0.5))}`;
  const most = `95 % below ${ms(quantile(sorted, 0.95))}, at most ${ms(quantile(sorted, 1))}`;
  return `${half}, ${most}.`;
}

function tableOf({ heatmap }) {
  const { step, cells } = heatmap;
  return {
    columns: [
      number("from step", (i) => nth(step[i])),
      number("skew", (i) => ms(Math.max(...cells.map((row) => row[i] ?? 0)))),
    ],
    rows: [...step.keys()].reverse(),
  };
}

export function skewCard(ctx) {
  return new Card({
    title: "Arrival skew",
    sub: "wait of the rank that arrived first, by step",
    load: () => get(`runs/${ctx.run}/heatmap`, { value: "wait", cols: steps, ...rangeOf(ctx) }),
    draw: (body, data) => body.replaceChildren(drawing(data.heatmap, body.clientWidth || 500)),
    sentence,
    table: tableOf,
  });
}
