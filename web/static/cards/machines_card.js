// machines_card.js - the host of each rank and its use of resources.
import { get } from "../base/api.js";
import { dash, mib, percent } from "../base/format.js";
import { number, table, text } from "../base/table.js";
import { Card } from "./card.js";

const columns = [
  number("rank", (row) => String(row.rank)),
  text("host", (row) => row.host || dash),
  number("pid", (row) => String(row.pid)),
  text("instructions", (row) => row.isa || dash),
  number("threads", (row) => String(row.threads)),
  number("memory", (row) => mib(row.rss_mib)),
  number("peak", (row) => mib(row.rss_peak_mib)),
  number(
    "processor",
    (row) => percent(row.cpu_frac, 0),
    "processor time over step time and threads",
  ),
  text("place (pp, dp, shard, tp)", (row) =>
    [row.pp, row.dp_replicate, row.dp_shard, row.tp].join(", "),
  ),
];

export function machinesCard(ctx) {
  return new Card({
    title: "Ranks and their machines",
    wide: true,
    load: () => get(`runs/${ctx.run}/stragglers`),
    draw: (body, data) =>
      body.replaceChildren(table(columns, data.system, "ranks and their machines")),
  });
}
