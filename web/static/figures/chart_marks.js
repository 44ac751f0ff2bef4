// chart_marks.js - draws the surroundings of a chart's lines: repeated steps, the name of the axis, rules,
// flags of events. `area` is {canvas, left, top, width, height, steps, xAt(index), xOf(step), yOf(value),
// points: along the lines}, in pixels of the canvas.
import { color } from "../base/state.js";
import { axes, isRoutine } from "../base/vocabulary.js";
import { clearest } from "./chart_labels.js";

const font = () => `${12 * devicePixelRatio}px system-ui, sans-serif`;

function dashed(canvas, dashes, draw) {
  canvas.setLineDash(dashes.map((length) => length * devicePixelRatio));
  canvas.beginPath();
  draw();
  canvas.stroke();
  canvas.setLineDash([]);
}

/**
 * Draws a text with an outline in the background colour where it covers the least of the lines.
 * placesOf(width, height): upper left corners, the best first; those outside the plot are skipped.
 */
function writeLabel({ canvas, left, top, width, height, points }, text, placesOf) {
  canvas.font = font();
  const [w, h] = [canvas.measureText(text).width, 14 * devicePixelRatio];
  const inside = ({ x, y }) =>
    x >= left && x + w <= left + width && y >= top && y + h <= top + height;
  const places = placesOf(w, h);
  const free = places.filter(inside);
  const { x, y } = clearest(free.length ? free : places, w, h, points);
  canvas.textAlign = "left";
  canvas.textBaseline = "top";
  canvas.setLineDash([]);
  canvas.strokeStyle = color("--card");
  canvas.lineWidth = 4 * devicePixelRatio;
  canvas.lineJoin = "round";
  canvas.strokeText(text, x, y);
  canvas.fillText(text, x, y);
  canvas.textBaseline = "alphabetic";
}

/** Shades repeated steps, [{from, to}]. */
export function shadeRedone(area, redone) {
  const { canvas, left, top, width, height, steps } = area;
  const inside = (x) => Math.min(left + width, Math.max(left, x));
  for (const stretch of redone) {
    if (stretch.to < steps[0] || stretch.from > steps[steps.length - 1]) continue;
    const from = inside(area.xOf(stretch.from));
    const to = inside(area.xOf(stretch.to));
    canvas.fillStyle = `${color("--warn")}1c`;
    canvas.fillRect(from, top, Math.max(1, to - from), height);
  }
}

/**
 * Draws over the lines: the name of the axis, rules [{y, label}], and a flag for each of the events, which
 * are sorted by step.
 */
export function drawMarks(area, { axis, rules, events }) {
  area.canvas.save();
  drawAxisName(area, axes[axis] ? axis : "");
  for (const rule of rules || []) drawRule(area, rule);
  drawEvents(area, events || []);
  area.canvas.restore();
}

/** Draws marks at the edges for values of a line above or below the visible range. */
export function markOutside(area, lines, low, high) {
  for (const { color: tone, values, least, most } of lines) {
    const beyond = { top: [], bottom: [] };
    values.forEach((value, i) => {
      if (value === null || value === undefined) return;
      if ((most?.[i] ?? value) > high) beyond.top.push(area.xAt(i));
      if ((least?.[i] ?? value) < low) beyond.bottom.push(area.xAt(i));
    });
    area.canvas.fillStyle = color(tone);
    drawTriangles(area, beyond.top, area.top, 1);
    drawTriangles(area, beyond.bottom, area.top + area.height, -1);
  }
}

/** Draws triangles that point off the chart, at least their width apart. */
function drawTriangles({ canvas, left, width }, places, edge, down) {
  const size = 4 * devicePixelRatio;
  let last = -Infinity;
  for (const x of places) {
    if (x < left || x > left + width || x - last < 2 * size) continue;
    last = x;
    canvas.beginPath();
    canvas.moveTo(x, edge);
    canvas.lineTo(x - size, edge + down * size * 1.5);
    canvas.lineTo(x + size, edge + down * size * 1.5);
    canvas.fill();
  }
}

/** Draws a ring around the best value of a line, with its text beside it. */
export function markBest(area, { index, value, text, color: tone }) {
  const { canvas, left, top, width, height } = area;
  const [x, y] = [area.xAt(index), area.yOf(value)];
  if (!(x >= left && x <= left + width && y >= top && y <= top + height)) return;
  const ratio = devicePixelRatio;
  canvas.strokeStyle = color(tone);
  canvas.fillStyle = color(tone);
  canvas.lineWidth = 2 * ratio;
  canvas.setLineDash([]);
  canvas.beginPath();
  canvas.arc(x, y, 5 * ratio, 0, 2 * Math.PI);
  canvas.stroke();
  const rows = [-20, 6, -38, 24, -56, 42].map((dy) => y + dy * ratio);
  writeLabel(area, text, (w) =>
    rows.flatMap((row) => [
      { x: x + 9 * ratio, y: row },
      { x: x - 9 * ratio - w, y: row },
    ]),
  );
}

/** Draws the unit of the x axis in the empty corner beside it. */
function drawAxisName({ canvas, left, top, height }, name) {
  canvas.fillStyle = color("--soft");
  canvas.font = font();
  canvas.textAlign = "right";
  canvas.textBaseline = "top";
  canvas.fillText(name, left - 20 * devicePixelRatio, top + height + 10 * devicePixelRatio);
  canvas.textBaseline = "alphabetic";
}

function drawRule(area, rule) {
  const { canvas, left, top, width, height } = area;
  const y = Math.round(area.yOf(rule.y));
  if (!(y >= top && y <= top + height)) return;
  canvas.strokeStyle = color("--soft");
  canvas.fillStyle = color("--soft");
  dashed(canvas, [2, 3], () => {
    canvas.moveTo(left, y);
    canvas.lineTo(left + width, y);
  });
  writeLabel(area, rule.label, (w, h) =>
    [1, 0, 0.5].flatMap((share) => {
      const x = left + 4 + share * (width - w - 8);
      return [
        { x, y: y - h - 3 },
        { x, y: y + 4 },
      ];
    }),
  );
}

function drawEvents(area, events) {
  const { left, width, steps } = area;
  let at = 0;
  for (const event of events) {
    while (at < steps.length && (steps[at] === null || steps[at] < event.step)) at++;
    if (at >= steps.length) return;
    const x = Math.round(area.xAt(at));
    if (x >= left && x <= left + width) drawEvent(area, event, x);
  }
}

/** Draws a flag at the top, and a line if the event changed the run. */
function drawEvent({ canvas, top, height }, event, x) {
  const colorOf = { warning: "--warn", error: "--bad" };
  const routine = isRoutine(event);
  const size = (routine ? 2.5 : 4) * devicePixelRatio;
  canvas.strokeStyle = color(colorOf[event.level] || "--soft");
  canvas.fillStyle = canvas.strokeStyle;
  canvas.globalAlpha = routine ? 0.45 : event.level === "info" ? 0.7 : 0.9;
  if (!routine)
    dashed(canvas, [3, 3], () => {
      canvas.moveTo(x, top);
      canvas.lineTo(x, top + height);
    });
  canvas.beginPath();
  canvas.moveTo(x - size, top);
  canvas.lineTo(x + size, top);
  canvas.lineTo(x, top + size * 1.4);
  canvas.fill();
}
