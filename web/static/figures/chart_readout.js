// chart_readout.js - the numbers under a chart's cursor, as a line of text above the chart. The readout keeps its
// nodes; only their texts change.
import { h, say } from "../base/dom.js";
import { nth, onAxis, unit } from "../base/format.js";
import { axes, isCheckpoint } from "../base/vocabulary.js";
import { dot } from "./small_figures.js";

const many = 4; // above this number of lines, the readout is in columns
const toldMost = 12; // above this number of lines, the readout shows only the smallest and the largest value

export class ChartReadout {
  constructor() {
    this.el = h("div", { class: "readout" });
    this.lines = null; // the lines for which nodes were created
  }

  clear() {
    this.el.replaceChildren();
    this.lines = null;
  }

  text() {
    return [...this.el.children]
      .filter((node) => !node.hidden)
      .map((node) => node.textContent)
      .filter(Boolean)
      .join(", ");
  }

  /** Shows the values of the lines `shown` ([{label, color, values}]) at an index of x; null: the newest.
   * steps: the step at each index; spec: that of the chart; isNear(i): true if the pointer is on a mark at
   * index i. */
  tell(spec, shown, x, steps, index, isNear) {
    const pointing = index !== null && index !== undefined;
    const at = pointing ? index : x.length - 1;
    const n = meantAt(shown, at);
    this.build(shown);
    say(this.word, n > 1 ? "steps " : "step ");
    say(this.step, n > 1 ? `${nth(steps[at] - n + 1)}–${nth(steps[at])}` : nth(steps[at]));
    say(this.mean, n > 1 ? ", mean" : "");
    this.place.hidden = spec.axis === "step";
    say(this.axisTitle, `${axes[spec.axis]?.title || ""} `);
    say(this.axisValue, onAxis(spec.axis, x[at]));
    if (shown.length > toldMost) this.tellEnds(spec.unit, shown, at);
    else
      shown.forEach((line, k) => {
        const isBeyond = line.beyond && endsBefore(line.values, at);
        const isLost = (line.lost ?? null) !== null && steps[at] >= line.lost;
        const value = isLost ? "not finite" : unit(spec.unit, newest(line.values, at));
        const isSmooth = line.smoothed && !isBeyond && !isLost;
        say(this.values[k], isBeyond ? line.beyond : value);
        say(this.smooth[k], isSmooth ? smoothedText(line, spec.unit, at) : "");
      });
    const event = pointing && eventNear(spec.events || [], steps, at, isNear);
    this.event.className = event ? `level-${event.level}` : "";
    say(this.event, event ? event.title || event.kind : "");
  }

  build(shown) {
    const lines = shown.map((line) => line.label + line.color).join();
    if (this.lines === lines) return;
    this.lines = lines;
    this.word = h("span");
    this.step = h("b");
    this.mean = h("span");
    const told = shown.length > toldMost ? [] : shown;
    this.smooth = told.map(() => h("span"));
    this.axisTitle = h("span");
    this.axisValue = h("b");
    this.place = h("span", {}, this.axisTitle, this.axisValue);
    this.values = told.map(() => h("b"));
    this.ends = h("span");
    this.event = h("span");
    this.el.classList.toggle("many", told.length > many);
    this.el.replaceChildren(
      h("span", {}, this.word, this.step, this.mean),
      this.place,
      ...told.map((line, k) => this.entry(line, k)),
      this.ends,
      this.event,
    );
  }

  /** For many lines: the number of lines that continue at this index, and the lowest and the highest of these. */
  tellEnds(unitName, shown, at) {
    const live = shown
      .filter((line) => !(line.beyond && endsBefore(line.values, at)))
      .map((line) => ({ label: line.label, value: newest(line.values, at) }))
      .filter(({ value }) => Number.isFinite(value))
      .sort((a, b) => a.value - b.value);
    const word = ({ label, value }) => `${label} ${unit(unitName, value)}`;
    const ends = live.length ? `, from ${word(live[0])} to ${word(live[live.length - 1])}` : "";
    say(this.ends, `${live.length} of ${shown.length} lines${ends}`);
  }

  entry(line, k) {
    return h("span", {}, dot(line.color), `${line.label} `, this.values[k], this.smooth[k]);
  }
}

/** Number of steps averaged in the point at an index, from the first line that has one. */
function meantAt(shown, index) {
  const line = shown.find(({ values }) => values[index] !== undefined && values[index] !== null);
  return line?.meant?.[index] ?? 1;
}

/** ", 2.4425 over 40 steps": the value of the smoothed line. */
function smoothedText(line, unitName, index) {
  return `, ${unit(unitName, newest(line.smoothed, index))} over ${line.window} steps`;
}

/** True if a line has no point at an index or after it. */
function endsBefore(values, index) {
  return values.slice(index).every((value) => value === undefined || value === null);
}

/** Returns the value of a line at an index or, if it has none there, its newest value before it. */
function newest(values, index) {
  let at = index;
  while (at > 0 && (values[at] === undefined || values[at] === null)) at--;
  return values[at];
}

/** Returns the events at this point, or the nearest mark under the pointer. */
function eventNear(events, steps, index, isNear) {
  for (let away = 0; away < steps.length; away++) {
    const places = [index - away, index + away].filter((i) => i >= 0 && i < steps.length);
    if (away && !places.some(isNear)) return null;
    for (const i of places) {
      const event = (!away || isNear(i)) && eventAt(events, steps, i);
      if (event) return event;
    }
  }
  return null;
}

/** Returns the events since the previous point. */
function eventAt(events, steps, index) {
  const step = steps[index];
  const before = index ? (steps[index - 1] ?? -1) : -1;
  const since = (event) => event.step <= step && event.step > before;
  return step !== null && events.find((event) => since(event) && !isCheckpoint(event));
}
