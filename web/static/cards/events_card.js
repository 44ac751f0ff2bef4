// events_card.js - the list of events of a minimum level, newest first.
import { select } from "../base/controls.js";
import { empty, h } from "../base/dom.js";
import { dash, nth, seconds } from "../base/format.js";
import { number, tallTable, text } from "../base/table.js";
import { Card } from "./card.js";

export const levels = [
  ["all", "all"],
  ["warning", "warnings and errors"],
  ["error", "errors"],
];

/** True if an event or a line has this level or a worse one. */
export function isOfLevel(one, level) {
  return level === "all" || one.level === "error" || one.level === level;
}

/** The column of ranks exists only if an event has a rank. */
function columnsOf(rows) {
  const rank = number("rank", (event) => (event.rank === null ? dash : String(event.rank)));
  return [
    number("time", (event) => seconds(event.time_s)),
    number("step", (event) => nth(event.step)),
    ...(rows.some((event) => event.rank !== null) ? [rank] : []),
    text("kind", (event) => h("span", { class: `level-${event.level}` }, event.kind)),
    { ...text("what", (event) => event.title), wrap: true },
  ];
}

function sentence({ events }) {
  if (events.rows.length >= events.total) return "";
  return `The newest ${events.rows.length} of ${events.total}.`;
}

/** load returns a promise of the data of page_events.js, from which some events may be omitted. */
export function eventsCard(load, title = "Events") {
  let level = "all";
  const isShown = (event) => isOfLevel(event, level);
  const choose = (value) => {
    level = value;
    card.redraw();
  };
  const card = new Card({
    title,
    wide: true,
    tools: [select("level", levels, level, choose)],
    load,
    draw(body, { events }) {
      const rows = events.rows.filter(isShown).reverse();
      body.replaceChildren(
        rows.length
          ? tallTable(columnsOf(rows), rows, "events, newest first")
          : empty("no events of this level"),
      );
    },
    sentence,
  });
  return card;
}
