// tensor_heat_card.js - a statistic of each ternary tensor over time, as a heat map.
import { select } from "../base/controls.js";
import { h } from "../base/dom.js";
import { digits, nth, percent } from "../base/format.js";
import { number, text } from "../base/table.js";
import { isShare, tensorHistories } from "../base/vocabulary.js";
import { noTernaryStatistics, tensorName } from "./codes_card.js";
import { heatMapCard } from "./heat_map_card.js";

/** Returns the samples (indices) at which some tensor has this statistic. */
function samplesOf({ sampled, rows }, history) {
  const has = (i) => rows.some((row) => row[history] && row[history][i] !== null);
  return [...sampled.keys()].filter(has);
}

function format(history, value) {
  return isShare(history) ? percent(value, 2) : digits(value, 3);
}

function sentenceOf(layers, history) {
  const { sampled, rows } = layers;
  const samples = samplesOf(layers, history);
  if (!samples.length) return "";
  const first = samples[0];
  const last = samples[samples.length - 1];
  const mean = (i) =>
    format(history, rows.reduce((sum, row) => sum + (row[history][i] || 0), 0) / rows.length);
  if (samples.length === 1)
    return `One sample, at step ${nth(sampled[first])}: ${mean(first)} on average.`;
  const steps = `from step ${nth(sampled[first])} to ${nth(sampled[last])}`;
  const means = `on average ${mean(first)} in the first and ${mean(last)} in the newest`;
  return `${samples.length} samples ${steps}; ${means}.`;
}

function tableOf(layers, history) {
  const column = (i) =>
    number(`step ${nth(layers.sampled[i])}`, (row) => format(history, row[history][i]));
  return {
    columns: [text("tensor", tensorName), ...samplesOf(layers, history).map(column)],
    rows: layers.rows,
  };
}

/** load returns a promise of the response of the route `layers`, for ternary tensors only. */
export function tensorHeatCard(load) {
  let history = tensorHistories[0][0];
  let listed = ""; // statistics in the list
  const list = h("span");
  // The available statistics are known once the tensors are loaded.
  const offer = (layers) => {
    const known = tensorHistories.filter(([key]) => samplesOf(layers, key).length);
    if (!known.some(([key]) => key === history)) history = known[0][0];
    if (listed === String(known)) return;
    listed = String(known);
    const choose = (value) => {
      history = value;
      card.redraw();
    };
    list.replaceChildren(select("value", known, history, choose));
  };
  const cells = ({ layers }) => {
    if (!layers.rows.length) return null;
    offer(layers);
    const samples = samplesOf(layers, history);
    return {
      rows: layers.rows.map(tensorName),
      cols: samples.map((i) => nth(layers.sampled[i])),
      steps: samples.map((i) => layers.sampled[i]),
      cell: layers.rows.map((row) => samples.map((i) => row[history][i])),
      show: (value) => format(history, value),
      axis: "step",
    };
  };
  const card = heatMapCard({
    title: "Tensor by time",
    label: "heat map of tensors over time",
    wide: true,
    tools: [list],
    load,
    cells,
    nothing: noTernaryStatistics,
    sentence: ({ layers }) => sentenceOf(layers, history),
    table: ({ layers }) => tableOf(layers, history),
  });
  return card;
}
