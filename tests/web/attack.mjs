// attack.mjs - what an attack on the dashboard costs the training beside it: blocks of time without and with 200 clients that send a byte a
// second and 1000 that say nothing, in turn (A B A B ... A), on one training of two ranks; step times and processor times of both kinds of
// block, and how far equal blocks lie apart.
//   BT_BIN=build node tests/web/attack.mjs [seconds a block = 30] [attacked blocks = 4] [options of train ...]
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { setPriority, tmpdir } from "node:os";
import { resolve } from "node:path";

const bin = resolve(process.env.BT_BIN || "build"),
  dir = mkdtempSync(`${tmpdir()}/bitrain-attack-`),
  token = "0123456789abcdef0123456789abcdef";
const block = Number(process.argv[2] || 30) * 1000,
  pairs = Number(process.argv[3] || 4),
  more = process.argv.slice(4);
const env = {
  ...process.env,
  BITRAIN_STORE: `${dir}/w.db`,
  XDG_RUNTIME_DIR: dir,
  BITRAIN_DASH_TOKEN: token,
};
const quantile = (v, q) =>
  v.slice().sort((a, b) => a - b)[Math.min(v.length - 1, Math.floor(v.length * q))];
const rest = (ms) => new Promise((done) => setTimeout(done, ms));
const sql = (text) =>
  JSON.parse(
    execFileSync(`${bin}/bitrain`, ["query", "--json", "--limit", "0", text], {
      env,
      maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "ignore"],
    }).toString(),
  );

// a free port: --port 0 would only be told inside the log of the training
const port = await new Promise((done) => {
  const s = net.createServer().listen(0, "127.0.0.1", () => {
    const p = s.address().port;
    s.close(() => done(p));
  });
});
const training = spawn(
  `${bin}/bitrain`,
  [
    "train",
    "--ranks",
    "2",
    "--threads",
    "1",
    "--name",
    "beside",
    "--dash",
    "--port",
    String(port),
    "--steps",
    "1000000",
    "--quiet",
    ...more,
  ],
  { env, detached: true, stdio: ["ignore", "ignore", "inherit"] },
);
// The attackers stand for other machines: what they take here is not to be measured. Where the kernel shares time between sessions first
// (sched_autogroup) a priority says nothing beyond the own session: the training has one of its own, and this one is made to yield.
setPriority(19);
try {
  writeFileSync("/proc/self/autogroup", "19");
} catch {
  console.error("no sched_autogroup here");
}
process.on("exit", () => {
  try {
    writeFileSync("/proc/self/autogroup", "0");
  } catch {
    /* none */
  }
});
let attacking = false,
  open = new Set(),
  cut = 0;
