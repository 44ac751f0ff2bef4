// chart.js - the one file that knows uPlot: lines with their raw range behind, stacked areas, linked cursors, zoom by steps, event marks.
import { announce, h, say } from "./dom.js";
import { nth, unit, tick, onAxis, axisName, axisTitle } from "./format.js";
import { state, choose, color, point, onPoint } from "./state.js";

// exponential average a step: a point that stands for n steps counts n times, so a curve looks alike at every zoom. Corrected for
// its start, so that the first point is not a lie.
export function ema(values, keep, n) {
  let sum = 0,
    weight = 0;
  return values.map((v, i) => {
    if (v === null) return null;
    const k = keep ** Math.max(1, (n && n[i]) || 1);
    sum = k * sum + (1 - k) * v;
    weight = k * weight + (1 - k);
    return sum / weight;
  });
}

// one sorted x for lines of their own x
function aligned(lines) {
  if (
    lines.every((l) => l.x.length === lines[0].x.length && l.x.every((v, i) => v === lines[0].x[i]))
  )
    return [lines[0].x, lines.map(() => null)];
  const x = [...new Set(lines.flatMap((l) => l.x))].filter((v) => v !== null).sort((a, b) => a - b),
    at = new Map(x.map((v, i) => [v, i]));
  return [x, lines.map((l) => l.x.map((v) => at.get(v)))];
}
function spread(values, where, n) {
  if (!where) return values;
  const out = new Array(n).fill(undefined); // undefined: this line has no point here; null: a hole
  values.forEach((v, i) => {
    if (where[i] !== undefined) out[where[i]] = v;
  });
  return out;
}

let pointerOn = null; // the chart under the pointer: only it may start a zoom

// strokes that differ without their colour, too
const dashes = [undefined, [7, 4], [2, 3], [9, 3, 2, 3]];

// diagonal strokes: what nobody accounts for
function hatch(tone) {
  const tile = h("canvas", { width: 6, height: 6 }),
    c = tile.getContext("2d");
  c.strokeStyle = tone;
  c.lineWidth = 1.5;
  c.beginPath();
  for (const x of [-3, 0, 3]) {
    c.moveTo(x, 6);
    c.lineTo(x + 6, 0);
  }
  c.stroke();
  return c.createPattern(tile, "repeat");
}

// a logarithmic axis begins at a round number below its data and ends where they end
function decade(lo, hi) {
  if (!(lo > 0)) return [0.1, 1];
  const unit = 10 ** Math.floor(Math.log10(lo)),
    from = Number((Math.floor(lo / unit + 1e-9) * unit).toPrecision(6));
  return [from, hi > from ? hi : from * 10];
}

// an edge goes on to the next column; a jump is upright, so that a lone peak keeps its width
function reach(edge, x, y) {
  const was = edge[edge.length - 1];
  if (Math.abs(y - was) > 3) edge.push(x - 0.5, was, x - 0.5, y);
  edge.push(x, y);
}

// A line with several points a pixel, as one area: from the least to the greatest value of each column of pixels, as far as the line itself
// would reach. The picture is the same, and a browser fills an area many times faster than it strokes ten thousand joined pieces.
function envelope(u, at, i0, i1) {
  const { left, width } = u.bbox,
    n = Math.round(width),
    x = u.data[0],
    y = u.data[at],
    half = (u.series[at].width * devicePixelRatio) / 2,
    path = new Path2D(),
    top = [],
    low = [];
  const close = () => {
    if (top.length) {
      path.moveTo(top[0], top[1]);
      for (let k = 2; k < top.length; k += 2) path.lineTo(top[k], top[k + 1]);
      for (let k = low.length - 2; k >= 0; k -= 2) path.lineTo(low[k], low[k + 1]);
      path.closePath();
    }
    top.length = low.length = 0;
  };
  let i = i0,
    before = null;
  for (let c = 0; c <= n && i <= i1; c++) {
    const end = c === n ? Infinity : u.posToVal(left + c + 0.5, "x", true);
    let lo = before ?? Infinity,
      hi = before ?? -Infinity,
      any = false,
      hole = false;
    for (; i <= i1 && x[i] <= end; i++) {
      const v = y[i];
      if (v === null) hole = true;
      if (v === null || v === undefined) continue;
      any = true;
      before = v;
      if (v < lo) lo = v;
      if (v > hi) hi = v;
    }
    if (any) {
      reach(top, left + c, u.valToPos(hi, "y", true) - half);
      reach(low, left + c, u.valToPos(lo, "y", true) + half);
    }
    if (hole) {
      close();
      before = null;
    }
  }
  close();
  return {
    stroke: null,
    fill: path,
    _fill: u.series[at]._stroke,
    clip: null,
    band: null,
    gaps: null,
    flags: 1,
  };
}
const stroke = uPlot.paths.linear(),
  paths = (u, at, i0, i1) => (i1 - i0 > 3 * u.bbox.width ? envelope : stroke)(u, at, i0, i1);

