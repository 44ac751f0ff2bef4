// distribution_card.js - distributions of a tensor's latent weights or gradients over the samples: one column
// per sample, one row per bin; the colour is the share of the tensor's elements.
import { get } from "../base/api.js";
import { select } from "../base/controls.js";
import { empty, h } from "../base/dom.js";
import { nth, percent } from "../base/format.js";
import { report } from "../base/kept_answers.js";
import { number, text } from "../base/table.js";
import { tensorName } from "./codes_card.js";
import { heatMapCard } from "./heat_map_card.js";

const kinds = [
  ["weights", "latent weights"],
  ["gradients", "gradients"],
];

const sum = (bins) => bins.reduce((all, n) => all + n, 0);

/** Lower edge of a bin: of weights in units of their scale, of gradients as a power of two. */
function edge(data, kind, bin) {
  const { from, width } = data[`${kind}_bins`];
  const at = from + bin * width;
  return kind === "weights" ? String(at).replace("-", "−") : `2^${at}`;
}

/** The first and the last bin include all values beyond their outer edges. */
function nameOf(data, kind, bin) {
  if (bin === 0) return `< ${edge(data, kind, 1)}`;
  const isLast = bin === data[kind][0].length - 1;
  return isLast ? `≥ ${edge(data, kind, bin)}` : edge(data, kind, bin);
}

/** Returns the bins that are not empty in some sample, the highest first. */
function usedBins(data, kind) {
  const samples = data[kind];
  const used = [...(samples[0] || []).keys()].filter((bin) => samples.some((one) => one[bin]));
  const [low, high] = [used[0], used[used.length - 1]];
  return [...Array(used.length ? high - low + 1 : 0).keys()].map((i) => high - i);
}

function share(data, kind, sample, bins) {
  const all = sum(data[kind][sample]);
  return all ? sum(bins.map((bin) => data[kind][sample][bin])) / all : null;
}

/** Returns a sentence about the newest sample: for weights, the shares below the rounding thresholds and beyond 2
 * scales; for gradients, the median and the share near zero. */
function sentenceOf(data, kind) {
  const last = data.sampled.length - 1;
  const of = (sample, bins) => percent(share(data, kind, sample, bins));
  if (last < 0 || !sum(data[kind][last])) return "";
  const name = tensorName(data);
  const at = `at step ${nth(data.sampled[last])}`;
  const zeros = [14, 15, 16, 17]; // from −0.5 to 0.5
  if (kind === "weights") {
    const far = [...Array(32).keys()].filter((bin) => bin < 8 || bin > 23);
    const was = last ? `, ${of(0, zeros)} in the first sample` : "";
    const near = `${of(last, zeros)} of the latent weights lie between the thresholds −0.5 and 0.5`;
    return `${name}: ${near} of a scale ${at}${was}; ${of(last, far)} beyond 2 scales.`;
  }
  const bins = data[kind][last];
  let below = 0;
  const middle = bins.findIndex((n) => (below += n) >= sum(bins) / 2);
  const half = `half of the gradients are below ${edge(data, kind, middle + 1)} ${at}`;
  return `${name}: ${half}; ${of(last, [0])} are zero or below ${edge(data, kind, 1)}.`;
}

export function distributionCard(ctx) {
  let kind = kinds[0][0];
  let wanted = {}; // {layer, tensor}; empty: the first ternary tensor
  let listed = "";
  const lists = h("span", { class: "bar-tools" });
  const offer = (data) => {
    const { layer, tensor } = data;
    const tensors = report ? [{ layer, tensor }] : data.tensors;
    const key = JSON.stringify([tensors, layer, tensor, kind]);
    if (key === listed) return;
    listed = key;
    const options = tensors.map((one, i) => [String(i), tensorName(one)]);
    const now = tensors.findIndex((one) => one.layer === layer && one.tensor === tensor);
    const choose = (i) => {
      wanted = { layer: tensors[i].layer, tensor: tensors[i].tensor };
      card.load();
    };
    const show = (one) => {
      kind = one;
      card.redraw();
    };
    lists.replaceChildren(
      select("tensor", options, String(now), choose),
      select("of", kinds, kind, show),
    );
  };
  const cells = ({ distribution: data }) => {
    if (!data.sampled.length) return null;
    offer(data);
    const bins = usedBins(data, kind);
    if (!bins.length) return null;
    return {
      rows: bins.map((bin) => nameOf(data, kind, bin)),
      cols: data.sampled.map((step) => nth(step)),
      steps: data.sampled,
      cell: bins.map((bin) => data.sampled.map((none, i) => share(data, kind, i, [bin]))),
      show: (value) => percent(value, 2),
      axis: "step",
      lo: 0,
    };
  };
  const nothing = ({ distribution: data }) =>
    empty(
      data.sampled.length
        ? "no latent weights: this tensor is not ternary"
        : "no distributions recorded: train.distributions sets how often",
    );
  const tableOf = (data) => ({
    columns: [
      text("from", (bin) => nameOf(data, kind, bin)),
      ...data.sampled.map((step, i) =>
        number(`step ${nth(step)}`, (bin) => percent(share(data, kind, i, [bin]), 2)),
      ),
    ],
    rows: data.sampled.length ? usedBins(data, kind) : [],
  });
  const card = heatMapCard({
    title: "Distribution of a tensor",
    sub: "weights over their scale, rounded at ±0.5; gradients by powers of two",
    label: "heat map of a tensor's distribution over time",
    wide: true,
    tools: [lists],
    load: () => get(`runs/${ctx.run}/distributions`, wanted),
    cells,
    nothing,
    sentence: ({ distribution }) => sentenceOf(distribution, kind),
    table: ({ distribution }) => tableOf(distribution),
  });
  return card;
}
