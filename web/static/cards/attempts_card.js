// attempts_card.js - the attempts of a run: its first launch and each restart.
import { dash, date, nth } from "../base/format.js";
import { number, table, text } from "../base/table.js";
import { Card } from "./card.js";

const columns = [
  number("attempt", (attempt) => String(attempt.attempt)),
  number("from step", (attempt) => nth(attempt.from_step)),
  text("started (UTC)", (attempt) => date(attempt.started_s, true)),
  number("ranks", (attempt) => String(attempt.world_size)),
  text("why", (attempt) => attempt.reason || dash),
  text("end", (attempt) => attempt.exit_kind || dash),
];

/** load returns a promise of the data of page_events.js. */
export function attemptsCard(load) {
  return new Card({
    title: "Attempts",
    wide: true,
    load,
    draw: (body, data) => body.replaceChildren(table(columns, data.info.attempts, "attempts")),
  });
}
