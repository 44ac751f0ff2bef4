// state.js - the user's choices (axis, smoothing, zoom, theme, columns), the step under the pointer, and the
// colours of the theme. The browser stores all choices except the zoom.

const storageKey = "bitrain";
const taste = (() => {
  try {
    return JSON.parse(localStorage.getItem(storageKey) || "{}");
  } catch {
    return {};
  }
})();

export const state = {
  x: taste.x || "tokens",
  smooth: taste.smoothing ?? 0.02, // fraction of the displayed steps over which curves are averaged
  logY: taste.logY || false,
  logX: taste.logX || false,
  theme: taste.theme || "",
  columns: taste.columns || {},
  charts: taste.charts || [], // metrics of the page Metrics
  zoom: null,
};

let hasTokens = true;

/**
 * Returns the quantity on the x axis: the chosen one, or the step if no run of the page has a number of tokens
 * (imported runs may lack it).
 */
export function axisNow() {
  return state.x === "tokens" && !hasTokens ? "step" : state.x;
}

/** Sets the numbers of tokens of the page's runs; null: unknown. */
export function tellTokens(tokens) {
  hasTokens = tokens.length === 0 || tokens.some((n) => n !== null && n !== undefined);
}

const listeners = new Set();

/** Changes fields of the state, stores them and notifies all listeners of the changes. */
export function choose(change) {
  Object.assign(state, change);
  const { x, smooth: smoothing, logY, logX, theme, columns, charts } = state;
  const kept = { x, smoothing, logY, logX, theme, columns, charts };
  try {
    localStorage.setItem(storageKey, JSON.stringify(kept));
  } catch {
    // in a private window nothing is stored
  }
  if ("theme" in change) applyTheme();
  for (const listener of listeners) listener(change);
}

/** Calls the listener at every change; returns a function that removes it. */
export function onChoice(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const pointers = new Set();

/** Sets the step under the pointer in the figure `from` (null: none). All figures show it. */
export function point(step, from) {
  for (const pointer of pointers) pointer(step, from);
}

export function onPoint(pointer) {
  pointers.add(pointer);
  return () => pointers.delete(pointer);
}

export function applyTheme() {
  colors.clear();
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
}

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
  return state.theme ? state.theme === "dark" : systemIsDark.matches;
}

// Colours are cached until the theme changes, because reading one makes the browser compute the page's style.
const colors = new Map();

/** Returns the value of a colour of the style sheet by its name there, such as --soft. */
export function color(name) {
  if (!colors.has(name)) {
    const style = getComputedStyle(document.documentElement);
    colors.set(name, style.getPropertyValue(name).trim());
  }
  return colors.get(name);
}

systemIsDark.addEventListener("change", () => {
  colors.clear();
  choose({});
});
