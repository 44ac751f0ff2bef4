// heat.js - a heat map on a canvas: rows by columns, one colour ramp that grows in lightness (readable without colour), cursor by pointer and keys.
import { announce, h, say } from "./dom.js";
import { color, isDark, point, onPoint } from "./state.js";

const ramp = [
  [68, 1, 84],
  [59, 82, 139],
  [33, 145, 140],
  [94, 201, 98],
  [253, 231, 37],
]; // viridis
function shade(t) {
  const f = Math.min(0.9999, isDark() ? t : 1 - t) * (ramp.length - 1),
    i = Math.floor(f),
    k = f - i;
  return `rgb(${ramp[i].map((v, c) => Math.round(v + (ramp[i + 1][c] - v) * k)).join(",")})`;
}
const shades = {};
function tones() {
  return (
    shades[isDark()] || (shades[isDark()] = Array.from({ length: 64 }, (v, i) => shade(i / 63)))
  );
}

// d: {rows: [labels], cols: [labels], steps: [step of each column] or absent, cell: [[numbers]], show(value), lo, hi, least: at least so high the scale goes, most: pixels a column may take, axis}
export class HeatMap {
  constructor(host, ariaLabel) {
    this.readout = h("div", { class: "readout" });
    this.canvas = h("canvas", { class: "heat", "aria-label": ariaLabel, role: "img" });
    host.replaceChildren(this.readout, this.canvas);
    this.at = null;
    this.canvas.addEventListener("pointermove", (e) => {
      const b = this.canvas.getBoundingClientRect();
      this.point(
        Math.floor((e.clientX - b.left - this.left) / this.w),
        Math.floor((e.clientY - b.top - 4) / this.t),
      );
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.at = null;
      this.draw();
      if (this.d && this.d.steps) point(null, this);
    });
    this.canvas.addEventListener("click", () => {
      if (this.at && this.onpick) this.onpick(this.at[0]);
    });
    this.size = new ResizeObserver(() => this.draw());
    this.size.observe(host);
    this.line = null; // column of the step pointed at elsewhere
    this.away = onPoint((step, from) => {
      if (from === this || !this.d || !this.d.steps) return;
      const n = step === null ? -1 : this.d.steps.findLastIndex((s) => s <= step),
        line = n < 0 ? null : n;
      if (line !== this.line) {
        this.line = line;
        this.draw();
      }
    });
  }
  close() {
    this.size.disconnect();
    this.away();
  }
  set(d) {
    this.d = d;
    const all = d.cell
      .flat()
      .filter((v) => v !== null)
      .sort((a, b) => a - b);
    this.lo = d.lo ?? all[Math.floor(all.length * 0.005)] ?? 0;
    this.hi = Math.max(d.hi ?? all[Math.floor(all.length * 0.995)] ?? 1, d.least ?? -Infinity);
    if (!(this.hi > this.lo)) this.hi = this.lo + (Math.abs(this.lo) * 0.01 || 1);
    this.draw();
  }
  point(c, r) {
    const d = this.d;
    this.at = d && c >= 0 && r >= 0 && c < d.cols.length && r < d.rows.length ? [r, c] : null;
    this.line = null;
    this.draw();
    if (d && d.steps) point(this.at ? d.steps[c] : null, this);
  }
  draw() {
    const d = this.d,
      k = devicePixelRatio || 1,
      width = this.canvas.clientWidth;
    if (!d || !width) return;
    const rows = d.rows.length,
      cols = d.cols.length;
    const top = 4;
    this.left = Math.min(96, 14 + 7 * Math.max(0, ...d.rows.map((r) => String(r).length)));
    this.t = Math.max(5, Math.min(d.most ? 44 : 26, Math.floor(360 / Math.max(1, rows))));
    this.w = Math.min(d.most ?? Infinity, (width - this.left) / Math.max(1, cols));
    const height = rows * this.t + 20 + top;
    if (this.canvas.height !== Math.round(height * k)) {
      this.canvas.style.height = `${height}px`;
      this.canvas.height = Math.round(height * k);
    }
    if (this.canvas.width !== Math.round(width * k)) this.canvas.width = Math.round(width * k);
    const c = this.canvas.getContext("2d");
    c.setTransform(k, 0, 0, k, 0, 0);
    c.clearRect(0, 0, width, height);
    const palette = tones(),
      faint = color("--faint"),
      scale = 63 / (this.hi - this.lo);
    for (let r = 0; r < rows; r++)
      for (let i = 0; i < cols; i++) {
        const v = d.cell[r][i];
        c.fillStyle =
          v === null
            ? faint
            : palette[Math.max(0, Math.min(63, Math.round((v - this.lo) * scale)))];
        c.fillRect(
          this.left + i * this.w,
          top + r * this.t,
          Math.ceil(this.w * k) / k - (d.most && this.w > 8 ? 1 : 0),
          this.t - (this.t > 8 ? 1 : 0),
        );
      }
    c.fillStyle = color("--soft");
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    const every = Math.ceil(14 / this.t),
      ticks = Math.max(2, Math.min(cols, Math.floor((width - this.left) / 130)));
    for (let r = 0; r < rows; r += every)
      c.fillText(String(d.rows[r]).slice(0, 14), 0, top + r * this.t + this.t / 2);
    if (d.most) {
      // few columns of equal weight: each its name
      c.textAlign = "center";
      for (let i = 0; i < cols; i += Math.ceil(20 / this.w))
        c.fillText(String(d.cols[i]), this.left + (i + 0.5) * this.w, height - 8);
    } else
      for (let n = 0; n < ticks; n++) {
        const i = Math.round((n * (cols - 1)) / (ticks - 1));
        c.textAlign = n === 0 ? "left" : n === ticks - 1 ? "right" : "center";
        c.fillText(
          String(d.cols[i] ?? ""),
          n === ticks - 1 ? width : this.left + (i + (n ? 0.5 : 0)) * this.w,
          height - 8,
        );
      }
    c.textAlign = "left";
    if (d.axis) c.fillText(d.axis, 0, height - 8);
    if (this.line !== null) {
      c.fillStyle = color("--text");
      c.fillRect(this.left + (this.line + 0.5) * this.w, top, 1, rows * this.t);
    }
    if (this.at) {
      c.strokeStyle = color("--text");
      c.lineWidth = 2;
      c.strokeRect(
        this.left + this.at[1] * this.w,
        top + this.at[0] * this.t,
        Math.max(3, this.w),
        this.t,
      );
    }
    this.tell();
  }
  tell() {
    const d = this.d,
      at = this.at;
    if (this.dark !== isDark()) {
      this.dark = isDark();
      const scale = h("canvas", { class: "ramp", width: 64, height: 1, "aria-hidden": "true" }),
        c = scale.getContext("2d");
      tones().forEach((tone, i) => {
        c.fillStyle = tone;
        c.fillRect(i, 0, 1, 1);
      });
      this.low = h("span");
      this.high = h("span");
      this.where = h("span");
      this.readout.replaceChildren(h("span", {}, this.low, scale, this.high), this.where);
    }
    say(this.low, d.show(this.lo));
    say(this.high, d.show(this.hi));
    say(
      this.where,
      at
        ? `${d.rows[at[0]]}, ${d.axis} ${d.cols[at[1]]}: ${d.show(d.cell[at[0]][at[1]])}`
        : "point at a cell, or use the arrow keys",
    );
  }
  key(e) {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
      e.key
    ];
    if (e.key === "Enter" && this.at && this.onpick) {
      this.onpick(this.at[0]);
      return true;
    }
    if (!move || !this.d || !this.d.cols.length) return false;
    const [r, c] = this.at || [0, this.d.cols.length - 1];
    this.point(
      Math.max(0, Math.min(this.d.cols.length - 1, c + move[1])),
      Math.max(0, Math.min(this.d.rows.length - 1, r + move[0])),
    );
    announce(this.where.textContent);
    return true;
  }
}
