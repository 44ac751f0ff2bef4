// phases_card.js - the phases of one rank over time, stacked.
import { select } from "../base/controls.js";
import { h } from "../base/dom.js";
import { report } from "../base/kept_answers.js";
import { charts } from "../base/vocabulary.js";
import { seriesCard } from "./series_card.js";

const modes = [
  ["ms", "milliseconds"],
  ["share", "share of the step"],
];

/** Returns the worst rank and the median rank by busy time, as of now. */
function extremes(stragglers) {
  const sorted = [...stragglers].sort((a, b) => a.busy_p50_ms - b.busy_p50_ms);
  return { worst: stragglers[0].rank, median: sorted[(sorted.length - 1) >> 1].rank };
}

/** The phases of one rank over time. onstep receives the step of a click; `meet` receives the ranks. */
export function phasesCard(ctx, onstep) {
  let choice = "worst"; // or "median", or a rank
  let extreme = {};
  let ranks = [];
  let asShares = false;
  const rank = () => (ranks.length ? (extreme[choice] ?? Number(choice)) : 0);
  const hint = report ? "" : "; click a step to see it above";
  const rankList = h("span");
  const show = (value) => {
    asShares = value === "share";
    card.redraw();
  };
  const card = seriesCard(ctx, {
    ...charts.phases,
    sub: `stacked, one rank${hint}`,
    wide: true,
    tall: true,
    stacked: true,
    share: () => asShares,
    rank,
    onpick: report ? null : onstep,
    tools: [rankList, select("show", modes, "ms", show)],
  });
  const turn = () => {
    card.setSub(`stacked, rank ${rank()}${hint}`);
    card.load();
  };
  const listRanks = () => {
    const options = [
      ["worst", "the worst"],
      ["median", "the median"],
      ...ranks.map((r) => [String(r), `rank ${r}`]),
    ];
    const choose = (value) => {
      choice = value;
      turn();
    };
    rankList.replaceChildren(select("rank", options, choice, choose));
  };
  card.meet = ({ stragglers }) => {
    if (!stragglers.length) return;
    const before = [rank(), ranks.length].join();
    extreme = extremes(stragglers);
    if (ranks.length !== stragglers.length) {
      ranks = stragglers.map((s) => s.rank).sort((a, b) => a - b);
      listRanks();
    }
    if (before !== [rank(), ranks.length].join()) turn();
  };
  return card;
}
