// lr_range_card.js - a learning-rate range test: its losses over the rate, and the suggested rate.
import { get } from "../base/api.js";
import { digits } from "../base/format.js";
import { number } from "../base/table.js";
import { plane } from "../figures/plane.js";
import { Card, optionalCard } from "./card.js";

const columns = [
  number("learning rate", (row) => digits(row.lr, 3)),
  number("loss", (row) => digits(row.loss, 4)),
  number("smoothed", (row) => digits(row.smooth, 4)),
];

function sentence({ suggested, steepest, least, diverged, nothing }) {
  if (nothing) return `No learning rate is suggested: ${nothing}.`;
  const two = (value) => digits(value, 2);
  const end = diverged === null ? "it does not diverge" : `it diverges at ${two(diverged)}`;
  const why = `The smoothed loss falls most steeply at ${two(steepest)}, is least at ${two(least)}; ${end}.`;
  const rule = "the rate of steepest descent, but at most a tenth of where the loss diverges";
  return `Suggested: ${two(suggested)}, ${rule}. ${why}`;
}

function cardOf(ctx) {
  return new Card({
    title: "Loss over learning rate",
    wide: true,
    load: () => get(`runs/${ctx.run}/lr_range`),
    draw(body, data) {
      const { lr, loss, smooth, suggested } = data;
      const isNear = (value) => data.top === null || value <= data.top;
      const near = [...lr.keys()].filter((i) => isNear(loss[i]));
      const points = near.map((i) => ({
        x: lr[i],
        y: loss[i],
        faint: true,
        title: digits(lr[i], 3),
      }));
      const rules = suggested === null ? [] : [{ x: suggested, label: digits(suggested, 2) }];
      const line = lr.map((x, i) => [x, smooth[i]]).filter(([, y]) => isNear(y));
      const [x, y] = [{ label: "learning rate", log: true }, { label: "loss, nats" }];
      const spec = { x, y, points, line, rules };
      body.replaceChildren(plane(spec, body.clientWidth || 900, 300, "loss over learning rate"));
    },
    sentence,
    table: ({ lr, loss, smooth }) => ({
      columns,
      rows: lr.map((rate, i) => ({ lr: rate, loss: loss[i], smooth: smooth[i] })),
    }),
  });
}

export function lrRangeCard(ctx) {
  return optionalCard(async () => {
    const info = await get(`runs/${ctx.run}`);
    return info.config?.["optim.schedule"]?.value === "range" ? cardOf(ctx) : null;
  });
}
