// page_smoothing.mjs SERIES.json - computes the smoothed lines of the page's charts for test_smoothing.c. The
// first line of the output contains the positions of the page's slider; then follow, for each series and
// position, the decay of the average per step and the average at each point ("nan": none). The page's files
// are read from BT_SRC.
import { readFileSync } from "node:fs";

const page = (name) => readFileSync(`${process.env.BT_SRC}/web/static/${name}`, "utf8");
// The script imports nothing, so its text is a module; loaded by its path, Node.js would treat it as a
// script.
const lines = encodeURIComponent(page("figures/chart_lines.js"));
const { keepOf, stepsCovered, smoothed } = await import(`data:text/javascript,${lines}`);
const stops = /^const smoothings = \[(.*)\];$/m.exec(page("frame/header.js"))[1];
const shares = stops.split(",").map(Number);
console.log(shares.join(" "));
for (const { step, n, mean, lo, hi } of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  for (const share of shares) {
    const keep = keepOf(share, stepsCovered({ step, n, y: mean }));
    const averages = smoothed({ mean, lo, hi, n, step }, keep).map((value) => value ?? "nan");
    console.log(keep, averages.join(" "));
  }
}
