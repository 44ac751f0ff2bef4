// chart.js - draws lines over the range of their raw values, stacked areas, linked cursors and marks of
// events, and zooms by steps. Only this module uses uPlot, whose script index.html loads first.
import { button } from "../base/controls.js";
import { announce, h, say } from "../base/dom.js";
import { onAxis, tick } from "../base/format.js";
import { choose, color, onPoint, point, state } from "../base/state.js";
import { pointsAlong } from "./chart_labels.js";
import {
  commonX,
  indexOfStep,
  keepOf,
  linearRange,
  logRange,
  smoothed,
  spread,
  stepsCovered,
  stepsOf,
  usualRange,
  zoomedRange,
} from "./chart_lines.js";
import { drawMarks, markBest, markOutside, shadeRedone } from "./chart_marks.js";
import { ChartReadout } from "./chart_readout.js";
import { envelope } from "./envelope.js";

const font = "12px system-ui, sans-serif";
const noPoints = { show: false };
const invisible = { stroke: "transparent", width: 0, points: noPoints };

// distances of grid lines that are round numbers in their unit: powers of two for bytes
const incrsOf = { bytes: Array.from({ length: 60 }, (none, i) => 2 ** i) };

// strokes that distinguish lines without colours
const dashes = [undefined, [7, 4], [2, 3], [9, 3, 2, 3]];

/** Diagonal strokes, for time that is not accounted for. */
function hatchPattern(tone) {
  const tile = h("canvas", { width: 6, height: 6 });
  const canvas = tile.getContext("2d");
  canvas.strokeStyle = tone;
  canvas.lineWidth = 1.5;
  canvas.beginPath();
  for (const x of [-3, 0, 3]) {
    canvas.moveTo(x, 6);
    canvas.lineTo(x + 6, 0);
  }
  canvas.stroke();
  return canvas.createPattern(tile, "repeat");
}

// Path function for uPlot: a stroke, or an area if there are several points per pixel.
const stroke = uPlot.paths.linear();

function linePath(plot, at, from, to) {
  if (to - from <= 3 * plot.bbox.width) return stroke(plot, at, from, to);
  const { left, width } = plot.bbox;
  const fill = envelope({
    x: plot.data[0],
    y: plot.data[at],
    from,
    to,
    left,
    width: Math.round(width),
    endOf: (column) => plot.posToVal(left + column + 0.5, "x", true),
    toPixel: (value) => plot.valToPos(value, "y", true),
    half: (plot.series[at].width * devicePixelRatio) / 2,
  });
  const none = { stroke: null, clip: null, band: null, gaps: null };
  return { ...none, fill, _fill: plot.series[at]._stroke, flags: 1 };
}

/** Data for uPlot: numbers and a style for each series over a common x, and bands between two of them. */
class Layers {
  constructor(x, slots, logX, logY) {
    this.x = x;
    this.slots = slots;
    this.logX = logX;
    this.logY = logY;
    this.data = [logX ? x.map((value) => (value > 0 ? value : null)) : x];
    this.series = [{}];
    this.bands = [];
    this.shown = []; // lines named by the readout: {label, color, values}
  }

  /** Adds a series; returns its index. A logarithmic axis shows positive values only. */
  push(values, style) {
    const positive = (value) => (value > 0 ? value : value === undefined ? undefined : null);
    this.data.push(this.logY ? values.map(positive) : values);
    this.series.push(style);
    return this.series.length - 1;
  }

  spread(values, i) {
    return spread(values, this.slots[i], this.x.length);
  }

  addStacked(lines) {
    const sum = this.x.map(() => 0);
    lines.forEach((line, i) => {
      const tone = color(line.color);
      const values = this.spread(line.y, i);
      const fill = line.hatch ? () => hatchPattern(tone) : `${tone}d0`;
      values.forEach((value, k) => {
        sum[k] += value || 0;
      });
      const style = { stroke: tone, width: 0, fill: i === 0 ? fill : undefined, points: noPoints };
      const at = this.push(sum.slice(), style);
      if (i > 0) this.bands.push({ series: [at, at - 1], fill });
      this.shown.push({ label: line.label, color: line.color, values });
    });
  }

