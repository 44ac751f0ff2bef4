// codes_card.js - the codes of each ternary tensor at the newest sample: their shares, changes and scale.
import { empty } from "../base/dom.js";
import { digits, nth, percent } from "../base/format.js";
import { number, table, text } from "../base/table.js";
import { codeChanges, codes } from "../base/vocabulary.js";
import { bar, legend, spark } from "../figures/small_figures.js";
import { Card } from "./card.js";

const gaussianZeros = 0.31; // share of zeros if the latent weights are Gaussian

export function tensorName(row) {
  return row.layer < 0 ? row.tensor : `${row.layer} ${row.tensor}`;
}

export function noTernaryStatistics() {
  return empty("no ternary statistics recorded yet: they are sampled every few steps");
}

function known(values) {
  return values.filter((value) => value !== null);
}

function codesBar(row) {
  const parts = codes.map(({ key, label, color }) => ({
    share: row[key],
    color,
    label: `${label}: ${percent(row[key])}`,
  }));
  return bar(parts, `${tensorName(row)}: ${percent(row.zero_frac)} zero`);
}

function flipsOverTime(row) {
  return spark(known(row.flip_history), `flip rate of ${tensorName(row)}`);
}

function zerosOverTime(row) {
  const label = `share of zeros of ${tensorName(row)}`;
  return spark(known(row.zero_history), label, gaussianZeros);
}

function shareOfCode(key) {
  const { label } = codes.find((code) => code.key === key);
  return number(label, (row) => percent(row[key]));
}

const residualHelp =
  "L2 norm of the gradient codec's error-feedback residual over that of the gradient";
const updateHelp = "L2 norm of the step's update over that of the weights: about 1e-3 is usual";

/** Columns of statistics that some runs lack are shown if a tensor has the statistic. */
function columnsOf(rows) {
  const has = (key) => rows.some((row) => typeof row[key] === "number");
  const changes = codeChanges.filter(([key]) => has(key));
  const wire = number("bits sent", (row) => digits(row.grad_bits, 3), "of each gradient");
  const residual = number("residual", (row) => digits(row.residual_ratio, 3), residualHelp);
  const update = number("update", (row) => digits(row.update_ratio, 3), updateHelp);
  return [
    text("tensor", tensorName),
    text("−1, 0, +1", codesBar),
    ...["zero_frac", "pos_frac", "neg_frac"].map(shareOfCode),
    number(
      "flips",
      (row) => percent(row.flip_frac, 2),
      "codes that differ from the previous sample",
    ),
    text("flips over time", flipsOverTime),
    text(
      "zeros over time",
      zerosOverTime,
      "the line marks 31.0 %, the share for Gaussian latent weights",
    ),
    ...changes.map(([key, title, help]) => number(title, (row) => percent(row[key], 2), help)),
    number("bits", (row) => digits(row.entropy_bits, 3), "entropy of the codes; 1.58 at most"),
    number("scale", (row) => digits(row.scale, 3)),
    number("gradient", (row) => digits(row.grad_norm, 3), "L2 norm"),
    ...(has("update_ratio") ? [update] : []),
    ...(has("grad_bits") ? [wire] : []),
    ...(has("residual_ratio") ? [residual] : []),
  ];
}

function sentence({ layers }) {
  const { rows, step } = layers;
  if (!rows.length) return "";
  const mean = (key) => rows.reduce((sum, row) => sum + (row[key] || 0), 0) / rows.length;
  const zeros = `${percent(mean("zero_frac"))} zeros`;
  const flipped = `${percent(mean("flip_frac"), 2)} flips since the last sample`;
  const bits = `${digits(mean("entropy_bits"), 3)} bits a weight`;
  const tensors = `${rows.length} ternary tensors at step ${nth(step)}`;
  return `${tensors}: ${zeros}, ${flipped}, ${bits}, on average.`;
}

/** load returns a promise of the response of the route `layers`, for ternary tensors only. */
export function codesCard(load) {
  return new Card({
    title: "Codes of each tensor",
    sub: "31.0 % zeros if latents are Gaussian, 39.3 % if Laplace",
    wide: true,
    load,
    draw(body, { layers }) {
      const { rows } = layers;
      if (!rows.length) body.replaceChildren(noTernaryStatistics());
      else
        body.replaceChildren(legend(codes), table(columnsOf(rows), rows, "codes of each tensor"));
    },
    sentence,
  });
}