// spec: {unit, lines: [{label, color, x, y, n, lo, hi, step, sparse, smooth, ghost: as it went before a restart}], stacked, axis, events: [{step, kind, level, title}],
//        redone: [{from, to}], rules: [{y, label}], floor, onpick(step), onzoom(from x, to x) instead of a zoom by steps}
export class Chart {
  constructor(host, tall) {
    this.readout = h("div", { class: "readout" });
    this.plot = h("div", { class: tall ? "plot tall" : "plot" });
    host.replaceChildren(this.readout, this.plot);
    this.size = new ResizeObserver(() => {
      if (this.u && this.plot.clientWidth)
        this.u.setSize({ width: this.plot.clientWidth, height: this.plot.clientHeight });
    });
    this.size.observe(this.plot);
    this.away = onPoint((step, from) => {
      if (from !== this) this.follow(step);
    });
  }
  close() {
    this.size.disconnect();
    this.away();
    if (this.u) this.u.destroy();
    this.u = null;
  }

  set(spec) {
    this.spec = spec;
    const lines = spec.lines.filter((l) => l.x.length);
    if (!lines.length) {
      if (this.u) {
        this.u.destroy();
        this.u = null;
      }
      this.plot.replaceChildren(h("div", { class: "empty" }, spec.empty || "nothing recorded yet"));
      this.readout.replaceChildren();
      this.said = null;
      return;
    }
    const logX = state.logX && spec.axis !== "none",
      logY = !spec.stacked && state.logY;
    const [x, where] = aligned(lines);
    const data = [logX ? x.map((v) => (v > 0 ? v : null)) : x],
      series = [{}],
      bands = [];
    this.shown = [];
    const ok = (values) =>
      logY ? values.map((v) => (v > 0 ? v : v === undefined ? undefined : null)) : values;
    const push = (values, s) => {
      data.push(ok(values));
      series.push(s);
      return series.length - 1;
    };
    const sum = spec.stacked ? x.map(() => 0) : null;
    lines.forEach((l, i) => {
      const tone = color(l.color),
        y = spread(l.y, where[i], x.length);
      if (spec.stacked) {
        const top = sum.map((v, k) => (sum[k] = v + (y[k] || 0)));
        const fill = l.hatch ? () => hatch(tone) : `${tone}d0`;
        push(top, {
          stroke: tone,
          width: 0,
          fill: i === 0 ? fill : undefined,
          points: { show: false },
        });
        if (i > 0) bands.push({ series: [series.length - 1, series.length - 2], fill });
        this.shown.push({ label: l.label, color: l.color, values: y, n: series.length - 1 });
        return;
      }
      if (l.ghost) {
        push(y, {
          stroke: `${tone}c0`,
          width: 1,
          dash: [2, 2],
          points: { show: false },
          spanGaps: true,
        });
        return;
      }
      const keep = l.smooth === false ? 0 : state.smooth,
        range = l.lo && l.lo.some((v, k) => v !== l.hi[k]);
      if (range) {
        const a = push(spread(l.hi, where[i], x.length), {
          stroke: "transparent",
          width: 0,
          points: { show: false },
        });
        const b = push(spread(l.lo, where[i], x.length), {
          stroke: "transparent",
          width: 0,
          points: { show: false },
        });
        bands.push({ series: [a, b], fill: `${tone}24` });
      }
      if (keep > 0)
        push(y, { stroke: `${tone}77`, width: 1, points: { show: false }, spanGaps: false, paths });
      const smooth = keep > 0 ? spread(ema(l.y, keep, l.n), where[i], x.length) : y;
      push(smooth, {
        stroke: tone,
        paths,
        width: l.sparse ? 1.5 : 1.8,
        points: { show: l.x.length < 3 || (l.sparse && l.x.length <= 40), size: 5, fill: tone },
        spanGaps: !!l.sparse,
        dash: lines.length > 1 ? dashes[i % 4] : undefined,
      });
      this.shown.push({ label: l.label, color: l.color, values: y, smooth, keep });
    });
    this.x = x;
    this.stepOf = this.steps(lines, where, x.length);
    const shape = JSON.stringify([
      series.length,
      bands.length,
      logX,
      logY,
      spec.unit,
      spec.axis,
      state.theme,
      color("--bg"),
      lines.map((l) => [l.color, !!l.sparse]),
    ]);
    if (this.u && shape === this.shape) this.u.setData(data);
    else this.build(shape, series, bands, data, logX, logY);
    this.tell(this.u.cursor.idx);
  }

