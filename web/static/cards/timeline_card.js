// timeline_card.js - history of a run, as lanes of events and attempts.
import { empty } from "../base/dom.js";
import { plural, seconds } from "../base/format.js";
import { number, text } from "../base/table.js";
import { attemptTitle, timeline } from "../figures/timeline.js";
import { Card } from "./card.js";

function sentence({ events, head, info }) {
  const counts = [
    plural(events.total, "event"),
    plural(head.warnings, "warning"),
    plural(head.errors, "error"),
  ];
  const redone = info.redone.length ? " Orange: steps that a restart repeated." : "";
  return `${counts.join(", ")}.${redone}`;
}

const columns = [
  number("time", (event) => seconds(event.time_s)),
  text("kind", (event) => event.kind),
  text("level", (event) => event.level),
  text("what", (event) => event.title),
];

/** Merges attempts and events into one list, sorted by time. */
function rowsOf({ events, head, info }) {
  const attempts = info.attempts.map((attempt) => ({
    time_s: attempt.started_s - head.started_s,
    kind: "attempts",
    level: "info",
    title: attemptTitle(attempt),
  }));
  return [...attempts, ...events.rows].sort((a, b) => a.time_s - b.time_s);
}

/** load returns a promise of the data of page_events.js. */
export function timelineCard(load) {
  return new Card({
    title: "Timeline",
    wide: true,
    load,
    draw: (body, data) =>
      body.replaceChildren(
        data.events.rows.length
          ? timeline(data, data.info, body.clientWidth || 900)
          : empty("nothing happened yet"),
      ),
    sentence,
    table: (data) => ({ columns, rows: rowsOf(data) }),
  });
}
