// layer_curves_card.js - a statistic of one kind of tensor over time, one curve per layer.
import { select } from "../base/controls.js";
import { h } from "../base/dom.js";
import { digits, nth, unit } from "../base/format.js";
import { number } from "../base/table.js";
import { isShare, tensorHistories } from "../base/vocabulary.js";
import { Chart } from "../figures/chart.js";
import { Card } from "./card.js";

const colorCount = 12;

/** load returns a promise of the response of the route `layers`, for ternary tensors only. */
export function layerCurvesCard(load) {
  let history = "flip_history";
  let tensor = "";
  let listed = "";
  let chart = null;
  const lists = h("span", { class: "bar-tools" });
  const offer = ({ rows }) => {
    const tensors = [...new Set(rows.map((row) => row.tensor))];
    if (!tensors.includes(tensor)) tensor = tensors[0] || "";
    if (listed === String(tensors)) return;
    listed = String(tensors);
    const choose = (change) => {
      change();
      card.redraw();
    };
    lists.replaceChildren(
      select("value", tensorHistories, history, (key) => choose(() => (history = key))),
      select(
        "tensor",
        tensors.map((name) => [name, name]),
        tensor,
        (name) => choose(() => (tensor = name)),
      ),
    );
  };
  const linesOf = ({ rows, sampled }) =>
    rows
      .filter((row) => row.tensor === tensor)
      .map((row, i) => {
        const known = [...sampled.keys()].filter((k) => row[history][k] !== null);
        const step = known.map((k) => sampled[k]);
        return {
          label: `layer ${row.layer}`,
          color: `--s${i % colorCount}`,
          unit: isShare(history) ? "fraction" : "",
          x: step.map((one) => one + 1),
          y: known.map((k) => row[history][k]),
          n: step.map(() => 1),
          step,
          smooth: false,
          sparse: true,
        };
      });
  const card = new Card({
    title: "Curves of the layers",
    wide: true,
    tools: [lists],
    load,
    draw(body, { layers }) {
      offer(layers);
      if (!chart) chart = new Chart(body);
      const lines = linesOf(layers);
      const none = "no ternary statistics recorded yet";
      chart.set({ lines, unit: lines[0]?.unit, axis: "step", events: [], empty: none });
    },
    sentence({ layers }) {
      const lines = linesOf(layers).filter(({ y }) => y.length);
      if (!lines.length) return "";
      const last = ({ y }) => y[y.length - 1];
      const [low, high] = [...lines]
        .sort((a, b) => last(a) - last(b))
        .filter((none, i, all) => !i || i === all.length - 1);
      const told = (line) => `${unit(line.unit, last(line))} in ${line.label}`;
      const name = tensorHistories.find(([key]) => key === history)[1];
      return `${tensor}, ${name}: ${high ? `from ${told(low)} to ${told(high)}` : told(low)} at the newest sample.`;
    },
    table({ layers }) {
      const lines = linesOf(layers);
      const value = (line, step) => digits(line.y[line.step.indexOf(step)] ?? null, 4);
      return {
        columns: [
          number("step", (step) => nth(step)),
          ...lines.map((line) => number(line.label, (step) => value(line, step))),
        ],
        rows: lines[0]?.step || [],
      };
    },
    keys: (event) => chart && chart.key(event),
    close: () => chart && chart.close(),
  });
  return card;
}
