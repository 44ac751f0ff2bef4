// checkpoints_card.js - the checkpoints written by a run.
import { empty, h } from "../base/dom.js";
import { bytes, count, dash, date, seconds } from "../base/format.js";
import { number, tallTable, text } from "../base/table.js";
import { Card } from "./card.js";

/** Formats the time of a checkpoint; old records contain seconds since 1970, newer ones since the start of the run. */
function writtenAt(checkpoint, started) {
  const since = checkpoint.time_s > 1e9 ? checkpoint.time_s - started : checkpoint.time_s;
  return date(started + since, true);
}

function columnsOf({ head, info }) {
  return [
    number("after step", (checkpoint) => count(checkpoint.step)),
    number("size", (checkpoint) => bytes(checkpoint.bytes)),
    number("training paused", (checkpoint) => seconds(checkpoint.took_ms / 1000)),
    text("at (UTC)", (checkpoint) => writtenAt(checkpoint, head.started_s)),
    text("file", (checkpoint) =>
      info.kept.includes(checkpoint.step)
        ? h("span", { class: "note" }, checkpoint.path || dash)
        : h("span", { class: "note" }, "deleted"),
    ),
  ];
}

/** load returns a promise of the data of page_events.js. */
export function checkpointsCard(load) {
  return new Card({
    title: "Checkpoints",
    sub: "the newest hundred",
    wide: true,
    load,
    draw(body, { head, info }) {
      body.replaceChildren(
        info.checkpoints.length
          ? tallTable(columnsOf({ head, info }), info.checkpoints, "checkpoints")
          : empty("none written yet"),
      );
    },
  });
}
