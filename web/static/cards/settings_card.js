// settings_card.js - settings of a run with their origin, and recorded facts about machine, program and data.
import { get } from "../base/api.js";
import { h } from "../base/dom.js";
import { dash, plural, setting } from "../base/format.js";
import { table, text } from "../base/table.js";
import { Card } from "./card.js";

function shown(value) {
  if (value === null || value === undefined) return dash;
  return typeof value === "object" ? JSON.stringify(value) : setting(value);
}

const settingColumns = [
  text("setting", (row) => h("code", {}, row.key)),
  text("value", (row) => shown(row.value)),
  text("from", (row) => h("span", { class: "note" }, row.from || "")),
];

const factColumns = [
  text("fact", (row) => h("code", {}, row.key)),
  text("value", (row) => row.text ?? shown(row.value)),
];

/** Settings are stored as {value, origin, where} or, in old records, as plain values. */
function settingsOf(config) {
  return Object.entries(config || {}).map(([key, kept]) =>
    kept !== null && typeof kept === "object" && "value" in kept
      ? { key, value: kept.value, from: kept.where || kept.origin }
      : { key, value: kept, from: "" },
  );
}

function sentence({ config }) {
  const isChosen = (row) => !/^(default|auto|preset|$)/.test(row.from || "");
  const settings = settingsOf(config);
  const n = settings.filter(isChosen).length;
  return `${plural(n, "setting")} given, ${settings.length - n} defaults or derived.`;
}

export function settingsCard(ctx) {
  let wanted = "";
  const found = (row) => `${row.key} ${shown(row.value)} ${row.from || ""}`.toLowerCase();
  const isWanted = (row) => wanted.split(/\s+/).every((word) => found(row).includes(word));
  const search = h("input", {
    type: "search",
    placeholder: "search settings and facts",
    "aria-label": "search settings and facts",
    oninput: () => {
      wanted = search.value.trim().toLowerCase();
      card.redraw();
    },
  });
  const card = new Card({
    title: "Settings and facts",
    wide: true,
    tools: [search],
    every: 30000,
    load: () => get(`runs/${ctx.run}`),
    draw: (body, data) =>
      body.replaceChildren(
        h("p", {}, h("code", {}, data.command || "")),
        h(
          "div",
          { class: "grid tall-scroll" },
          h("div", {}, table(settingColumns, settingsOf(data.config).filter(isWanted), "settings")),
          h("div", {}, table(factColumns, (data.facts || []).filter(isWanted), "facts")),
        ),
      ),
    sentence,
  });
  return card;
}
