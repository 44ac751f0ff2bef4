// pairs_card.js - direct traffic between each pair of ranks, as a square.
import { get } from "../base/api.js";
import { select } from "../base/controls.js";
import { bytes, digits, ms, stepRange, unit } from "../base/format.js";
import { number } from "../base/table.js";
import { pairValues } from "../base/vocabulary.js";
import { nothingExchanged } from "./exchanges_card.js";
import { heatMapCard } from "./heat_map_card.js";

const columns = [
  number("rank", (row) => String(row.rank)),
  number("from rank", (row) => String(row.peer)),
  number("messages", (row) => digits(row.messages, 3)),
  number("bytes", (row) => bytes(row.bytes)),
  number("message latency", (row) => ms(row.flight_ms)),
];

function pairsOf(data) {
  return (data.comm.pairs && data.comm.pairs.rows) || [];
}

function cellsOf({ ranks, rows }, value) {
  const all = [...Array(ranks).keys()];
  const cell = all.map(() => all.map(() => null));
  for (const row of rows) cell[row.rank][row.peer] = row[value];
  const [, , unitName] = pairValues.find(([key]) => key === value);
  return {
    rows: all.map((rank) => `rank ${rank}`),
    cols: all.map(String),
    cell,
    show: (v) => unit(unitName, v),
    axis: "from",
    lo: 0,
    most: 64,
  };
}

function sentenceOf(data, value) {
  const known = pairsOf(data).filter((row) => row[value] !== null);
  const [top] = known.sort((a, b) => b[value] - a[value]);
  if (!top) return "";
  const pair = `from rank ${top.peer} to rank ${top.rank}`;
  const { step0, step1 } = data.comm.pairs;
  const most =
    value === "bytes"
      ? `Most goes ${pair}: ${bytes(top.bytes)} a step`
      : `Messages ${pair} take longest: ${ms(top.flight_ms)}`;
  return `${most}. Steps ${stepRange(step0, step1)}.`;
}

const why =
  "not recorded: these ranks use MPI's own collectives, are more than 32, or have no sample yet";

export function pairsCard(ctx) {
  let value = "bytes";
  const choose = (chosen) => {
    value = chosen;
    card.redraw();
  };
  const card = heatMapCard({
    title: "Traffic by sender and receiver",
    sub: "per step; rows receive, columns send",
    label: "matrix of ranks",
    tools: [select("value", pairValues, value, choose)],
    load: () => get(`runs/${ctx.run}/comm`),
    cells: (data) => (pairsOf(data).length ? cellsOf(data.comm.pairs, value) : null),
    nothing: (data) => nothingExchanged(data.head.ranks, why),
    sentence: (data) => sentenceOf(data, value),
    table: (data) => ({ columns, rows: pairsOf(data) }),
  });
  return card;
}
