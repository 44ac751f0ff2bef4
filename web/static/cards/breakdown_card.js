// breakdown_card.js - the phases of a step on each rank, as bars.
import { get } from "../base/api.js";
import { button, select } from "../base/controls.js";
import { empty, h } from "../base/dom.js";
import { ms, nth, percent, stepRange } from "../base/format.js";
import { number } from "../base/table.js";
import { phases } from "../base/vocabulary.js";
import { legend } from "../figures/small_figures.js";
import { Card } from "./card.js";
import { rankBars } from "./rank_bars.js";

const modes = [
  ["ms", "milliseconds"],
  ["share", "share of the step"],
  ["excess", "excess over the median of the ranks"],
];

function phaseMs(times, phase) {
  return Math.max(0, times[phase.key] || 0);
}

function totalMs(times) {
  return phases.reduce((sum, phase) => sum + phaseMs(times, phase), 0);
}

/** Excess time of a rank in each phase over the median of all ranks. */
function excess(times, median) {
  const over = (phase) => Math.max(0, (times[phase.key] || 0) - (median[phase.key] || 0));
  return Object.fromEntries(phases.map((phase) => [phase.key, over(phase)]));
}

/** Returns the planner's prediction of a step as the last row, below the ranks; empty without a prediction. */
function predictedRow({ predicted }) {
  if (!predicted) return [];
  return [{ rank: "plan", step_ms: predicted.step_ms, phases: predicted }];
}

function phaseBars(breakdown, mode) {
  const { median } = breakdown;
  const plan = mode === "excess" ? [] : predictedRow(breakdown);
  const ranks = [...breakdown.ranks, ...plan];
  const shown = (rank) => (mode === "excess" ? excess(rank.phases, median) : rank.phases);
  const longest = Math.max(...ranks.map((rank) => totalMs(shown(rank))), 1e-9);
  const parts = (rank) => {
    const times = shown(rank);
    const whole = mode === "share" ? totalMs(times) || 1 : longest;
    return phases.map((phase) => ({
      share: phaseMs(times, phase) / whole,
      color: phase.color,
      hatch: phase.hatch,
      label: `${phase.label}: ${ms(phaseMs(times, phase))}`,
    }));
  };
  const end = (rank) => {
    if (mode === "excess") return `+ ${ms(totalMs(shown(rank)))}`;
    if (mode === "ms") return ms(rank.step_ms);
    return `wait ${percent(rank.phases.wait_ms / (totalMs(rank.phases) || 1), 0)}`;
  };
  return rankBars(ranks, parts, end);
}

/**
 * "A step takes 150 ms, mean of the ranks: forward 50 ms, backward 40 ms, data 10 ms. Steps 171 to 300."
 */
function breakdownSentence({ ranks, mean, mean_ms, predicted, step0, step1 }) {
  if (!ranks.length) return "";
  const times = phases.map((phase) => [phase.label, mean[phase.key] || 0]);
  const largest = times.sort((a, b) => b[1] - a[1]).slice(0, 3);
  const texts = largest.map(([label, time]) => `${label} ${ms(time)}`).join(", ");
  const plan = predicted ? `; ${ms(predicted.step_ms)} predicted` : "";
  const tried = predicted?.tried_ms ? `, ${ms(predicted.tried_ms)} tried before the run` : "";
  const steps = step0 === step1 ? `Step ${nth(step0)}` : `Steps ${stepRange(step0, step1)}`;
  const who = ranks.length > 1 ? ", mean of the ranks" : "";
  return `A step takes ${ms(mean_ms)}${who}${plan}${tried}: ${texts}. ${steps}.`;
}

const breakdownColumns = () => [
  number("rank", (rank) => String(rank.rank)), // "plan": the prediction
  number("step", (rank) => ms(rank.step_ms)),
  number("p50", (rank) => ms(rank.step_p50_ms)),
  number("p95", (rank) => ms(rank.step_p95_ms)),
  number("p99", (rank) => ms(rank.step_p99_ms)),
  ...phases.map((phase) => number(phase.label, (rank) => ms(rank.phases[phase.key]))),
];

/** onranks receives the response for the newest steps, which contains the worst rank. The card's `see` shows
 * one step. */
export function breakdownCard(ctx, onranks) {
  let mode = "ms";
  let step = null; // null: the newest steps
  const newest = button("newest steps", () => card.see(null), { class: "chip", hidden: true });
  const choose = (value) => {
    mode = value;
    card.redraw();
  };
  const card = new Card({
    title: "Where the step goes",
    sub: "mean of the newest steps, by rank",
    wide: true,
    tools: [newest, select("show", modes, mode, choose)],
    load: async () => {
      const args = step === null ? {} : { at: step, window: 1 };
      const data = await get(`runs/${ctx.run}/breakdown`, args);
      if (step === null) onranks(data);
      return data;
    },
    draw(body, { breakdown }) {
      if (breakdown.ranks.length)
        body.replaceChildren(legend(phases), h("p"), phaseBars(breakdown, mode));
      else body.replaceChildren(empty("no step of a rank recorded yet"));
    },
    sentence: ({ breakdown }) => breakdownSentence(breakdown),
    table: ({ breakdown }) => ({
      columns: breakdownColumns(),
      rows: [...breakdown.ranks, ...predictedRow(breakdown)],
    }),
  });
  card.see = (wanted) => {
    step = wanted;
    newest.hidden = step === null;
    const what = step === null ? "mean of the newest steps" : `step ${nth(step)}`;
    card.setSub(`${what}, by rank`);
    card.load();
  };
  return card;
}