  steps(lines, where, n) {
    const out = new Array(n).fill(null);
    lines.forEach((l, i) => {
      if (l.step)
        l.step.forEach((s, k) => {
          const at = where[i] ? where[i][k] : k;
          if (at !== undefined && out[at] === null) out[at] = s;
        });
    });
    return out;
  }

  build(shape, series, bands, data, logX, logY) {
    if (this.u) this.u.destroy();
    this.plot.replaceChildren();
    this.shape = shape;
    const soft = color("--soft"),
      grid = { stroke: color("--grid"), width: 1 },
      font = "12px system-ui, sans-serif",
      spec = this.spec;
    const zoom = () => {
      const u = this.u,
        s = u.select;
      if (pointerOn !== this || s.width < 6) return;
      const at = (px) => this.stepOf[u.valToIdx(u.posToVal(px, "x"))];
      const a = at(s.left),
        b = at(s.left + s.width),
        from = u.posToVal(s.left, "x"),
        to = u.posToVal(s.left + s.width, "x");
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      if (this.spec.onzoom) this.spec.onzoom(from, to);
      else if (a !== null && b !== null && b > a) choose({ zoom: { x0: a, x1: b } });
    };
    this.u = new uPlot(
      {
        width: this.plot.clientWidth,
        height: this.plot.clientHeight,
        legend: { show: false },
        padding: [8, 8, 0, 0],
        series,
        bands,
        cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
        scales: {
          x: {
            time: false,
            distr: logX ? 3 : 1,
            range: logX ? (u, lo, hi) => decade(lo, hi) : undefined,
          },
          y: {
            distr: logY ? 3 : 1,
            range: (u, lo, hi) => (logY ? decade(lo, hi * 1.05) : this.range(lo, hi)),
          },
        },
        axes: [
          {
            stroke: soft,
            font,
            grid,
            ticks: { show: false },
            gap: 10,
            size: 28,
            values: (u, v) => v.map((x) => (x === null ? "" : onAxis(this.spec.axis, x))),
            space: 76,
          },
          {
            stroke: soft,
            font,
            grid,
            ticks: { show: false },
            gap: 6,
            size: 64,
            values: (u, v) => v.map((y) => (y === null ? "" : tick(spec.unit, y))),
            space: 38,
          },
        ],
        hooks: {
          drawClear: [(u) => this.shade(u)],
          setCursor: [(u) => this.pointed(u)],
          setSelect: [zoom],
          draw: [(u) => this.marks(u)],
        },
      },
      data,
      this.plot,
    );
    this.u.over.addEventListener("pointerdown", () => {
      pointerOn = this;
    });
    this.u.over.addEventListener("pointerenter", () => {
      this.under = true;
    });
    this.u.over.addEventListener("pointerleave", () => {
      this.under = false;
      point(null, this);
    });
    if (this.spec.onpick)
      this.u.over.addEventListener("click", () => {
        const i = this.u.cursor.idx;
        if (i !== null && i !== undefined) this.spec.onpick(this.stepOf[i]);
      });
    this.u.over.addEventListener("dblclick", () =>
      this.spec.onzoom ? this.spec.onzoom(null) : choose({ zoom: null }),
    );
  }

