// islands_card.js - the islands of a hub: progress and updates of each, and the age of updates when they were
// applied.
import { empty, h } from "../base/dom.js";
import { bytes, count, dash, digits, nats, nth, percent, plural, si } from "../base/format.js";
import { number, table, tallTable, text } from "../base/table.js";
import { bar } from "../figures/small_figures.js";
import { Card } from "./card.js";

const nothing = "no update of an island has been applied yet";
const behindHelp = "steps behind the fastest island";
const leftOutHelp = "updates that were not applied: too late, or rejected as poisoned";
const staleHelp = "updates of other islands between the fetch and the push of its newest update";

function stateTag(row) {
  return h(
    "span",
    { class: `tag ${row.trains ? "ok" : "late"}` },
    row.trains ? "training" : "away",
  );
}

/** The name of an island is that of its run, to which it links if this database contains it. */
function islandName({ island, run }) {
  return run ? h("a", { href: `#/run/${run}/overview` }, island) : island;
}

function columnsOf({ fastest }) {
  const progress = (row) => {
    const part = { share: fastest ? row.steps / fastest : 0, color: "--phase-fwd", label: "steps" };
    return bar(
      [part],
      `${row.island}: ${count(row.steps)} of the ${count(fastest)} steps of the fastest island`,
    );
  };
  return [
    text("island", islandName),
    text("host", (row) => row.host || dash),
    text("state", stateTag),
    number("steps", (row) => count(row.steps)),
    text("of the fastest", progress),
    number("behind", (row) => count(fastest - row.steps), behindHelp),
    number("updates", (row) => count(row.updates), "applied updates of this island"),
    number("left out", (row) => count(row.left_out), leftOutHelp),
    number("tokens", (row) => si(row.tokens)),
    number("bytes", (row) => bytes(row.bytes_wire), "updates received from it"),
    number("staleness", (row) => count(row.staleness), staleHelp),
    number("sequences", (row) => count(row.sequences), "sequences in one of its steps"),
    number("loss", (row) => nats(row.loss)),
  ];
}

function sentence({ islands: all }) {
  if (!all.rows.length) return "";
  const { slowest, fastest } = all;
  const at =
    slowest === fastest ? `step ${count(slowest)}` : `steps ${count(slowest)} to ${count(fastest)}`;
  const happened = ["joined", "left", "lost", "late", "refused"];
  return (
    `${all.training} of ${plural(all.rows.length, "island")} training at ${at}, update ${nth(all.step)}. ` +
    `Effective batch: ${si(all.tokens_per_update)} tokens per update, ` +
    `${count(all.sequences)} sequences per joint step. ` +
    `${bytes(all.bytes_wire)} of updates received. ` +
    `${happened.map((word) => `${all[word]} ${word}`).join(", ")}; ` +
    `${plural(all.left_out, "update")} not applied.`
  );
}

/** load returns a promise of the response of the route `islands`. */
export function islandsCard(load) {
  return new Card({
    title: "Islands",
    sub: "jobs that train one model through this hub",
    wide: true,
    load,
    draw(body, { islands: all }) {
      if (!all.rows.length) body.replaceChildren(empty(nothing));
      else body.replaceChildren(tallTable(columnsOf(all), all.rows, "islands"));
    },
    sentence,
  });
}

function stalenessColumns({ updates, staleness }) {
  const most = Math.max(...staleness.map((row) => row.updates));
  const share = (row) => {
    const part = { share: row.updates / most, color: "--phase-wait", label: count(row.updates) };
    return bar([part], `staleness ${row.staleness}: ${percent(row.updates / updates)} of updates`);
  };
  return [
    number("staleness", (row) => (row.staleness === 64 ? "64 and more" : count(row.staleness))),
    number("updates", (row) => count(row.updates)),
    number("share", (row) => percent(row.updates / updates)),
    text("", share),
  ];
}

export function stalenessCard(load) {
  return new Card({
    title: "Staleness",
    sub: "updates of other islands that were applied between an island's fetch and its push",
    wide: true,
    load,
    draw(body, { islands: all }) {
      if (!all.staleness.length) body.replaceChildren(empty(nothing));
      else
        body.replaceChildren(table(stalenessColumns(all), all.staleness, "staleness of updates"));
    },
    sentence({ islands: all }) {
      if (!all.staleness.length) return "";
      return `${count(all.updates)} updates, ${digits(all.mean_staleness, 3)} versions old on average.`;
    },
  });
}
