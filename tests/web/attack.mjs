// attack.mjs - measures how much an attack on the dashboard slows down training: intervals without and with
// 200 clients that send a byte a second and 1000 silent ones, alternating (A B A B ... A), during one
// training of two ranks; step and processor times of both kinds of interval, and the differences between
// equal intervals.
//         BT_BIN=build node tests/web/attack.mjs [seconds per interval = 30] [attacked intervals = 4] [train
//     options]
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { setPriority, tmpdir } from "node:os";
import { resolve } from "node:path";

const bin = resolve(process.env.BT_BIN || "build");
const dir = mkdtempSync(`${tmpdir()}/bitrain-attack-`);
const blockMs = Number(process.argv[2] || 30) * 1000;
const attackedBlocks = Number(process.argv[3] || 4);
const trainOptions = process.argv.slice(4);
const slowClients = 200;
const silentClients = 1000;
const env = {
  ...process.env,
  BITRAIN_STORE: `${dir}/w.db`,
  XDG_RUNTIME_DIR: dir,
  BITRAIN_DASH_TOKEN: "0123456789abcdef0123456789abcdef",
};

function quantile(values, q) {
  const sorted = values.slice().sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];
}

function rest(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

function sql(text) {
  const options = { env, maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"] };
  const args = ["query", "--json", "--limit", "0", text];
  return JSON.parse(execFileSync(`${bin}/bitrain`, args, options).toString());
}

/** Returns a free port; --port 0 would be printed only in the log of the training. */
function freePort() {
  return new Promise((done) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

function train(port) {
  const job = "train --ranks 2 --threads 1 --name beside --steps 1000000 --quiet --dash --port";
  const args = [...job.split(" "), String(port), ...trainOptions];
  const stdio = ["ignore", "ignore", "inherit"];
  return spawn(`${bin}/bitrain`, args, { env, detached: true, stdio });
}

async function untilItTrains() {
  for (let i = 0; i < 120; i++) {
    await rest(500);
    try {
      if (sql("SELECT steps FROM runs")[0].steps > 10) return;
    } catch {
      // the run does not exist yet
    }
  }
}

/** Returns the processor time that the dashboard has used, in seconds. */
function dashboardSeconds() {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes("dash")) continue;
      if (!readFileSync(`/proc/${pid}/environ`, "utf8").includes(dir)) continue;
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").pop().split(" ");
      return (Number(fields[11]) + Number(fields[12])) / 100;
    } catch {
      // the process has ended
    }
  }
  return 0;
}

/**
 * Attackers simulate other machines, so their processor time must not affect the measurement. If the kernel
 * divides time between sessions first (sched_autogroup), a priority has no effect outside its own session:
 * this call lowers the priority of the attackers' session below that of the training.
 */
function yieldToTraining() {
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
      // the file does not exist
    }
  });
}

class Attackers {
  constructor(port) {
    this.port = port;
    this.active = false;
    this.open = new Set();
    this.cut = 0; // closed connections
    setInterval(() => {
      for (const socket of this.open) if (socket.slow && socket.writable) socket.write("a");
    }, 1000);
  }

  begin() {
    this.active = true;
    for (let k = 0; k < slowClients + silentClients; k++) this.connect(k < slowClients);
  }

  stop() {
    this.active = false;
    for (const socket of this.open) socket.destroy();
  }

  /** Reconnects about a second after the server closed the connection. */
  connect(slow) {
    if (!this.active) return;
    const socket = net.connect(this.port, "127.0.0.1", () => {
      if (slow) socket.write("GET / HTTP/1.1\r\nX: ");
    });
    socket.slow = slow;
    this.open.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => {
      this.open.delete(socket);
      this.cut++;
      if (this.active) setTimeout(() => this.connect(slow), 1000);
    });
  }
}

/**
 * Returns intervals {attacked, from, to, cpu}; the first and last are quiet, so each attacked interval is
 * between two quiet ones.
 */
async function measure(attackers) {
  const blocks = [];
  for (let i = 0; i <= 2 * attackedBlocks; i++) {
    const attacked = i % 2 === 1;
    if (attacked) attackers.begin();
    else attackers.stop();
    await rest(1500); // a pause that belongs to no interval
    const from = Date.now() / 1000;
    const used = dashboardSeconds();
    await rest(blockMs);
    blocks.push({ attacked, from, to: Date.now() / 1000, cpu: dashboardSeconds() - used });
  }
  return blocks;
}

