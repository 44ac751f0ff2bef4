// page_metrics.js - the user's own charts, and every metric of bitrain by panel.
import { panels } from "../base/vocabulary.js";
import { ownCharts } from "./own_charts.js";
import { panelCard } from "../cards/panel_card.js";
import { showPage } from "./page.js";

export function metricsPage(root, ctx) {
  const cards = panels.map((panel) => panelCard(ctx, panel));
  showPage(root, ctx, "Metrics", cards, ownCharts(ctx));
}
