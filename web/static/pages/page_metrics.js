// page_metrics.js - every metric that bitrain knows, panel by panel.
import { panels } from "../base/vocabulary.js";
import { panelCard } from "../cards/panel_card.js";
import { showPage } from "./page.js";

export function metricsPage(root, ctx) {
  const cards = panels.map((panel) => panelCard(ctx, panel));
  showPage(root, ctx, "Metrics", cards);
}