function connect(slow) {
  if (!attacking) return;
  const s = net.connect(port, "127.0.0.1", () => {
    if (slow) s.write("GET / HTTP/1.1\r\nX: ");
  });
  s.slow = slow;
  open.add(s);
  s.on("error", () => {});
  s.on("close", () => {
    open.delete(s);
    cut++;
    if (attacking) setTimeout(connect, 1000, slow);
  }); // cut off: it comes back within a second or so
}
setInterval(() => {
  for (const s of open) if (s.slow && s.writable) s.write("a");
}, 1000);
const server = () => {
  // processor seconds of the dashboard so far
  for (const p of readdirSync("/proc").filter((n) => /^\d+$/.test(n))) {
    try {
      if (!readFileSync(`/proc/${p}/cmdline`, "utf8").split("\0").includes("dash")) continue;
      if (!readFileSync(`/proc/${p}/environ`, "utf8").includes(dir)) continue;
      const f = readFileSync(`/proc/${p}/stat`, "utf8").split(") ").pop().split(" ");
      return (Number(f[11]) + Number(f[12])) / 100;
    } catch {
      /* it ended */
    }
  }
  return 0;
};
try {
  for (let i = 0; i < 120; i++) {
    await rest(500);
    try {
      if (sql("SELECT steps FROM runs")[0].steps > 10) break;
    } catch {
      /* not there yet */
    }
  }
  const blocks = [];
  for (let i = 0; i <= 2 * pairs; i++) {
    // a quiet block at either end: each attacked one lies between two
    attacking = i % 2 === 1;
    if (attacking) for (let k = 0; k < 1200; k++) connect(k < 200);
    else for (const s of open) s.destroy();
    await rest(1500); // neither one nor the other
    const from = Date.now() / 1000,
      used = server();
    await rest(block);
    blocks.push({ attacked: attacking, from, to: Date.now() / 1000, cpu: server() - used });
  }
  const started = sql("SELECT started_s FROM runs")[0].started_s,
    steps = sql(
      "SELECT s.step AS step, s.time_s AS t, s.step_ms AS wall, (SELECT max(r.cpu_ms) FROM rank_steps r WHERE r.run = s.run AND r.attempt = s.attempt AND r.step = s.step) AS cpu FROM steps s ORDER BY s.step",
    );
  for (const b of blocks)
    b.steps = steps.filter((s) => s.t + started - s.wall / 1000 >= b.from && s.t + started <= b.to);
  const quiet = blocks.filter((b) => !b.attacked),
    attacked = blocks.filter((b) => b.attacked),
    all = (list) => list.flatMap((b) => b.steps);
  console.log(
    `${all(quiet).length} steps in ${quiet.length} quiet blocks, ${all(attacked).length} in ${attacked.length} attacked ones of ${block / 1000} s; connections cut: ${cut}`,
  );
  const sign = (v) => `${v >= 0 ? "+" : ""}${(100 * v).toFixed(1)} %`,
    mid = (v) => (quantile(v, 0.5) + quantile(v, 0.499999)) / 2; // of an even number: between the two in the middle
  for (const [what, key] of [
    ["step", "wall"],
    ["processor time of the busier rank", "cpu"],
  ])
    for (const [name, q] of [
      ["median", 0.5],
      ["p95", 0.95],
      ["p99", 0.99],
    ]) {
      const of = (b) =>
          quantile(
            b.steps.map((s) => s[key]),
            q,
          ),
        a = quantile(
          all(quiet).map((s) => s[key]),
          q,
        ),
        b = quantile(
          all(attacked).map((s) => s[key]),
          q,
        );
      // each attacked block against the mean of the quiet ones before and after it: what drifts slowly cancels; then how far quiet blocks lie
      // from the quiet ones around them, which is what this machine makes of no difference at all
      const against = (i) => of(blocks[i]) / ((of(blocks[i - 1]) + of(blocks[i + 1])) / 2) - 1;
      const effects = attacked.map((x) => against(blocks.indexOf(x))),
        noise = quiet
          .slice(1, -1)
          .map((x, i) => of(x) / ((of(quiet[i]) + of(quiet[i + 2])) / 2) - 1);
      const spread = noise.length ? Math.max(...noise.map(Math.abs)) : NaN,
        effect = mid(effects);
      console.log(
        `${what}, ${name}: ${a.toFixed(1)} ms quiet, ${b.toFixed(1)} ms attacked (all steps together: ${sign(b / a - 1)}); block by block ${sign(effect)} (${sign(Math.min(...effects))} to ${sign(Math.max(...effects))}); ` +
          `equal blocks differ by up to ${(100 * spread).toFixed(1)} %: ${Math.abs(effect) <= spread || Math.min(...effects) * Math.max(...effects) <= 0 ? "within the noise" : "beyond the noise"}`,
      );
    }
  const share = (list) =>
    ((1e5 * list.reduce((sum, b) => sum + b.cpu, 0)) / list.length / block).toFixed(2);
  console.log(
    `the dashboard takes ${share(quiet)} % of a core quiet, ${share(attacked)} % attacked`,
  );
} finally {
  attacking = false;
  for (const s of open) s.destroy();
  training.kill("SIGKILL");
  await rest(3000); // its ranks notice and end
  rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 500 });
  process.exit(0);
}