/** Assigns to each interval its steps {wall, cpu}. */
function assignSteps(blocks) {
  const started = sql("SELECT started_s FROM runs")[0].started_s;
  const busiest =
    "SELECT max(r.cpu_ms) FROM rank_steps r " +
    "WHERE r.run = s.run AND r.attempt = s.attempt AND r.step = s.step";
  const steps = sql(
    `SELECT s.time_s AS t, s.step_ms AS wall, (${busiest}) AS cpu FROM steps s ORDER BY s.step`,
  );
  for (const block of blocks)
    block.steps = steps.filter((step) => {
      const end = step.t + started;
      return end - step.wall / 1000 >= block.from && end <= block.to;
    });
}

function signed(value) {
  return `${value >= 0 ? "+" : ""}${(100 * value).toFixed(1)} %`;
}

/** Returns the median; for an even number of values the mean of the two in the middle. */
function middle(values) {
  return (quantile(values, 0.5) + quantile(values, 0.499999)) / 2;
}

/**
 * Compares a quantile of the steps' times. Each attacked interval is compared with the mean of the quiet
 * intervals before and after it, which cancels slow drift; quiet intervals are compared with their quiet
 * neighbours, which gives the noise of this machine.
 */
function compare(what, key, name, q, blocks) {
  const timesOf = (list) => list.flatMap((block) => block.steps.map((step) => step[key]));
  const of = (block) => quantile(timesOf([block]), q);
  const against = (one, before, after) => of(one) / ((of(before) + of(after)) / 2) - 1;
  const quiet = blocks.filter((block) => !block.attacked);
  const attacked = blocks.filter((block) => block.attacked);
  const effects = attacked.map((block, i) => against(block, quiet[i], quiet[i + 1]));
  const noise = quiet.slice(1, -1).map((block, i) => against(block, quiet[i], quiet[i + 2]));
  const spread = noise.length ? Math.max(...noise.map(Math.abs)) : NaN;
  const effect = middle(effects);
  const [least, most] = [Math.min(...effects), Math.max(...effects)];
  const isNoise = Math.abs(effect) <= spread || least * most <= 0;
  const calm = quantile(timesOf(quiet), q);
  const busy = quantile(timesOf(attacked), q);
  console.log(
    `${what}, ${name}: ${calm.toFixed(1)} ms quiet, ${busy.toFixed(1)} ms attacked ` +
      `(all steps together: ${signed(busy / calm - 1)}); ` +
      `block by block ${signed(effect)} (${signed(least)} to ${signed(most)}); ` +
      `equal blocks differ by up to ${(100 * spread).toFixed(1)} %: ` +
      `${isNoise ? "within" : "beyond"} the noise`,
  );
}

function tell(blocks, cut) {
  const quiet = blocks.filter((block) => !block.attacked);
  const attacked = blocks.filter((block) => block.attacked);
  const steps = (list) => list.reduce((sum, block) => sum + block.steps.length, 0);
  const cpu = (list) => list.reduce((sum, block) => sum + block.cpu, 0);
  const share = (list) => ((1e5 * cpu(list)) / list.length / blockMs).toFixed(2);
  console.log(
    `${steps(quiet)} steps in ${quiet.length} quiet blocks, ${steps(attacked)} in ${attacked.length} attacked ones ` +
      `of ${blockMs / 1000} s; connections cut: ${cut}`,
  );
  for (const [what, key] of [
    ["step", "wall"],
    ["processor time of the busier rank", "cpu"],
  ]) {
    compare(what, key, "median", 0.5, blocks);
    compare(what, key, "p95", 0.95, blocks);
    compare(what, key, "p99", 0.99, blocks);
  }
  console.log(
    `the dashboard takes ${share(quiet)} % of a core quiet, ${share(attacked)} % attacked`,
  );
}

const port = await freePort();
const training = train(port);
yieldToTraining();
const attackers = new Attackers(port);
try {
  await untilItTrains();
  const blocks = await measure(attackers);
  assignSteps(blocks);
  tell(blocks, attackers.cut);
} finally {
  attackers.stop();
  training.kill("SIGKILL");
  await rest(3000); // the ranks detect the signal and end
  rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 500 });
  process.exit(0);
}
