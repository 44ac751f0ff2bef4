// rank_heat_card.js - a value of each rank over time, as a heat map.
import { get } from "../base/api.js";
import { select } from "../base/controls.js";
import { dash, digits, nth, stepRange, unit } from "../base/format.js";
import { state } from "../base/state.js";
import { number } from "../base/table.js";
import { rankValues } from "../base/vocabulary.js";
import { heatMapCard } from "./heat_map_card.js";
import { zoomRange } from "./series_card.js";

const orders = [
  ["rank", "by rank"],
  ["blame", "by blame"],
  ["score", "by score"],
  ["host", "by host"],
];
const tableRanks = 32;

function format(name, value) {
  const [, , unitName] = rankValues.find(([key]) => key === name);
  if (unitName !== "times") return unit(unitName, value);
  return value === null ? dash : `${digits(value, 3)}×`;
}

/** Sorts the ranks from 0 to n - 1. stragglers: ranks with host and score, worst first. */
function sortedRanks(n, order, stragglers) {
  const all = [...Array(n).keys()];
  const field = (name, none) => {
    const of = new Map(stragglers.map((s) => [s.rank, s[name]]));
    return (rank) => of.get(rank) ?? none;
  };
  const host = field("host", "");
  const score = field("score", 9);
  if (order === "host") return all.sort((a, b) => host(a).localeCompare(host(b)) || a - b);
  if (order === "score") return all.sort((a, b) => score(a) - score(b) || a - b);
  if (order === "rank" || !stragglers.length) return all;
  return stragglers.map((s) => s.rank).filter((rank) => rank < n);
}

function meansOf(heatmap) {
  return heatmap.cells.map((row) => {
    const known = row.filter((value) => value !== null);
    return known.reduce((a, b) => a + b, 0) / (known.length || 1);
  });
}

function lastStep(ctx, heatmap) {
  if (state.zoom) return state.zoom.x1;
  return ctx.head ? ctx.head.newest_step : heatmap.step[heatmap.step.length - 1];
}

function sentence(ctx, heatmap, show) {
  const means = meansOf(heatmap);
  if (!means.length) return "";
  const top = means.indexOf(Math.max(...means));
  const steps = stepRange(heatmap.step[0], lastStep(ctx, heatmap));
  const highest = `highest on average: rank ${top} with ${show(means[top])}`;
  return `${heatmap.rows} ranks, steps ${steps}; ${highest}.`;
}

function tableOf({ step, cells }, show) {
  const columns = cells
    .slice(0, tableRanks)
    .map((row, rank) => number(`rank ${rank}`, (i) => show(row[i])));
  return {
    columns: [number("from step", (i) => nth(step[i])), ...columns],
    rows: [...step.keys()].reverse(),
  };
}

/** ranking.stragglers: the slow ranks; one.follow(rank): called with a rank that was chosen. */
export function rankHeatCard(ctx, ranking, one) {
  let value = "busy";
  let order = "rank";
  const show = (v) => format(value, v);
  const sorted = (heatmap) => sortedRanks(heatmap.cells.length, order, ranking.stragglers);
  const nameOf = (rank) => {
    const host = ranking.stragglers.find((s) => s.rank === rank)?.host;
    return order === "host" && host ? `${rank} ${host}` : `rank ${rank}`;
  };
  const card = heatMapCard({
    title: "Rank by time",
    sub: "click a row to follow that rank below",
    label: "heat map of ranks over time",
    wide: true,
    tools: [
      select("value", rankValues, value, (chosen) => {
        value = chosen;
        card.load();
      }),
      select("order", orders, order, (chosen) => {
        order = chosen;
        card.redraw();
      }),
    ],
    load(width) {
      const cols = Math.max(20, Math.min(240, Math.round((width - 64) / 6)));
      return get(`runs/${ctx.run}/heatmap`, { value, cols, ...zoomRange() });
    },
    cells: ({ heatmap }) => ({
      rows: sorted(heatmap).map(nameOf),
      cols: heatmap.step.map(nth),
      steps: heatmap.step,
      cell: sorted(heatmap).map((rank) => heatmap.cells[rank]),
      show,
      axis: "step",
      lo: heatmap.low,
      hi: heatmap.high,
    }),
    onpick: (row, { heatmap }) => one.follow(sorted(heatmap)[row]),
    sentence: ({ heatmap }) => sentence(ctx, heatmap, show),
    table: ({ heatmap }) => tableOf(heatmap, show),
  });
  return card;
}
