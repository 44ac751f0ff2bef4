// format.mjs - numbers as text (web/static/base/format.js): each format at its limits; parsing the text gives
// the number.
import assert from "node:assert";

const f = await import(`${process.env.BT_PAGE}/base/format.js`);
const says = (fn, rows) => {
  for (const [value, text, ...more] of rows) assert.strictEqual(fn(value, ...more), text, fn.name);
};

const one = ["digits", "si", "bytes", "bytesPerSecond", "mib", "percent", "count", "nth", "ms"];
const other = ["seconds", "roughly", "date", "nats"];
for (const name of [...one, ...other])
  for (const unknown of [null, undefined, NaN])
    assert.match(f[name](unknown), name === "bytesPerSecond" ? /^–\/s$/ : /^–$/, name);
for (const kind of ["1/s", "J", "ms", "MiB", "s", "frac", "count", "other"])
  assert.strictEqual(f.unit(kind, null), "–", kind);

says(f.digits, [
  [0, "0"],
  [0.1 + 0.2, "0.3"],
  [1e-4, "0.0001"],
  [9.9e-5, "9.9e-5"],
  [-0.00001234567, "-1.23e-5"],
  [99999, "100000"],
  [12345, "12350"],
  [1e5, "1e5"],
  [123456, "1.23e5"],
  [123456, "1e5", 2],
  [-3.14159, "-3.14", 3],
  [5e-5, "5e-5", 1],
]);
says(f.setting, [
  [0.0013333333333333333, "0.00133333"],
  ["0.0013333333333333333", "0.00133333"],
  [1.23456789e-8, "1.23457e-8"],
  [0.95, "0.95"],
  [10000000, "10000000"],
  ["0.4,0.7", "0.4,0.7"],
  ["book.txt", "book.txt"],
  ["", ""],
  [true, "true"],
]);
says(f.si, [
  [0, "0"],
  [999, "999"],
  [1000, "1 k"],
  [999999, "1000 k"],
  [1e6, "1 M"],
  [1234567, "1.23 M"],
  [1234567, "1.235 M", 4],
  [-2.5e9, "-2.5 G"],
  [3e12, "3 T"],
  [0.12345, "0.123"],
]);
says(f.bytes, [
  [0, "0 B"],
  [1, "1 B"],
  [0.5, "0.50 B"],
  [12.5, "12.5 B"],
  [999, "999 B"],
  [999.4, "999 B"],
  [1000, "0.98 KiB"],
  [1024, "1.00 KiB"],
  [10 * 1024, "10.0 KiB"],
  [9.994 * 1024, "9.99 KiB"],
  [9.996 * 1024, "10.0 KiB"],
  [100 * 1024, "100 KiB"],
  [99.94 * 1024, "99.9 KiB"],
  [99.96 * 1024, "100 KiB"],
  [-5 * 1024 ** 3, "-5.00 GiB"],
  [5 * 1024 ** 6, "5120 PiB"],
]);
says(f.bytesPerSecond, [[2048, "2.00 KiB/s"]]);
says(f.mib, [[1.5, "1.50 MiB"]]);
says(f.percent, [
  [0.1234, "12.3 %"],
  [0.1234, "12 %", 0],
  [1, "100.0 %"],
]);
says(f.count, [
  [0, "0"],
  [999.4, "999"],
  [1000, "1\u202f000"],
  [1234567, "1\u202f234\u202f567"],
]);
assert.strictEqual(f.plural(1, "run"), "1 run");
assert.strictEqual(f.plural(0, "run"), "0 runs");
assert.strictEqual(f.plural(2, "run"), "2 runs");
says(f.nth, [
  [0, "1"],
  [999, "1\u202f000"],
]);
assert.strictEqual(f.stepRange(4, 8), "5 to 9");
says(f.ms, [
  [0, "0 ms"],
  [0.123, "0.12 ms"],
  [-0.123, "−0.12 ms"],
  [9.99, "9.99 ms"],
  [10, "10.0 ms"],
  [99.94, "99.9 ms"],
  [100, "100 ms"],
  [9999, "9999 ms"],
  [10000, "10 s"],
  [12345, "12.3 s"],
]);
says(f.seconds, [
  [0.0004, "0 s"],
  [0.0005, "1 ms"],
  [0.25, "250 ms"],
  [1, "1.0 s"],
  [9.94, "9.9 s"],
  [10, "10 s"],
  [59.4, "59 s"],
  [60, "1 m 0 s"],
  [3599, "59 m 59 s"],
  [3600, "1 h 0 m"],
  [3600 * 23 + 60 * 59, "23 h 59 m"],
  [86400, "1 d 0 h"],
  [86400 * 3 + 3600 * 5, "3 d 5 h"],
]);
says(f.roughly, [
  [59.4, "59 s"],
  [60, "1 m"],
  [150, "3 m"],
  [3600, "1.0 h"],
  [3600 * 2.9, "2.9 h"],
  [3600 * 3, "3 h"],
  [86400, "1.0 d"],
  [86400 * 5.4, "5 d"],
]);
says(f.date, [
  [0, "1970-01-01 00:00"],
  [86399, "1970-01-01 23:59:59", true],
]);
says(f.nats, [
  [1.23456, "1.2346"],
  [9999.5, "9999.5000"],
  [-12345.67, "-12346"],
  [1e4, "10000"],
]);
const units = [
  ["ms", 5, "5.00 ms"],
  ["MiB", 2, "2.00 MiB"],
  ["bytes", 2048, "2.00 KiB"],
  ["1/s", 1500, "1.5 k/s"],
  ["nats", 1, "1.0000"],
  ["J", 0.05, "50 mJ"],
  ["J", 0.1, "0.1 J"],
  ["J", 0, "0 J"],
  ["J", 1500, "1.5 kJ"],
  ["s", 90, "1 m 30 s"],
  ["seconds", 90, "1 m 30 s"],
  ["frac", 0.5, "50.0 %"],
  ["ratio of 1", 0.5, "50.0 %"],
  ["count of tokens", 12345, "12.35 k"],
  ["none", 12.3456, "12.35"],
  [undefined, 2, "2"],
  ["a frac", 0.5, "0.5"],
  ["discount", 12345, "12350"],
  ["constructed", 1, "1"],
];
for (const [name, value, text] of units) assert.strictEqual(f.unit(name, value), text, name);
const ticks = [
  ["ms", 50, "50 ms"],
  ["ms", 2.5, "2.5 ms"],
  ["frac", 0.5, "50 %"],
  ["nats", 1.25, "1.25"],
  ["nats", 100, "100"],
  ["bytes", 10240, "10 KiB"],
];
for (const [name, value, text] of ticks) assert.strictEqual(f.tick(name, value), text, name);
const places = [
  ["time", 90, "1 m 30 s", "in 1 m 30 s"],
  ["active", 90, "1 m 30 s", "in 1 m 30 s of active time"],
  ["bytes", 2048, "2.00 KiB", "over 2.00 KiB on the wire"],
  ["step", 12345, "12\u202f345", "by step 12\u202f345"],
  ["step", 1e7, "10 M", "by step 10 M"],
  ["tokens", 12345, "12.35 k", "over 12.35 k tokens"],
];
for (const [axis, value, text, sentence] of places) {
  assert.strictEqual(f.onAxis(axis, value), text, axis);
  assert.strictEqual(f.reach(axis, value), sentence, axis);
}

// The parsed value is within half of the last digit shown, over all magnitudes.
const sizes = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4, PiB: 1024 ** 5 };
const letters = { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
for (let v = 1.37; v < 1e15; v *= 1.7) {
  const [n, unit] = f.bytes(v).split(" ");
  assert.ok(Math.abs(Number(n) * sizes[unit] - v) <= 0.0052 * v, f.bytes(v));
  const [m, letter = ""] = f.si(v).split(" ");
  assert.ok(Math.abs(Number(m) * letters[letter] - v) <= 0.0051 * v, f.si(v));
  assert.ok(Math.abs(Number(f.digits(v)) - v) <= 0.0051 * v, f.digits(v));
}
