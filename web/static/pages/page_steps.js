// page_steps.js - step time: phases of each rank, and of one rank over time.
import { breakdownCard } from "../cards/breakdown_card.js";
import { phasesCard } from "../cards/phases_card.js";
import { showPage } from "./page.js";

export function stepsPage(root, ctx) {
  const breakdown = breakdownCard(ctx, (data) => overTime.meet(data));
  const overTime = phasesCard(ctx, (step) => breakdown.see(step));
  showPage(root, ctx, "Step breakdown", [breakdown, overTime]);
}
