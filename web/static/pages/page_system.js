// page_system.js - hardware of the ranks, and settings of the run.
import { charts } from "../base/vocabulary.js";
import { machinesCard } from "../cards/machines_card.js";
import { seriesCard } from "../cards/series_card.js";
import { settingsCard } from "../cards/settings_card.js";
import { showPage } from "./page.js";

export function systemPage(root, ctx) {
  showPage(root, ctx, "System", [
    machinesCard(ctx),
    seriesCard(ctx, charts.memory),
    seriesCard(ctx, charts.utilisation),
    settingsCard(ctx),
  ]);
}
