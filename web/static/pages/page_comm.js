// page_comm.js - cost of exchanges between ranks: by rank, by kind, by pair of ranks, and over time.
import { charts } from "../base/vocabulary.js";
import { exchangesCard } from "../cards/exchanges_card.js";
import { pairsCard } from "../cards/pairs_card.js";
import { seriesCard } from "../cards/series_card.js";
import { skewCard } from "../cards/skew_card.js";
import { transferCard } from "../cards/transfer_card.js";
import { showPage } from "./page.js";

export function commPage(root, ctx) {
  showPage(root, ctx, "Communication", [
    transferCard(ctx),
    exchangesCard(ctx),
    skewCard(ctx),
    pairsCard(ctx),
    seriesCard(ctx, charts.bytes),
    seriesCard(ctx, charts.overhead),
  ]);
}