  addGhost(line, i) {
    const style = { stroke: `${color(line.color)}c0`, width: 1, dash: [2, 2] };
    this.push(this.spread(line.y, i), { ...style, points: noPoints, spanGaps: true });
  }

  /** Adds a line: the range of its points as a band; if it is smoothed, the raw values; and the curve. */
  addLine(line, i, dash) {
    const tone = color(line.color);
    const covered = stepsCovered(line);
    const keep = line.smooth === false ? 0 : keepOf(state.smooth, covered);
    const values = this.spread(line.y, i);
    if (line.lo && line.lo.some((value, k) => value !== line.hi[k])) {
      const high = this.push(this.spread(line.hi, i), invisible);
      const low = this.push(this.spread(line.lo, i), invisible);
      this.bands.push({ series: [high, low], fill: `${tone}24` });
    }
    const raw = { stroke: `${tone}77`, width: 1, points: noPoints, spanGaps: false };
    if (keep > 0) this.push(values, { ...raw, paths: linePath });
    const averaged = () => smoothed({ ...line, mean: line.mean || line.y }, keep);
    const drawn = keep > 0 ? this.spread(averaged(), i) : values;
    const few = line.x.length < 3 || (line.sparse && line.x.length <= 40);
    this.push(drawn, {
      stroke: tone,
      paths: linePath,
      width: line.sparse ? 1.5 : 1.8,
      points: { show: few, size: 5, fill: tone },
      spanGaps: Boolean(line.sparse),
      dash,
    });
    const { label, color: name } = line;
    this.shown.push({
      label,
      color: name,
      values,
      beyond: line.beyond,
      lost: line.lost ?? null,
      least: line.lo && this.spread(line.lo, i),
      most: line.lo && this.spread(line.hi, i),
      meant: line.meant && this.spread(line.meant, i),
      best: line.best && this.spread(line.best, i),
      smoothed: keep > 0 ? drawn : null,
      window: Math.round(state.smooth * covered),
    });
  }
}

function layersOf(lines, spec) {
  const { x, slots } = commonX(lines);
  const layers = new Layers(x, slots, state.logX, !spec.stacked && state.logY);
  if (spec.stacked) layers.addStacked(lines);
  else
    lines.forEach((line, i) => {
      if (line.ghost) layers.addGhost(line, i);
      else layers.addLine(line, i, lines.length > 1 ? dashes[i % dashes.length] : undefined);
    });
  return layers;
}

const markReach = 6; // pixels around an event's mark within which its label is shown
let pressed = null; // the chart in which the pointer was pressed, which alone may start a zoom

/**
 * A chart that fills `host`. `set` draws a specification:
 *   lines     [{label, color, x, y, step, n, meant, lo, hi, low, high, best, sparse, smooth, hatch, beyond,
 *   ghost}]
 *             n: number of steps that a point represents; meant: number of steps of which it is the mean; lo,
 *             hi: their
 *             range; low, high: usual range of the line, which the chart shows first; best: values whose
 *             minimum is
 *             marked; sparse: few points, which are joined; smooth: false draws the raw values; beyond: label
 *             after the
 *             newest point of a run; ghost: former values of repeated steps
 *   unit      of y
 *   axis      of x, a key of `axes` in vocabulary.js
 *   stacked   stacked areas
 *   floor     value that y includes
 *   events    [{step, kind, level, title}], sorted by step
 *   redone    [{from, to}]: steps that a restart repeated
 *   rules     [{y, label}]: horizontal lines
 *   onpick    receives the step of a click
 *   onzoom    receives the range of x instead of a zoom by steps; null: all
 *   empty     text that is shown if there are no points
 */
