// help.js - a dialog that explains the keys and the strokes of the charts.
import { button } from "../base/controls.js";
import { h } from "../base/dom.js";

const keys = [
  ["1 to 8", "the pages of a run"],
  ["T", "the numbers of a figure as a table"],
  [
    "← →",
    "move a figure's cursor; with Shift by ten points; Home and End to the first and the newest",
  ],
  ["+", "zoom in around the cursor, as dragging does"],
  ["I, O", "zoom the y axis of a chart in and out, as the wheel over the axis does"],
  ["Page Up, Page Down", "move the y axis, as dragging it does"],
  ["A", "all values of a chart, or the usual ones"],
  ["Z", "show all again, as a double click does"],
  ["Enter", "follow the rank, or open the step, under the cursor"],
  ["?", "this list"],
];

const strokes = [
  ["thick line", "smoothed over a share of the steps shown, as chosen above"],
  ["thin line", "each value, or the mean of the steps that share a pixel"],
  ["pale band", "minimum to maximum of these steps"],
  ["▲ at the edge", "values outside the visible range"],
  ["ring", "the best validation"],
  ["▼", "an event: grey, orange for a warning, red for an error; small marks are checkpoints"],
  ["orange ground", "steps that a restart repeated; dotted lines are their former values"],
];

function list(title, rows) {
  const items = rows.flatMap(([name, meaning]) => [h("dt", {}, name), h("dd", {}, meaning)]);
  return [h("h3", {}, title), h("dl", {}, items)];
}

export function showHelp() {
  if (document.querySelector("dialog")) return;
  const props = { class: "help", "aria-label": "keys and strokes", onclose: () => box.remove() };
  const close = button("Close", () => box.close(), { class: "main" });
  const box = h(
    "dialog",
    props,
    list("Keys", keys),
    list("Strokes", strokes),
    h("p", { class: "note" }, "Steps count from 1. Times of day are UTC."),
    h("p", { class: "end" }, close),
  );
  document.body.append(box);
  box.showModal();
}
