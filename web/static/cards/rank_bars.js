// rank_bars.js - one bar for each rank.
import { h } from "../base/dom.js";
import { bar } from "../figures/small_figures.js";

const few = 16; // up to this number of ranks are shown in their order; more ranks scroll, the busiest first

function busy(rank) {
  return rank.step_ms - rank.phases.wait_ms;
}

function isRank(row) {
  return typeof row.rank === "number";
}

/** "rank 3", or the name of a row that is not a rank */
function name(row) {
  return isRank(row) ? `rank ${row.rank}` : row.rank;
}

/** Creates a box of bars. parts(rank): [{share, color, label}]; end(rank): text at the right. */
export function rankBars(ranks, parts, end) {
  const rows = (list) =>
    list.flatMap((rank) => [
      h("span", {}, name(rank)),
      bar(parts(rank), `${name(rank)}: ${end(rank)}`),
      h("span", {}, end(rank)),
    ]);
  if (ranks.length <= few) return h("div", {}, h("div", { class: "bars" }, rows(ranks)));
  const label = "one bar per rank, the busiest first";
  const sorted = [...ranks].sort((a, b) => busy(b) - busy(a));
  return h(
    "div",
    {},
    h("p", { class: "note" }, `${ranks.filter(isRank).length} ranks, the busiest first`),
    h(
      "div",
      { class: "bars long", tabindex: "0", role: "region", "aria-label": label },
      rows(sorted),
    ),
  );
}
