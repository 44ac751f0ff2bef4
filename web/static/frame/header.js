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

// shares of the displayed steps
const smoothings = [0, 0.005, 0.01, 0.02, 0.05, 0.1];

/** A slider over these shares: at the same position, charts of any length look equally smooth. */
function smoothingSlider() {
  const text = () => (state.smooth ? `${Number((100 * state.smooth).toFixed(1))} %` : "off");
  const shown = h("output", {}, text());
  const slider = h("input", {
    type: "range",
    min: "0",
    max: String(smoothings.length - 1),
    step: "1",
    value: String(Math.max(0, smoothings.indexOf(state.smooth))),
    "aria-label": "smooth",
    "aria-valuetext": text(),
    title: "average over this share of the steps shown",
    oninput: () => {
      choose({ smooth: smoothings[Number(slider.value)] });
      shown.textContent = text();
      slider.setAttribute("aria-valuetext", text());
    },
  });
  return h("label", { class: "pick" }, h("span", {}, "smooth"), slider, shown);
}

export function chartChoices() {
  const axisOptions = Object.entries(axes).map(([key, axis]) => [key, axis.choice]);
  return [
    select("x", axisOptions, state.x, (x) => choose({ x })),
    smoothingSlider(),
    toggle("log x", state.logX, (logX) => choose({ logX })),
    toggle("log y", state.logY, (logY) => choose({ logY })),
  ];
}

function firstRow(left, right) {
  const push = h("span", { class: "push" });
  return h("div", { class: "row first" }, brand(), left, push, right, themeButton());
}

/**
 * crumb: the path to the current page; left: nodes beside it; tools: options of the drawings; rows: nodes below
 * them.
 */
export function showHeader(crumb, { left = [], tools = [], rows = [] } = {}) {
  const place = [h("span", { class: "crumb" }, crumb), ...left];
  const box = tools.length ? h("div", { class: "bar-tools" }, tools) : null;
  top.replaceChildren(firstRow(place, [box, helpButton()]), ...rows);
}

export function showBareHeader() {
  top.replaceChildren(firstRow([], []));
}
