// envelope.js - a line with several points a pixel as one area: from the least to the greatest
// value of each column of pixels, as far as the line itself would reach. The picture is the same,
// and a browser fills an area many times faster than it strokes ten thousand joined pieces.

/**
 * A Path2D of the points x, y from index `from` to `to`. left, width: the columns of pixels;
 * endOf(column): the x at which a column ends; toPixel(value): its vertical place; half: half the
 * width of the line. A null in y is a hole.
 */
export function envelope({ x, y, from, to, left, width, endOf, toPixel, half }) {
  const path = new Path2D();
  const edges = { top: [], low: [] };
  let i = from;
  let before = null; // the last value of the columns before
  for (let column = 0; column <= width && i <= to; column++) {
    const end = column === width ? Infinity : endOf(column);
    let low = before ?? Infinity;
    let high = before ?? -Infinity;
    let some = false;
    let hole = false;
    for (; i <= to && x[i] <= end; i++) {
      const value = y[i];
      if (value === null) hole = true;
      if (value === null || value === undefined) continue;
      some = true;
      before = value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (some) {
      extend(edges.top, left + column, toPixel(high) - half);
      extend(edges.low, left + column, toPixel(low) + half);
    }
    if (hole) {
      close(path, edges);
      before = null;
    }
  }
  close(path, edges);
  return path;
}

/** An edge continues to the next column; a jump is vertical, so that a lone peak keeps its
 * width. */
function extend(edge, x, y) {
  const was = edge[edge.length - 1];
  if (Math.abs(y - was) > 3) edge.push(x - 0.5, was, x - 0.5, y);
  edge.push(x, y);
}

/** Adds the area between the two edges to the path, and empties them. */
function close(path, { top, low }) {
  if (top.length) {
    path.moveTo(top[0], top[1]);
    for (let k = 2; k < top.length; k += 2) path.lineTo(top[k], top[k + 1]);
    for (let k = low.length - 2; k >= 0; k -= 2) path.lineTo(low[k], low[k + 1]);
    path.closePath();
  }
  top.length = 0;
  low.length = 0;
}
