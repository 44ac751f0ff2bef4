// timeline.js - history of a run: a lane for its attempts, and one for each kind of event.
import { svg } from "../base/dom.js";
import { nth, seconds, stepRange } from "../base/format.js";
import { axisTexts } from "./small_figures.js";

const left = 110; // pixels for the names of the lanes
const right = 12;
const laneHeight = 26;

/**
 * data: the response of the route `events`; info: that of the run, for its attempts and the steps that they
 * repeated.
 */
export function timeline(data, info, width) {
  const events = data.events.rows;
  const end = Math.max(data.head.elapsed_s || 0, ...events.map((event) => event.time_s || 0), 1);
  const x = (time) => left + (time / end) * (width - left - right);
  const kinds = [...new Set(events.map((event) => event.kind))];
  const names = info.attempts.length ? ["attempts", ...kinds] : kinds;
  const lane = (name, i) => {
    const y = i * laneHeight + 14;
    return [
      svg("text", { x: 0, y: y + 4 }, name.slice(0, 15)),
      svg("line", { x1: left, x2: width - right, y1: y, y2: y }),
      name === "attempts" ? attempts(data.head, info, end, x, y) : [],
      events.filter((event) => event.kind === name).map((event) => eventDot(event, x, y)),
    ].flat();
  };
  return svg(
    "svg",
    {
      class: "lanes",
      viewBox: `0 0 ${width} ${names.length * laneHeight + 20}`,
      role: "img",
      "aria-label": "timeline of events by kind",
    },
    names.flatMap(lane),
    axisTexts(width < 600 ? 2 : 4, end, x, names.length * laneHeight + 12, seconds),
  );
}

function eventDot(event, x, y) {
  const title = svg("title", {}, `${seconds(event.time_s)}: ${event.title}`);
  return svg("circle", { class: event.level, cx: x(event.time_s), cy: y, r: 5 }, title);
}

/** Draws each attempt from its start to its end, and over it the steps that it repeated. */
function attempts(head, info, end, x, y) {
  const span = (kind, from, to, title) => {
    const place = { x: x(from), y: y - 7, width: Math.max(2, x(to) - x(from)), height: 14 };
    return svg("rect", { class: kind, ...place, rx: 3 }, svg("title", {}, title));
  };
  return info.attempts.flatMap((attempt) => {
    const from = attempt.started_s - head.started_s;
    const to = (attempt.ended_s ?? head.started_s + end) - head.started_s;
    const redone = info.redone.filter((r) => r.attempt === attempt.attempt && r.from_s !== null);
    return [
      span("span", from, to, attemptTitle(attempt)),
      ...redone.map((r) =>
        span("lost", r.from_s, to, `steps ${stepRange(r.from_step, r.to_step)} were repeated`),
      ),
    ];
  });
}

export function attemptTitle(attempt) {
  return `attempt ${attempt.attempt} from step ${nth(attempt.from_step)}`;
}
