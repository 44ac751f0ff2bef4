// page_ternary.js - statistics of the ternary weights: each tensor over time, and its current codes.
import { get } from "../base/api.js";
import { codesCard } from "../cards/codes_card.js";
import { distributionCard } from "../cards/distribution_card.js";
import { layerCurvesCard } from "../cards/layer_curves_card.js";
import { tensorHeatCard } from "../cards/tensor_heat_card.js";
import { showPage } from "./page.js";

/** Loads the tensors that have codes. An equal response gives the same object again. */
function ternaryTensors(ctx) {
  let answer = null;
  let ternary = null;
  return async () => {
    const data = await get(`runs/${ctx.run}/layers`);
    if (data !== answer) {
      answer = data;
      const rows = data.layers.rows.filter((row) => row.zero_frac !== null);
      ternary = { layers: { ...data.layers, rows } };
    }
    return ternary;
  };
}

export function ternaryPage(root, ctx) {
  const load = ternaryTensors(ctx);
  showPage(root, ctx, "Ternary weights", [
    tensorHeatCard(load),
    distributionCard(ctx),
    layerCurvesCard(load),
    codesCard(load),
  ]);
}
