// parallel.js - parallel coordinates: a vertical axis for each setting or result, and a line for each run.
import { svg } from "../base/dom.js";
import { scaleOf, short, wantsLog } from "./plane.js";

const margin = { left: 56, right: 70, top: 34, bottom: 14 };

/** Numbers have a linear scale; texts are placed at equal distances in their order. */
function axisOf({ label, values }) {
  const known = values.filter((value) => value !== null);
  const numbers = known.map(Number);
  if (known.length && numbers.every(Number.isFinite)) {
    const scale = scaleOf(numbers, wantsLog(numbers));
    const at = (value) => (value === null ? NaN : scale.at(Number(value)));
    const ends = scale.low === Math.min(...numbers) ? [scale.low, scale.high] : [numbers[0]];
    return { label, at, ticks: ends.map((value) => [scale.at(value), short(value)]) };
  }
  const texts = [...new Set(known.map(String))].sort();
  const place = (text) => (texts.length > 1 ? texts.indexOf(text) / (texts.length - 1) : 0.5);
  const at = (value) => (value === null ? NaN : place(String(value)));
  const ticks = texts.slice(0, 12).map((text) => [place(text), text.slice(0, 14)]);
  return { label, at, ticks };
}

/**
 * axes: [{label, values}] with one value per run (null: none); runs: their names. Colours follow the last
 * axis. onpick(run); ondrop(label): a click on a title removes the axis.
 */
export function parallel({ axes, runs, onpick, ondrop }, width, height, label) {
  const all = axes.map(axisOf);
  const inner = { w: width - margin.left - margin.right, h: height - margin.top - margin.bottom };
  const px = (i) => margin.left + (all.length > 1 ? (i * inner.w) / (all.length - 1) : inner.w / 2);
  const py = (share) => margin.top + inner.h * (1 - share);
  const last = all[all.length - 1];
  const lines = runs.map((run, k) => {
    let way = "";
    let pen = "M";
    all.forEach((axis, i) => {
      const share = axis.at(axes[i].values[k]);
      if (Number.isFinite(share)) way += `${pen}${px(i).toFixed(1)} ${py(share).toFixed(1)}`;
      pen = Number.isFinite(share) ? "L" : "M";
    });
    const told = axes.map((axis) => `${axis.label} ${axis.values[k] ?? "–"}`).join(", ");
    const line = svg(
      "path",
      { class: "run", d: way || "M0 0" },
      svg("title", {}, `${run}: ${told}`),
    );
    const share = last.at(axes[axes.length - 1].values[k]);
    const part = Math.round(100 * (Number.isFinite(share) ? share : 1));
    line.style.stroke = `color-mix(in srgb, var(--s1) ${part}%, var(--s0))`;
    line.addEventListener("click", () => onpick(run));
    return line;
  });
  const posts = all.flatMap((axis, i) => {
    const title = svg("text", { x: px(i), y: i % 2 ? 12 : 26, class: "middle drop" }, axis.label);
    title.append(svg("title", {}, "click: remove this axis"));
    title.addEventListener("click", () => ondrop(axis.label));
    const ticks = axis.ticks.map(([share, text]) =>
      svg("text", { x: px(i) + 5, y: py(share) + 4, class: "tick" }, text),
    );
    return [
      svg("path", { class: "post", d: `M${px(i)} ${margin.top}v${inner.h}` }),
      title,
      ...ticks,
    ];
  });
  return svg(
    "svg",
    { class: "plane", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    lines,
    posts,
  );
}
