// transfer_card.js - each rank's time in transfers: hidden behind computation, exposed, and spent waiting for
// ranks that arrived later.
import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { bytes, dash, digits, ms, percent } from "../base/format.js";
import { number } from "../base/table.js";
import { transferParts } from "../base/vocabulary.js";
import { legend } from "../figures/small_figures.js";
import { Card } from "./card.js";
import { rankBars } from "./rank_bars.js";

function timesOf(rank) {
  const { comm_exposed_ms: exposed, wait_ms: wait } = rank.phases;
  return { hidden: rank.comm_hidden_ms || 0, exposed, wait };
}

function totalOf(rank) {
  const { hidden, exposed, wait } = timesOf(rank);
  return hidden + exposed + wait;
}

function transferBars(ranks) {
  const longest = Math.max(...ranks.map(totalOf), 1e-9);
  const parts = (rank) => {
    const times = timesOf(rank);
    return transferParts.map(({ key, color }) => ({
      share: times[key] / longest,
      color,
      label: `${key} ${ms(times[key])}`,
    }));
  };
  return rankBars(ranks, parts, (rank) => ms(totalOf(rank)));
}

const columns = [
  number("rank", (rank) => String(rank.rank)),
  number("bytes of values", (rank) => bytes(rank.bytes_logical)),
  number("bytes on the wire", (rank) => bytes(rank.bytes_wire)),
  number("ratio", (rank) =>
    rank.bytes_wire ? digits(rank.bytes_logical / rank.bytes_wire, 3) : dash,
  ),
  number("in flight", (rank) => ms(rank.comm_busy_ms)),
  number("exposed", (rank) => ms(rank.phases.comm_exposed_ms)),
  number("wait", (rank) => ms(rank.phases.wait_ms)),
];

function sentence({ head }) {
  const cost = `Communication costs ${percent(head.comm_overhead)} of the step`;
  const hidden = `${percent(head.overlap)} of the transfer is hidden`;
  const wire = `${bytes(head.bytes_wire_per_step)} on the wire a step`;
  return `${cost}; ${hidden}. ${wire} for ${bytes(head.bytes_logical_per_step)} of values.`;
}

export function transferCard(ctx) {
  return new Card({
    title: "Transfer by rank",
    sub: "transfers hidden behind compute, exposed transfers, and waiting for other ranks",
    wide: true,
    load: () => get(`runs/${ctx.run}/comm`),
    draw: (body, data) =>
      body.replaceChildren(legend(transferParts), h("p"), transferBars(data.breakdown.ranks)),
    sentence,
    table: (data) => ({ columns, rows: data.breakdown.ranks }),
  });
}
