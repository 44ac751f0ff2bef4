// header.js - the rows at the top of every page, in #top of index.html.
import { button, select, toggle } from "../base/controls.js";
import { h, svg } from "../base/dom.js";
import { report } from "../base/kept_answers.js";
import { choose, isDark, state } from "../base/state.js";
import { axes } from "../base/vocabulary.js";
import { showHelp } from "./help.js";

const top = document.getElementById("top");

function logo() {
  const line = { stroke: "#fff", "stroke-width": 2.6 };
  return svg(
    "svg",
    { viewBox: "0 0 32 32", "aria-hidden": "true" },
    svg("rect", { width: 32, height: 32, rx: 7, fill: "#1f5fbf" }),
    svg("path", { d: "M6 12h6M20 12h6M23 9v6", ...line, "stroke-linecap": "round" }),
    svg("circle", { cx: 16, cy: 22, r: 3.6, fill: "none", ...line }),
  );
}

function brand() {
  return h("a", { class: "brand", href: report ? "#" : "#/runs" }, logo(), "bitrain");
}

function themeButton() {
  const label = "switch between light and dark";
  const flip = () => choose({ theme: isDark() ? "light" : "dark" });
  return button("◐", flip, { class: "icon", title: "light or dark", "aria-label": label });
}

function helpButton() {
  const label = "keys and strokes";
  return button("?", showHelp, { class: "icon", title: `${label} (?)`, "aria-label": label });
}

const smoothings = [
  ["0", "off"],
  ["0.6", "0.6"],
  ["0.9", "0.9"],
  ["0.99", "0.99"],
];

/** What charts are drawn by: axis, smoothing, logarithms. */
export function chartChoices() {
  const axisOptions = Object.entries(axes).map(([key, axis]) => [key, axis.choice]);
  return [
    select("x", axisOptions, state.x, (x) => choose({ x })),
    select("smooth", smoothings, String(state.smooth), (v) => choose({ smooth: Number(v) })),
    toggle("log x", state.logX, (logX) => choose({ logX })),
    toggle("log y", state.logY, (logY) => choose({ logY })),
  ];
}

function firstRow(left, right) {
  const push = h("span", { class: "push" });
  return h("div", { class: "row first" }, brand(), left, push, right, themeButton());
}

/**
 * crumb: where the reader is; left: nodes beside it; tools: what the page is drawn by; rows: below.
 */
export function showHeader(crumb, { left = [], tools = [], rows = [] } = {}) {
  const place = [h("span", { class: "crumb" }, crumb), ...left];
  const box = tools.length ? h("div", { class: "bar-tools" }, tools) : null;
  top.replaceChildren(firstRow(place, [box, helpButton()]), ...rows);
}

/** The header of somebody who may not see more. */
export function showBareHeader() {
  top.replaceChildren(firstRow([], []));
}
