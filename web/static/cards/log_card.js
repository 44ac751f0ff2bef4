// log_card.js - the end of a run's log, or the recorded lines that contain a text.
import { get } from "../base/api.js";
import { select, textBox } from "../base/controls.js";
import { empty, h } from "../base/dom.js";
import { plural } from "../base/format.js";
import { Card } from "./card.js";
import { isOfLevel, levels } from "./events_card.js";

export function logCard(ctx) {
  let level = "all";
  let rank = "";
  let sought = "";
  let known = "none"; // ranks in the list of the filter
  const ranks = h("span");
  const isShown = (line) => isOfLevel(line, level) && (!rank || String(line.rank) === rank);
  const card = new Card({
    title: "Log",
    sub: "the end of log.txt",
    wide: true,
    tools: [
      select("lines", levels, level, (value) => {
        level = value;
        card.redraw();
      }),
      ranks,
      textBox("search", (value) => {
        sought = value;
        card.reload();
      }),
    ],
    load: () => get(`runs/${ctx.run}/log${sought ? `?grep=${encodeURIComponent(sought)}` : ""}`),
    draw(body, { readable, lines }) {
      const named = [...new Set(lines.map((line) => line.rank))].filter((one) => one !== null);
      const options = named.sort((a, b) => a - b).map((one) => [String(one), String(one)]);
      const choose = (value) => {
        rank = value;
        card.redraw();
      };
      if (known !== named.join())
        ranks.replaceChildren(select("of rank", [["", "all"], ...options], rank, choose));
      known = named.join();
      ranks.hidden = !named.length;
      const shown = lines.filter(isShown);
      const { scrollTop, scrollHeight, clientHeight } = body.querySelector(".log") || {};
      const isReading = scrollTop + clientHeight < scrollHeight - 4; // the user has scrolled away from the end
      const rows = shown.map((line) =>
        h("span", { class: `level-${line.level}` }, `${line.text}\n`),
      );
      const label = "lines of the log, the newest last";
      const box = h(
        "pre",
        { class: "log", tabindex: "0", role: "region", "aria-label": label },
        rows,
      );
      const none = readable ? "no line like that" : "this machine cannot read the run's log";
      body.replaceChildren(shown.length ? box : empty(none));
      box.scrollTop = isReading ? scrollTop : box.scrollHeight;
    },
    sentence: ({ cut, lines }) =>
      `${plural(lines.filter(isShown).length, "line")}${cut ? "; older ones are left out" : ""}.`,
  });
  return card;
}