export class Chart {
  constructor(host, tall) {
    this.readout = new ChartReadout();
    this.box = h("div", { class: tall ? "plot tall" : "plot" });
    this.rangeButton = button("", () => this.flipRange(), { class: "range", hidden: true });
    this.top = h("div", { class: "over-plot" }, this.readout.el, this.rangeButton);
    host.replaceChildren(this.top, this.box);
    this.plot = null;
    this.y = { zoom: 0, pan: 0, all: false }; // the user's change of the y axis
    this.size = new ResizeObserver(() => {
      if (this.plot && this.box.clientWidth) this.plot.setSize(this.boxSize());
    });
    this.size.observe(this.box);
    this.forget = onPoint((step, from) => {
      if (from !== this) this.follow(step);
    });
  }

  close() {
    this.size.disconnect();
    this.forget();
    this.destroy();
  }

  destroy() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }

  boxSize() {
    return { width: this.box.clientWidth, height: this.box.clientHeight };
  }

  set(spec) {
    this.spec = spec;
    const lines = spec.lines.filter((line) => line.x.length);
    if (!lines.length) {
      this.destroy();
      this.box.replaceChildren(h("div", { class: "empty" }, spec.empty || "nothing recorded yet"));
      this.readout.clear();
      this.rangeButton.hidden = true;
      return;
    }
    const layers = layersOf(lines, spec);
    this.x = layers.x;
    this.shown = layers.shown;
    this.steps = stepsOf(lines, layers.slots, layers.x.length);
    const shape = this.shapeOf(lines, layers);
    if (this.plot && shape === this.shape) this.plot.setData(layers.data);
    else this.build(layers);
    this.shape = shape;
    this.tellRange();
    this.tell(this.plot.cursor.idx);
  }

  /** Options passed to uPlot once; afterwards only numbers change. */
  shapeOf(lines, { series, bands, logX, logY }) {
    const styles = lines.map((line) => [line.color, Boolean(line.sparse)]);
    const { unit, axis } = this.spec;
    const theme = [state.theme, color("--bg")];
    return JSON.stringify([series.length, bands.length, logX, logY, unit, axis, theme, styles]);
  }

  build(layers) {
    this.destroy();
    this.box.replaceChildren();
    this.plot = new uPlot(this.options(layers), layers.data, this.box);
    const over = this.plot.over;
    over.addEventListener("pointerdown", () => {
      pressed = this;
    });
    over.addEventListener("pointerenter", () => {
      this.under = true;
    });
    over.addEventListener("pointerleave", () => {
      this.under = false;
      point(null, this);
    });
    over.addEventListener("dblclick", () => this.zoomOut());
    if (this.spec.onpick) over.addEventListener("click", () => this.pick());
    this.listenToAxis(this.plot.root.querySelectorAll(".u-axis")[1]);
  }

  /** The wheel over the y axis zooms, dragging moves the range, a double click resets it. */
  listenToAxis(axis) {
    let from = null;
    axis.classList.add("y-axis");
    axis.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.moveY(event.deltaY < 0 ? 0.25 : -0.25, 0);
    });
    axis.addEventListener("pointerdown", (event) => {
      from = event.clientY;
      axis.setPointerCapture(event.pointerId);
    });
    axis.addEventListener("pointermove", (event) => {
      if (from === null) return;
      this.moveY(0, (event.clientY - from) / this.plot.over.clientHeight);
      from = event.clientY;
    });
    axis.addEventListener("pointerup", () => {
      from = null;
    });
    axis.addEventListener("dblclick", () => this.resetY());
  }

  /** zoom: by powers of two; up: shift as a fraction of the visible range. */
  moveY(by, up) {
    const { y } = this;
    y.pan += up * 2 ** -y.zoom;
    y.zoom = Math.max(-8, Math.min(12, y.zoom + by));
    this.drawRange();
  }

  resetY() {
    this.y = { zoom: 0, pan: 0, all: false };
    this.drawRange();
  }

  flipRange() {
    const moved = this.y.zoom !== 0 || this.y.pan !== 0;
    this.y = { zoom: 0, pan: 0, all: !this.y.all && !moved };
    this.drawRange();
  }

  drawRange() {
    this.plot.setData(this.plot.data);
    this.tellRange();
  }

  /** Shows the next action of the button over the plot; hides the button if there is none. */
  tellRange() {
    const { min, max } = this.plot.scales.y;
    const outside = ({ values, least, most }) =>
      values.some((v, i) => v !== null && ((most?.[i] ?? v) > max || (least?.[i] ?? v) < min));
    const moved = this.y.zoom !== 0 || this.y.pan !== 0 || this.y.all;
    const cut = !this.spec.stacked && !this.y.all && this.shown.some(outside);
    this.rangeButton.hidden = !moved && !cut;
    say(this.rangeButton, moved ? "usual range" : "show all values");
  }

  /** Range of the displayed values; low, high: range of the data. */
  rangeOfY(low, high, isLog) {
    const usual = this.y.all || this.spec.stacked ? null : usualRange(this.spec.lines);
    const fits = usual && (!isLog || usual[0] > 0);
    const [from, until] = fits ? usual : [low, high];
    const range = isLog ? logRange(from, until * 1.05) : linearRange(from, until, this.spec.floor);
    const isMoved = this.y.zoom !== 0 || this.y.pan !== 0;
    return isMoved ? zoomedRange(range, this.y, isLog) : range;
  }

  options({ series, bands, logX, logY }) {
    const logOrAll = (plot, low, high) => logRange(low, high);
    return {
      ...this.boxSize(),
      legend: { show: false },
      padding: [8, (plot) => this.roomAtRight(plot), 0, 0],
      series,
      bands,
      cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      scales: {
        x: { time: false, distr: logX ? 3 : 1, range: logX ? logOrAll : undefined },
        y: { distr: logY ? 3 : 1, range: (plot, low, high) => this.rangeOfY(low, high, logY) },
      },
      axes: this.axes(),
      hooks: {
        drawClear: [(plot) => shadeRedone(this.area(plot), this.spec.redone || [])],
        setCursor: [(plot) => this.pointed(plot)],
        setSelect: [(plot) => this.dragged(plot)],
        draw: [(plot) => this.drawOver(plot)],
      },
    };
  }

  /** Returns the margin at the right of the plot in pixels, for half of the last label of x. */
  roomAtRight({ ctx, scales }) {
    if (!Number.isFinite(scales.x.max)) return 8;
    ctx.save();
    ctx.font = font;
    const { width } = ctx.measureText(onAxis(this.spec.axis, scales.x.max));
    ctx.restore();
    return Math.max(8, Math.ceil(width / 2));
  }

  axes() {
    const unit = this.spec.unit;
    const style = {
      stroke: color("--soft"),
      font,
      grid: { stroke: color("--grid"), width: 1 },
      ticks: { show: false },
    };
    const texts = (show) => (plot, values) =>
      values.map((value) => (value === null ? "" : show(value)));
    const onX = texts((value) => onAxis(this.spec.axis, value));
    const onY = texts((value) => tick(unit, value));
    return [
      { ...style, gap: 10, size: 28, values: onX, space: 76 },
      { ...style, gap: 6, size: 64, values: onY, space: 38, incrs: incrsOf[unit] },
    ];
  }

  drawOver(plot) {
    const area = { ...this.area(plot), points: this.linePoints(plot) };
    const { min, max } = plot.scales.y;
    drawMarks(area, this.spec);
    if (this.spec.stacked) return;
    area.canvas.save();
    markOutside(area, this.shown, min, max);
    for (const line of this.shown.filter((one) => one.best)) markBest(area, this.bestOf(line));
    area.canvas.restore();
  }

  /** Returns positions of the lines, which labels avoid; empty if there is no label. */
  linePoints(plot) {
    const isLabelled = this.spec.rules?.length || this.shown.some((one) => one.best);
    if (!isLabelled) return [];
    const { xAt, yOf } = this.area(plot);
    const line = (values) =>
      values
        .map((value, i) => [xAt(i), typeof value === "number" ? yOf(value) : NaN])
        .filter(([, y]) => Number.isFinite(y));
    const lines = this.shown.flatMap(({ values, smoothed }) => [values, smoothed || []]);
    return pointsAlong(lines.map(line), 6 * devicePixelRatio);
  }

  bestOf({ best, color: tone, label }) {
    const known = best.filter((value) => Number.isFinite(value));
    const value = Math.min(...known);
    const text = `best ${label} ${tick(this.spec.unit, value)}`;
    return { index: best.indexOf(value), value, text, color: tone };
  }

  area(plot) {
    const xAt = (index) => plot.valToPos(this.x[index], "x", true);
    return {
      ...plot.bbox,
      canvas: plot.ctx,
      steps: this.steps,
      xAt,
      xOf: (step) => xAt(indexOfStep(this.steps, step)),
      yOf: (value) => plot.valToPos(value, "y", true),
    };
  }

  tell(index) {
    const at = (i) => this.plot.valToPos(this.x[i], "x");
    const isNear = (i) => Math.abs(at(i) - at(index)) <= markReach;
    this.readout.tell(this.spec, this.shown, this.x, this.steps, index, isNear);
  }

  /** Shows the step under the cursor of this or another figure. */
  pointed(plot) {
    const index = plot.cursor.idx;
    this.tell(index);
    const here = this.under || this.walking;
    if (here && index !== null && index !== undefined) point(this.steps[index], this);
  }

  follow(step) {
    if (!this.plot) return;
    if (step === null) this.plot.setCursor({ left: -10, top: -10 });
    else this.moveCursor(indexOfStep(this.steps, step));
  }

  moveCursor(index) {
    const left = this.plot.valToPos(this.x[index], "x");
    this.plot.setCursor({ left, top: this.box.clientHeight / 3 });
  }

  pick() {
    const index = this.plot.cursor.idx;
    if (index !== null && index !== undefined) this.spec.onpick(this.steps[index]);
  }

  zoomOut() {
    if (this.spec.onzoom) this.spec.onzoom(null);
    else choose({ zoom: null });
  }

  zoomTo(x0, x1) {
    if (x0 !== null && x1 !== null && x1 > x0) choose({ zoom: { x0, x1 } });
  }

  dragged(plot) {
    const { left, width } = plot.select;
    if (pressed !== this || width < 6) return;
    const from = plot.posToVal(left, "x");
    const to = plot.posToVal(left + width, "x");
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (this.spec.onzoom) this.spec.onzoom(from, to);
    else this.zoomTo(this.steps[plot.valToIdx(from)], this.steps[plot.valToIdx(to)]);
  }

  /** Zooms to half of the points, around an index, like dragging. */
  closer(index) {
    const half = this.x.length >> 2;
    const from = Math.max(0, index - half);
    const to = Math.min(this.x.length - 1, index + half);
    if (this.spec.onzoom) this.spec.onzoom(this.x[from], this.x[to]);
    else this.zoomTo(this.steps[from], this.steps[to]);
  }

  /** Moves the cursor by keys and announces the values to screen readers. */
  walk(index) {
    this.walking = true;
    this.moveCursor(Math.max(0, Math.min(this.x.length - 1, index)));
    this.walking = false;
    announce(this.readout.text());
    return true;
  }

  key(event) {
    if (!this.plot) return false;
    const last = this.x.length - 1;
    const now = this.plot.cursor.idx ?? last;
    const jump = event.shiftKey ? 10 : 1;
    switch (event.key) {
      case "z":
      case "Z":
        this.resetY();
        choose({ zoom: null });
        return true;
      case "i":
      case "o":
        this.moveY(event.key === "i" ? 1 : -1, 0);
        return true;
      case "PageUp":
      case "PageDown":
        this.moveY(0, event.key === "PageUp" ? 0.25 : -0.25);
        return true;
      case "a":
        this.flipRange();
        return true;
      case "+":
      case "=":
        this.closer(now);
        return true;
      case "Enter":
        if (this.spec.onpick) this.spec.onpick(this.steps[now]);
        return Boolean(this.spec.onpick);
      case "ArrowLeft":
        return this.walk(now - jump);
      case "ArrowRight":
        return this.walk(now + jump);
      case "Home":
        return this.walk(0);
      case "End":
        return this.walk(last);
    }
    return false;
  }
}
