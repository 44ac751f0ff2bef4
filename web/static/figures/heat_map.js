// heat_map.js - rows and columns of numbers on a canvas, with colours of increasing lightness, so that it can
// be read without colour as well. The pointer and the arrow keys move a cursor.
import { announce, h, say } from "../base/dom.js";
import { color, isDark, onPoint, point } from "../base/state.js";

// viridis, from low to high
const ramp = [
  [68, 1, 84],
  [59, 82, 139],
  [33, 145, 140],
  [94, 201, 98],
  [253, 231, 37],
];
const shadeCount = 64;
const shadesOf = {}; // by theme, dark or light

/** Returns the colour at a position from 0 to 1; high values contrast with the background of either theme. */
function shade(place) {
  const at = Math.min(0.9999, isDark() ? place : 1 - place) * (ramp.length - 1);
  const i = Math.floor(at);
  const mix = (value, channel) => Math.round(value + (ramp[i + 1][channel] - value) * (at - i));
  return `rgb(${ramp[i].map(mix).join(",")})`;
}

function shades() {
  const key = String(isDark());
  if (!shadesOf[key])
    shadesOf[key] = Array.from({ length: shadeCount }, (none, i) => shade(i / (shadeCount - 1)));
  return shadesOf[key];
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

const above = 4; // pixels above the first row
const below = 20; // pixels for the names of columns

/**
 * A heat map that fills `host`. `set` draws data:
 *   rows, cols  names of rows and columns
 *   steps       step of each column, if columns are steps; then the cursors of other figures are shown
 *   cell        [row][column] numbers; null: unknown
 *   show        formats a value
 *   axis        meaning of the columns
 *   lo, hi      ends of the scale; by default nearly the smallest and the largest value
 *   most        for few columns of equal weight: each has its name, and at most this width in pixels
 * The property onpick receives the row of a click.
 */
export class HeatMap {
  constructor(host, label) {
    this.readout = h("div", { class: "readout" });
    this.canvas = h("canvas", { class: "heat", "aria-label": label, role: "img" });
    host.replaceChildren(this.readout, this.canvas);
    this.data = null;
    this.at = null; // [row, column] under the cursor
    this.line = null; // column of the step under the pointer in another figure
    this.onpick = null;
    this.listen();
    this.size = new ResizeObserver(() => this.draw());
    this.size.observe(host);
    this.forget = onPoint((step, from) => {
      if (from !== this) this.follow(step);
    });
  }

  listen() {
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left - this.left) / this.columnWidth);
      this.point(column, Math.floor((event.clientY - box.top - above) / this.rowHeight));
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.at = null;
      this.draw();
      if (this.data && this.data.steps) point(null, this);
    });
    this.canvas.addEventListener("click", () => this.pick());
  }

  close() {
    this.size.disconnect();
    this.forget();
  }

  set(data) {
    this.data = data;
    const known = data.cell.flat().filter((value) => value !== null);
    known.sort((a, b) => a - b);
    const quantile = (q) => known[Math.floor(known.length * q)];
    this.lo = data.lo ?? quantile(0.005) ?? 0;
    this.hi = data.hi ?? quantile(0.995) ?? 1;
    if (!(this.hi > this.lo)) this.hi = this.lo + (Math.abs(this.lo) * 0.01 || 1);
    this.draw();
  }

  /** Marks the column of the step under the pointer in another figure with a line. */
  follow(step) {
    if (!this.data || !this.data.steps) return;
    const column = step === null ? -1 : this.data.steps.findLastIndex((from) => from <= step);
    const line = column < 0 ? null : column;
    if (line === this.line) return;
    this.line = line;
    this.draw();
  }

  point(column, row) {
    const data = this.data;
    const inside =
      data && column >= 0 && row >= 0 && column < data.cols.length && row < data.rows.length;
    this.at = inside ? [row, column] : null;
    this.line = null;
    this.draw();
    if (data && data.steps) point(this.at ? data.steps[column] : null, this);
  }

  /** True if a cell is under the cursor and a listener needs its row. */
  pick() {
    if (!this.at || !this.onpick) return false;
    this.onpick(this.at[0]);
    return true;
  }

  draw() {
    if (!this.data || !this.canvas.clientWidth) return;
    const canvas = this.layOut();
    this.drawCells(canvas);
    this.drawNames(canvas);
    this.drawCursor(canvas);
    this.tell();
  }

  /** Computes the sizes of rows and columns; returns the cleared context of the canvas, in CSS pixels. */
  layOut() {
    const { rows, cols, most } = this.data;
    const ratio = devicePixelRatio || 1;
    const longest = Math.max(0, ...rows.map((name) => String(name).length));
    this.width = this.canvas.clientWidth;
    this.left = Math.min(96, 14 + 7 * longest);
    this.rowHeight = this.heightOfRows(rows.length, most ? 44 : 26);
    this.columnWidth = Math.min(
      most ?? Infinity,
      (this.width - this.left) / Math.max(1, cols.length),
    );
    this.height = rows.length * this.rowHeight + below + above;
    const pixels = {
      width: Math.round(this.width * ratio),
      height: Math.round(this.height * ratio),
    };
    if (this.canvas.height !== pixels.height) {
      this.canvas.style.height = `${this.height}px`;
      this.canvas.height = pixels.height;
    }
    if (this.canvas.width !== pixels.width) this.canvas.width = pixels.width;
    const canvas = this.canvas.getContext("2d");
    canvas.setTransform(ratio, 0, 0, ratio, 0, 0);
    canvas.clearRect(0, 0, this.width, this.height);
    return canvas;
  }

  /**
   * Up to 72 rows share 360 pixels; more rows share the height of the window below the page's header. A row
   * has at least one pixel.
   */
  heightOfRows(n, tallest) {
    const room = Math.max(240, innerHeight - 260);
    const shared = Math.floor((n * 5 <= 360 ? 360 : room) / Math.max(1, n));
    return clamp(shared, n * 5 <= room ? 5 : 1, tallest);
  }

  rowTop(row) {
    return above + row * this.rowHeight;
  }

  drawCells(canvas) {
    const { rows, cols, cell, most } = this.data;
    const ratio = devicePixelRatio || 1;
    const palette = shades();
    const last = palette.length - 1;
    const scale = last / (this.hi - this.lo);
    const unknown = color("--faint");
    const toneOf = (value) => palette[clamp(Math.round((value - this.lo) * scale), 0, last)];
    const width =
      Math.ceil(this.columnWidth * ratio) / ratio - (most && this.columnWidth > 8 ? 1 : 0);
    const height = this.rowHeight - (this.rowHeight > 8 ? 1 : 0);
    for (let row = 0; row < rows.length; row++)
      for (let column = 0; column < cols.length; column++) {
        const value = cell[row][column];
        canvas.fillStyle = value === null ? unknown : toneOf(value);
        canvas.fillRect(this.left + column * this.columnWidth, this.rowTop(row), width, height);
      }
  }

  drawNames(canvas) {
    const { rows, axis, most } = this.data;
    canvas.fillStyle = color("--soft");
    canvas.font = "12px system-ui, sans-serif";
    canvas.textBaseline = "middle";
    for (let row = 0; row < rows.length; row += Math.ceil(14 / this.rowHeight))
      canvas.fillText(String(rows[row]).slice(0, 14), 0, this.rowTop(row) + this.rowHeight / 2);
    if (most) this.drawColumnNames(canvas);
    else this.drawColumnTicks(canvas);
    canvas.textAlign = "left";
    if (axis) canvas.fillText(axis, 0, this.height - 8);
  }

  drawColumnNames(canvas) {
    const { cols } = this.data;
    canvas.textAlign = "center";
    for (let column = 0; column < cols.length; column += Math.ceil(20 / this.columnWidth)) {
      const x = this.left + (column + 0.5) * this.columnWidth;
      canvas.fillText(String(cols[column]), x, this.height - 8);
    }
  }

  /** Draws the names of the first and the last column, and as many between them as fit. */
  drawColumnTicks(canvas) {
    const { cols } = this.data;
    const room = Math.floor((this.width - this.left) / 130);
    const ticks = Math.max(2, Math.min(cols.length, room));
    for (let tick = 0; tick < ticks; tick++) {
      const isFirst = tick === 0;
      const isLast = tick === ticks - 1;
      const column = Math.round((tick * (cols.length - 1)) / (ticks - 1));
      const x = this.left + (column + (isFirst ? 0 : 0.5)) * this.columnWidth;
      canvas.textAlign = isFirst ? "left" : isLast ? "right" : "center";
      canvas.fillText(String(cols[column] ?? ""), isLast ? this.width : x, this.height - 8);
    }
  }

  drawCursor(canvas) {
    const text = color("--text");
    if (this.line !== null) {
      const x = this.left + (this.line + 0.5) * this.columnWidth;
      canvas.fillStyle = text;
      canvas.fillRect(x, above, 1, this.data.rows.length * this.rowHeight);
    }
    if (this.at) {
      const [row, column] = this.at;
      const x = this.left + column * this.columnWidth;
      canvas.strokeStyle = text;
      canvas.lineWidth = 2;
      canvas.strokeRect(x, this.rowTop(row), Math.max(3, this.columnWidth), this.rowHeight);
    }
  }

  /** Shows the ends of the scale, and the value under the cursor. */
  tell() {
    const { rows, cols, cell, show, axis } = this.data;
    if (this.dark !== isDark()) this.buildReadout();
    say(this.low, show(this.lo));
    say(this.high, show(this.hi));
    if (this.at) {
      const [row, column] = this.at;
      say(this.where, `${rows[row]}, ${axis} ${cols[column]}: ${show(cell[row][column])}`);
    } else say(this.where, "point at a cell, or use the arrow keys");
  }

  /** Creates the scale and the readout again when the theme changes. */
  buildReadout() {
    this.dark = isDark();
    const size = { width: shadeCount, height: 1 };
    const scale = h("canvas", { class: "ramp", ...size, "aria-hidden": "true" });
    const canvas = scale.getContext("2d");
    shades().forEach((tone, i) => {
      canvas.fillStyle = tone;
      canvas.fillRect(i, 0, 1, 1);
    });
    this.low = h("span");
    this.high = h("span");
    this.where = h("span");
    this.readout.replaceChildren(h("span", {}, this.low, scale, this.high), this.where);
  }

  key(event) {
    if (event.key === "Enter") return this.pick();
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const move = moves[event.key];
    if (!move || !this.data || !this.data.cols.length) return false;
    const { rows, cols } = this.data;
    const [row, column] = this.at || [0, cols.length - 1];
    this.point(
      clamp(column + move[1], 0, cols.length - 1),
      clamp(row + move[0], 0, rows.length - 1),
    );
    announce(this.where.textContent);
    return true;
  }
}
