#!/usr/bin/env bash
# ctest: timeout=30
# Labels of charts avoid the lines, including the parts between two points: the chosen position covers no part of a line
# if there is such a position, and otherwise the smallest part.
set -u
command -v node >/dev/null || { echo "skipped: node is not installed"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/labels.mjs" <<'END'
import assert from "node:assert";
import { readFileSync } from "node:fs";
const text = readFileSync(`${process.env.BT_SRC}/web/static/figures/chart_labels.js`, "utf8");
const { clearest, pointsAlong } = await import(`data:text/javascript,${encodeURIComponent(text)}`);

// two points far apart: the line between them counts
const slope = pointsAlong([[[0, 0], [100, 100]]], 5);
const gap = Math.max(...slope.slice(1).map(([x, y], i) => Math.hypot(x - slope[i][0], y - slope[i][1])));
assert(gap <= 5.001, `points ${gap} apart`);
assert.deepEqual(slope.at(-1), [100, 100]);
const above = { x: 60, y: 10 };
const on = { x: 40, y: 45 };
assert.equal(clearest([on, above], 30, 12, slope), above);
// the first of those that cover equally few
const below = { x: 0, y: 80 };
assert.equal(clearest([on, below, above], 30, 12, slope), below);
// no place is free: the one that covers fewest
const band = pointsAlong([[[0, 50], [100, 50]], [[0, 56], [50, 56]]], 5);
const twice = { x: 10, y: 45 };
const once = { x: 60, y: 45 };
assert.equal(clearest([twice, once], 30, 12, band), once);
assert.deepEqual(pointsAlong([[], [[3, 4]]], 5), [[3, 4]]);
END
node "$tmp/labels.mjs"
