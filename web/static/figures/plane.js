// plane.js - a scatter plot of two numbers with linear or logarithmic axes, a line and vertical rules, drawn
// as SVG for hundreds of points.
import { svg } from "../base/dom.js";
import { digits, si } from "../base/format.js";

const margin = { left: 62, right: 14, top: 12, bottom: 38 };

/** True if the values are positive and span more than a factor of 30, which selects a logarithmic axis. */
export function wantsLog(values) {
  const known = values.filter(Number.isFinite);
  return Math.min(...known) > 0 && Math.max(...known) / Math.min(...known) > 30;
}

/** Formats a number beside an axis. */
export function short(value) {
  return Math.abs(value) < 1e4 ? digits(value, 3) : si(value);
}

/** Returns round values between low and high. */
function ticksOf(low, high, log) {
  if (log) {
    const from = Math.ceil(Math.log10(low) - 1e-9);
    const to = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.ceil((to - from + 1) / 8);
    const all = [];
    for (let at = from; at <= to; at += step) all.push(10 ** at);
    if (all.length > 1) return all;
    return [low, Math.sqrt(low * high), high];
  }
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= rough);
  const all = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step)
    all.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return all;
}

/** Maps numbers to 0 .. 1: {at(value), ticks}; a single value is in the middle. */
export function scaleOf(values, log) {
  const known = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  const bend = log ? Math.log : (value) => value;
  let low = Math.min(...known);
  let high = Math.max(...known);
  if (!known.length) [low, high] = log ? [1, 10] : [0, 1];
  if (low === high && log) [low, high] = [low / 2, high * 2];
  else if (low === high) [low, high] = [low - (Math.abs(low) || 1), high + (Math.abs(high) || 1)];
  const [from, to] = [bend(low), bend(high)];
  const at = (value) => (bend(value) - from) / (to - from);
  return { at, ticks: ticksOf(low, high, log), low, high };
}

/**
 * spec: {x, y: {label, log}, points: [{x, y, color, title, key, faint}], line: [[x, y]], rules: [{x, label}],
 * onpick(key)}. A point without both numbers is omitted.
 */
export function plane({ x, y, points, line = [], rules = [], onpick }, width, height, label) {
  const isShown = (p) => Number.isFinite(p.x) && Number.isFinite(p.y);
  const placed = (p) => isShown(p) && (!x.log || p.x > 0) && (!y.log || p.y > 0);
  const shown = points.filter(placed);
  const across = scaleOf([...shown.map((p) => p.x), ...line.map(([one]) => one)], x.log);
  const up = scaleOf([...shown.map((p) => p.y), ...line.map(([, one]) => one)], y.log);
  const inner = { w: width - margin.left - margin.right, h: height - margin.top - margin.bottom };
  const px = (value) => (margin.left + 4 + across.at(value) * (inner.w - 8)).toFixed(1);
  const py = (value) => (margin.top + inner.h - 4 - up.at(value) * (inner.h - 8)).toFixed(1);
  const bottom = margin.top + inner.h;
  const bars = up.ticks.flatMap((value) => [
    svg("path", { class: "grid", d: `M${margin.left} ${py(value)}h${inner.w}` }),
    svg("text", { x: margin.left - 6, y: Number(py(value)) + 4, class: "end" }, short(value)),
  ]);
  const posts = across.ticks.flatMap((value) => [
    svg("path", { class: "grid", d: `M${px(value)} ${margin.top}v${inner.h}` }),
    svg("text", { x: px(value), y: bottom + 16, class: "middle" }, short(value)),
  ]);
  const marks = rules.flatMap((rule) => [
    svg("path", { class: "rule", d: `M${px(rule.x)} ${margin.top}v${inner.h}` }),
    svg("text", { x: Number(px(rule.x)) + 4, y: margin.top + 10 }, rule.label),
  ]);
  const dots = shown.map((p) => {
    const dot = svg(
      "circle",
      { cx: px(p.x), cy: py(p.y), r: p.faint ? 1.5 : 5, class: p.faint ? "faint" : null },
      svg("title", {}, p.title),
    );
    if (p.color) dot.style.fill = `var(${p.color})`;
    if (onpick && p.key) dot.addEventListener("click", () => onpick(p.key));
    return dot;
  });
  const way = line.map(([a, b], i) => `${i ? "L" : "M"}${px(a)} ${py(b)}`).join("");
  return svg(
    "svg",
    { class: "plane", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    bars,
    posts,
    dots,
    way ? svg("path", { class: "way", d: way }) : null,
    marks,
    svg("text", { x: margin.left + inner.w / 2, y: height - 4, class: "middle" }, x.label),
    svg(
      "text",
      { transform: `translate(12 ${margin.top + inner.h / 2}) rotate(-90)`, class: "middle" },
      y.label,
    ),
  );
}