  range(lo, hi) {
    if (lo === null || lo === undefined) return [0, 1];
    if (this.spec.floor !== undefined) lo = Math.min(lo, this.spec.floor);
    const pad = (hi - lo) * 0.06 || Math.abs(hi) * 0.05 || 1;
    return [this.spec.floor !== undefined && lo >= this.spec.floor ? lo : lo - pad, hi + pad];
  }

  // the reader points at a step here, or at one elsewhere on the page: every figure shows the same one
  pointed(u) {
    const i = u.cursor.idx;
    this.tell(i);
    if ((this.under || this.walking) && i !== null && i !== undefined) point(this.stepOf[i], this);
  }
  indexOf(step) {
    let lo = 0,
      hi = this.stepOf.length - 1;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.stepOf[mid] < step) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }
  follow(step) {
    if (!this.u) return;
    if (step === null) {
      this.u.setCursor({ left: -10, top: -10 });
      return;
    }
    const left = this.u.valToPos(this.x[this.indexOf(step)], "x");
    this.u.setCursor({ left, top: this.plot.clientHeight / 3 });
  }

  // steps that a restart did again
  shade(u) {
    const { left, top, width, height } = u.bbox,
      c = u.ctx;
    for (const r of this.spec.redone || []) {
      const at = (step) =>
        Math.min(left + width, Math.max(left, u.valToPos(this.x[this.indexOf(step)], "x", true)));
      if (r.to < this.stepOf[0] || r.from > this.stepOf[this.stepOf.length - 1]) continue;
      c.fillStyle = `${color("--warn")}1c`;
      c.fillRect(at(r.from), top, Math.max(1, at(r.to) - at(r.from)), height);
    }
  }

  // a flag where something happened, with a line where it changed the run; the step is placed between the points around it
  marks(u) {
    const c = u.ctx,
      events = this.spec.events || [],
      { left, top, width, height } = u.bbox;
    const tone = { info: color("--soft"), warning: color("--warn"), error: color("--bad") };
    c.save();
    c.fillStyle = color("--soft"); // what the axis below counts, in the empty corner beside it
    c.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    c.textAlign = "right";
    c.textBaseline = "top";
    c.fillText(
      axisName[this.spec.axis] || "",
      left - 20 * devicePixelRatio,
      top + height + 10 * devicePixelRatio,
    );
    c.textBaseline = "alphabetic";
    for (const r of this.spec.rules || []) {
      const py = Math.round(u.valToPos(r.y, "y", true));
      if (!(py >= top && py <= top + height)) continue;
      c.strokeStyle = c.fillStyle = color("--soft");
      c.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
      c.beginPath();
      c.moveTo(left, py);
      c.lineTo(left + width, py);
      c.stroke();
      c.setLineDash([]);
      c.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      c.textAlign = "right";
      c.fillText(r.label, left + width - 4, py - 5);
    }
    let k = 0;
    for (const e of events) {
      while (k < this.stepOf.length && (this.stepOf[k] === null || this.stepOf[k] < e.step)) k++;
      if (k >= this.stepOf.length) break;
      const px = Math.round(u.valToPos(this.x[k], "x", true));
      if (!(px >= left && px <= left + width)) continue;
      c.strokeStyle = c.fillStyle = tone[e.level] || tone.info;
      const calm = e.level === "info" && e.kind === "checkpoint",
        s = (calm ? 2.5 : 4) * devicePixelRatio;
      c.globalAlpha = calm ? 0.45 : e.level === "info" ? 0.7 : 0.9;
      if (!calm) {
        c.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
        c.beginPath();
        c.moveTo(px, top);
        c.lineTo(px, top + height);
        c.stroke();
        c.setLineDash([]);
      }
      c.beginPath();
      c.moveTo(px - s, top);
      c.lineTo(px + s, top);
      c.lineTo(px, top + s * 1.4);
      c.fill();
    }
    c.restore();
  }

  // the numbers under the cursor; the nodes stay, their texts change
  tell(idx) {
    const spec = this.spec,
      pointing = idx !== null && idx !== undefined,
      i = pointing ? idx : this.x.length - 1,
      who = this.shown.map((s) => s.label + s.color).join();
    if (this.said !== who) {
      this.said = who;
      this.axis = h("span");
      this.place = h("b");
      this.happened = h("span");
      this.values = this.shown.map(() => h("b"));
      this.readout.classList.toggle("many", this.shown.length > 4);
      this.step = h("b");
      this.readout.replaceChildren(
        h("span", {}, "step ", this.step),
        h("span", {}, this.axis, this.place),
        ...this.shown.map((s, k) => {
          const dot = h("i", { "aria-hidden": "true" });
          dot.style.background = `var(${s.color})`;
          return h("span", {}, dot, `${s.label} `, this.values[k]);
        }),
        this.happened,
      );
    }
    say(this.step, nth(this.stepOf[i]));
    this.axis.parentNode.hidden = spec.axis === "step";
    say(this.axis, `${axisTitle[spec.axis] || ""} `);
    say(this.place, onAxis(spec.axis, this.x[i]));
    this.shown.forEach((s, k) => {
      let at = i;
      while (at > 0 && (s.values[at] === undefined || s.values[at] === null)) at--;
      say(this.values[k], unit(spec.unit, s.values[at]));
    });
    const near =
      pointing &&
      this.stepOf[i] !== null &&
      (spec.events || []).find(
        (e) =>
          e.step <= this.stepOf[i] &&
          e.step > (i ? (this.stepOf[i - 1] ?? -1) : -1) &&
          e.kind !== "checkpoint",
      );
    this.happened.className = near ? `level-${near.level}` : "";
    say(this.happened, near ? near.title || near.kind : "");
  }

  // what a mouse does by dragging and clicking: + zooms to the half of the steps around the cursor, Enter takes the step under it
  closer(at) {
    const n = this.x.length,
      a = Math.max(0, at - (n >> 2)),
      b = Math.min(n - 1, at + (n >> 2));
    if (this.spec.onzoom) this.spec.onzoom(this.x[a], this.x[b]);
    else if (this.stepOf[b] > this.stepOf[a])
      choose({ zoom: { x0: this.stepOf[a], x1: this.stepOf[b] } });
  }

  // arrow keys walk the cursor; true when the key was taken
  key(e) {
    if (
      !this.u ||
      !["ArrowLeft", "ArrowRight", "Home", "End", "z", "Z", "+", "=", "Enter"].includes(e.key)
    )
      return false;
    const n = this.x.length,
      now = this.u.cursor.idx ?? n - 1,
      jump = e.shiftKey ? 10 : 1;
    if (e.key === "z" || e.key === "Z") {
      choose({ zoom: null });
      return true;
    }
    if (e.key === "+" || e.key === "=") {
      this.closer(now);
      return true;
    }
    if (e.key === "Enter") {
      if (this.spec.onpick) this.spec.onpick(this.stepOf[now]);
      return Boolean(this.spec.onpick);
    }
    const to =
      e.key === "Home"
        ? 0
        : e.key === "End"
          ? n - 1
          : Math.max(0, Math.min(n - 1, now + (e.key === "ArrowLeft" ? -jump : jump)));
    this.walking = true;
    this.u.setCursor({ left: this.u.valToPos(this.x[to], "x"), top: this.plot.clientHeight / 3 });
    this.walking = false;
    announce(
      [...this.readout.children]
        .filter((n) => !n.hidden)
        .map((n) => n.textContent)
        .filter(Boolean)
        .join(", "),
    );
    return true;
  }
}
