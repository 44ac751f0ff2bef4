// state.js - what the reader chose: axis, smoothing, zoom, theme. Choices that are taste are remembered by the browser.
const taste = (() => {
  try {
    return JSON.parse(localStorage.getItem("bitrain") || "{}");
  } catch {
    return {};
  }
})();
const listeners = new Set();

export const state = {
  x: taste.x || "tokens",
  smooth: taste.smooth ?? 0.9,
  logY: taste.logY || false,
  logX: taste.logX || false,
  theme: taste.theme || "",
  columns: taste.columns || {},
  zoom: null,
};

export function choose(change) {
  Object.assign(state, change);
  const { x, smooth, logY, logX, theme, columns } = state;
  try {
    localStorage.setItem("bitrain", JSON.stringify({ x, smooth, logY, logX, theme, columns }));
  } catch {
    /* private mode: only not remembered */
  }
  if ("theme" in change) applyTheme();
  for (const f of listeners) f(change);
}
export function onChoice(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}

// the step the reader points at, in whichever figure; null: none
const pointers = new Set();
export function point(step, from) {
  for (const f of pointers) f(step, from);
}
export function onPoint(f) {
  pointers.add(f);
  return () => pointers.delete(f);
}

export function applyTheme() {
  tones.clear();
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
}
export function isDark() {
  return state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
// kept until the theme changes: asking makes the browser compute the page's style
const tones = new Map();
export function color(name) {
  if (!tones.has(name))
    tones.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return tones.get(name);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  tones.clear();
  choose({});
});

export const phases = [
  ["data_ms", "data"],
  ["fwd_ms", "forward"],
  ["bwd_ms", "backward"],
  ["comm_exposed_ms", "exposed transfer"],
  ["wait_ms", "wait"],
  ["optim_ms", "optimizer"],
  ["ckpt_ms", "checkpoint"],
  ["monitor_ms", "monitor"],
  ["other_ms", "other"],
].map(([key, label], i) => ({ key, label, color: `--p${i}`, hatch: key === "other_ms" }));
