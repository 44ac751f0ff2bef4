// histogram.js - a histogram of times in thirty bins.
import { svg } from "../base/dom.js";
import { count, ms } from "../base/format.js";
import { axisTexts } from "./small_figures.js";

const binCount = 30;
const bottom = 234; // positions of the bars
const roof = 20; // top of the highest bar
const height = 256;

/** Counts sorted milliseconds in equal bins from 0 to `top`; the last bin includes larger values. */
export function histogram(sorted, top, width) {
  const bins = new Array(binCount).fill(0);
  for (const value of sorted) bins[Math.min(binCount - 1, Math.floor((value / top) * binCount))]++;
  const most = Math.max(...bins);
  const more = sorted[sorted.length - 1] > top ? " and more" : "";
  const textOf = (time, isLast) => ms(time) + (isLast ? more : "");
  const binWidth = width / binCount;
  const bars = bins.map((n, i) => {
    const barHeight = (n / most) * (bottom - roof);
    const range = `${ms((i * top) / binCount)} to ${ms(((i + 1) * top) / binCount)}`;
    const place = {
      x: (i * binWidth + 1).toFixed(1),
      y: (bottom - barHeight).toFixed(1),
      width: (binWidth - 2).toFixed(1),
      height: barHeight.toFixed(1),
    };
    return svg("rect", { ...place, rx: 2 }, svg("title", {}, `${range}: ${n} of ${sorted.length}`));
  });
  return svg(
    "svg",
    {
      class: "histogram",
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": "histogram of the arrival skew",
    },
    bars,
    svg("line", { x1: 0, x2: width, y1: bottom + 0.5, y2: bottom + 0.5 }),
    svg("line", { class: "most", x1: 0, x2: width, y1: roof + 0.5, y2: roof + 0.5 }),
    svg("text", { x: 0, y: 13 }, `${count(most)} of ${count(sorted.length)} samples`),
    axisTexts(width < 420 ? 2 : 3, top, (time) => (time / top) * width, bottom + 17, textOf),
  );
}
