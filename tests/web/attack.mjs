// attack.mjs - what an attack on the dashboard costs the training beside it: blocks of time without and with 200 clients that send a byte a
// second and 1000 that say nothing, in turn (A B A B ...), on a training of two ranks; step times and processor times of both kinds of block.
//   BT_BIN=build node tests/web/attack.mjs [seconds a block = 30] [pairs of blocks = 4] [options of train ...]
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import net from "node:net";
import { setPriority, tmpdir } from "node:os";
import { resolve } from "node:path";

const bin = resolve(process.env.BT_BIN || "build"), dir = mkdtempSync(`${tmpdir()}/bitrain-attack-`), token = "0123456789abcdef0123456789abcdef";
const block = Number(process.argv[2] || 30) * 1000, pairs = Number(process.argv[3] || 4), more = process.argv.slice(4);
const env = { ...process.env, BITRAIN_STORE: `${dir}/w.db`, XDG_RUNTIME_DIR: dir, BITRAIN_DASH_TOKEN: token };
const quantile = (v, q) => v.slice().sort((a, b) => a - b)[Math.min(v.length - 1, Math.floor(v.length * q))];
const rest = (ms) => new Promise((done) => setTimeout(done, ms));
const sql = (text) => JSON.parse(execFileSync(`${bin}/bitrain`, ["query", "--json", "--limit", "0", text], { env, maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"] }).toString());

// a free port: --port 0 would only be told inside the log of the training
const port = await new Promise((done) => { const s = net.createServer().listen(0, "127.0.0.1", () => { const p = s.address().port; s.close(() => done(p)); }); });
const training = spawn(`${bin}/bitrain`, ["train", "--ranks", "2", "--threads", "1", "--name", "beside", "--dash", "--port", String(port), "--steps", "1000000", "--quiet", ...more], { env, stdio: ["ignore", "ignore", "inherit"] });
setPriority(19);                                       // the attackers stand for other machines: what they take here is not to be measured
let attacking = false, open = new Set(), cut = 0;
function connect(slow) {
  if (!attacking) return;
  const s = net.connect(port, "127.0.0.1", () => { if (slow) s.write("GET / HTTP/1.1\r\nX: "); });
  s.slow = slow;
  open.add(s);
  s.on("error", () => {});
  s.on("close", () => { open.delete(s); cut++; if (attacking) setTimeout(connect, 1000, slow); });      // cut off: it comes back within a second or so
}
setInterval(() => { for (const s of open) if (s.slow && s.writable) s.write("a"); }, 1000);
const server = () => {                                 // processor seconds of the dashboard so far
  for (const p of readdirSync("/proc").filter((n) => /^\d+$/.test(n))) {
    try {
      if (!readFileSync(`/proc/${p}/cmdline`, "utf8").split("\0").includes("dash")) continue;
      if (!readFileSync(`/proc/${p}/environ`, "utf8").includes(dir)) continue;
      const f = readFileSync(`/proc/${p}/stat`, "utf8").split(") ").pop().split(" ");
      return (Number(f[11]) + Number(f[12])) / 100;
    } catch { /* it ended */ }
  }
  return 0;
};
try {
  for (let i = 0; i < 120; i++) { await rest(500); try { if (sql("SELECT steps FROM runs")[0].steps > 10) break; } catch { /* not there yet */ } }
  const kinds = { quiet: { blocks: [], cpu: 0 }, attacked: { blocks: [], cpu: 0 } };
  for (let i = 0; i < 2 * pairs; i++) {
    const kind = kinds[i % 2 ? "attacked" : "quiet"];
    attacking = i % 2 === 1;
    if (attacking) for (let k = 0; k < 1200; k++) connect(k < 200);
    else for (const s of open) s.destroy();
    await rest(1500);                                  // neither one nor the other
    const from = Date.now() / 1000, used = server();
    await rest(block);
    kind.cpu += server() - used;
    kind.blocks.push([from, Date.now() / 1000]);
  }
  const started = sql("SELECT started_s FROM runs")[0].started_s, steps = sql("SELECT s.step AS step, s.time_s AS t, s.step_ms AS wall, (SELECT max(r.cpu_ms) FROM rank_steps r WHERE r.run = s.run AND r.attempt = s.attempt AND r.step = s.step) AS cpu FROM steps s ORDER BY s.step");
  for (const k of Object.values(kinds)) k.steps = steps.filter((s) => k.blocks.some(([a, b]) => s.t + started - s.wall / 1000 >= a && s.t + started <= b));
  const { quiet, attacked } = kinds, percent = (a, b) => `${b >= a ? "+" : ""}${(100 * (b / a - 1)).toFixed(1)} %`;
  console.log(`${quiet.steps.length} quiet steps, ${attacked.steps.length} attacked ones; connections cut: ${cut}`);
  for (const [what, key] of [["step", "wall"], ["processor time of the busier rank", "cpu"]])
    for (const [name, q] of [["median", 0.5], ["p95", 0.95], ["p99", 0.99]]) {
      const a = quantile(quiet.steps.map((s) => s[key]), q), b = quantile(attacked.steps.map((s) => s[key]), q);
      console.log(`${what}, ${name}: ${a.toFixed(1)} ms quiet, ${b.toFixed(1)} ms attacked: ${percent(a, b)}`);
    }
  // what the machine itself does to two halves of the quiet blocks: below this, nothing is measured
  const first = quiet.steps.filter((s, i) => s.t + started < quiet.blocks[quiet.blocks.length >> 1][0]), last = quiet.steps.filter((s) => !first.includes(s));
  if (first.length && last.length) console.log(`the same between the first and the last half of the quiet steps: median ${percent(quantile(first.map((s) => s.wall), 0.5), quantile(last.map((s) => s.wall), 0.5))}, p99 ${percent(quantile(first.map((s) => s.wall), 0.99), quantile(last.map((s) => s.wall), 0.99))}`);
  console.log(`the dashboard takes ${(1e5 * quiet.cpu / block / pairs).toFixed(2)} % of a core quiet, ${(1e5 * attacked.cpu / block / pairs).toFixed(2)} % attacked`);
} finally {
  attacking = false;
  for (const s of open) s.destroy();
  training.kill("SIGKILL");
  await rest(3000);                                      // its ranks notice and end
  rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 500 });
  process.exit(0);
}
