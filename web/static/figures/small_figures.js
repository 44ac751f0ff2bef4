// small_figures.js - drawings that fit in a line of text: a curve, a bar of shares, and the legend of such
// bars.
import { h, svg } from "../base/dom.js";

/**
 * A polyline of up to 64 numbers; null leaves a gap. base: a reference level, drawn as a dotted line.
 */
export function spark(values, label, base) {
  const width = 96;
  const height = 22;
  const known = values.filter((value) => value !== null);
  const all = base === undefined ? known : [...known, base];
  const low = Math.min(...all);
  const span = Math.max(...all) - low || 1;
  const x = (i) => (2 + (i * (width - 4)) / Math.max(1, values.length - 1)).toFixed(1);
  const y = (value) => (height - 3 - ((value - low) / span) * (height - 6)).toFixed(1);
  // a gap breaks the line, except in sparse series such as evaluations, which have more gaps than values
  const isSparse = known.length < values.length / 2;
  let path = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value !== null) path += `${pen}${x(i)} ${y(value)}`;
    if (value !== null || !isSparse) pen = value === null ? "M" : "L";
  });
  if (known.length === 1) path += "h.01";
  const baseLine = () => svg("path", { class: "base", d: `M2 ${y(base)}H${width - 2}` });
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    base !== undefined && known.length ? baseLine() : null,
    known.length ? svg("path", { d: path }) : null,
  );
}

// Pattern of unaccounted time; it must be in the document so that bars can refer to it.
const hatchSize = { width: 5, height: 5, patternUnits: "userSpaceOnUse" };
document.body.append(
  svg(
    "svg",
    { width: 0, height: 0, class: "sr", "aria-hidden": "true" },
    svg(
      "pattern",
      { id: "hatch", ...hatchSize, patternTransform: "rotate(45)" },
      svg("rect", { class: "hatch", width: 2.5, height: 5 }),
    ),
  ),
);

/**
 * Shares side by side in one bar: [{share, color, label, hatch}]. The sum of the shares may be less than 1.
 */
export function bar(parts, label) {
  const box = svg("svg", {
    class: "bar",
    viewBox: "0 0 1000 10",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  let at = 0;
  for (const part of parts) {
    const width = Math.max(0, part.share || 0) * 1000;
    if (width > 0) {
      const place = { x: at.toFixed(2), y: 0, width: width.toFixed(2), height: 10 };
      const rect = svg("rect", place, svg("title", {}, part.label));
      rect.style.fill = part.hatch ? "url(#hatch)" : `var(${part.color})`;
      box.append(rect);
    }
    at += width;
  }
  return box;
}

export function dot(color, hatch) {
  const mark = h("i", { "aria-hidden": "true" });
  mark.style.background = hatch
    ? `repeating-linear-gradient(45deg, var(${color}) 0 2px, transparent 2px 4px)`
    : `var(${color})`;
  return mark;
}

/** Legend of a bar: [{label, color, hatch}] */
export function legend(entries) {
  const items = entries.map((entry) => h("li", {}, dot(entry.color, entry.hatch), entry.label));
  return h("ul", { class: "legend" }, items);
}

/**
 * Texts below an axis at n + 1 equal distances from 0 to `end`; the outer ones do not extend beyond the axis.
 */
export function axisTexts(n, end, xOf, y, textOf) {
  return Array.from({ length: n + 1 }, (none, k) => {
    const value = (end * k) / n;
    const anchor = k === 0 ? "start" : k === n ? "end" : "middle";
    return svg("text", { x: xOf(value), y, "text-anchor": anchor }, textOf(value, k === n));
  });
}
