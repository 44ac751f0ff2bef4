#!/usr/bin/env python3
"""Prediction beside measurement: every legal layout of a model on 1 to 4 ranks here, as `bitrain plan` predicts it and as
`bitrain bench train` measures it, in one table.

    tests/bench/plan_table.py                       the table, 30 layouts and more (10 minutes on a quiet machine; --minutes ends it)
    tests/bench/plan_table.py --bitrain build/bitrain --minutes 14 --layouts 12
    tests/bench/plan_table.py --layouts 8 --steps 3 --set model.layers=3 --seq-len 256     further words go to both commands
    tests/bench/plan_table.py --phases              two lines more of each layout: predicted and measured phases

A machine that does other work stretches steps, and those of ranks that meet often more than others. Three ratios of predicted over
measured, which that meets differently:
    wall        step time by the clock
    relative    the same, compared with the ratio of a reference (plain data parallelism on as many ranks) that runs before and after
    processor   processor time of a rank without waits (--profile), compared with the reference's ratio in the same way: other programs
                take of the caches, by half of a step and more. Waiting is not in it: it follows from the order of the schedule, which
                tests/engine/plan checks.
A layout's step `by processor time` is the predicted one with its processor time replaced by the measured, less the reference's stretch.
The reference runs before, between and after every two layouts, and stands in the table with a run of its own, so its ratio shows the noise.
A run beside which other programs take more than 3 % of the processors (/proc/stat less what the run's own processes took) is made
again, up to twice, and the one that they disturbed least counts, whatever its result. Each line has the share of other programs
(`others`), the last line how many runs were made again.
Memory: planned over what the ranks took together at most (what they share counts once).
The numbers of ranks come in turn, four layouts each, so that a table that time ends has layouts of all of them.
The choice's regret: `bitrain plan`'s first layout and the fastest two that were measured run again in turn, at least twice each and as often
as there is time, five times at most; by how much the choice's median is above the least. Probing: the wall time of `bitrain plan` with nothing
known, trials included.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
program = os.environ.get("BITRAIN", os.path.join(SRC, "build", "bitrain"))
QUIET = ["--ckpt-every", "0", "--set", "ckpt.minutes=0", "--set", "train.stats_every=0", "--set", "data.val_frac=0"]
PHASES = ["data_ms", "fwd_ms", "bwd_ms", "comm_exposed_ms", "wait_ms", "optim_ms", "monitor_ms", "other_ms"]
WORK = [p for p in PHASES if p != "wait_ms"]
OTHERS_MOST = 0.03
again = 0


def run(words):
    done = subprocess.run([program] + words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return json.loads(done.stdout), done.stderr


def flags(layout):
    """The layout as settings. A pipeline gathers once a step anyway."""
    words = ["--pp", layout["pp"], "--tp", layout["tp"], "--zero", layout["zero"], "--dp-replicate", layout["dp_replicate"],
             "--dp-shard", layout["dp_shard"], "--micro-batch", layout["micro_batch"], "--recompute", layout["recompute"],
             "--virtual-stages", layout["virtual_stages"]]
    if layout["zero"] == 3 and layout["pp"] == 1:
        words += ["--set", "parallel.gather=" + layout["gather"]]
    return [str(w) for w in words]


def name(layout):
    dp = layout["dp_replicate"] * layout["dp_shard"]
    zero = f" zero {layout['zero']}{' step' if layout['zero'] == 3 and layout['gather'] == 'step' else ''}" if layout["zero"] else ""
    chunks = f" ({layout['virtual_stages']} virtual)" if layout["virtual_stages"] > 1 else ""
    return f"pp {layout['pp']}{chunks} dp {dp}{zero} tp {layout['tp']} micro {layout['micro_batch']}x{layout['accum']}"


def spread(layouts, most):
    """At most `most` of them: first one of every mesh, virtual stages and ZeRO stage, then other micro-batches."""
    seen, first, rest = set(), [], []
    for x in layouts:
        key = (x["pp"], x["virtual_stages"], x["tp"], x["dp_replicate"], x["dp_shard"], x["zero"], x["gather"])
        (rest if key in seen else first).append(x)
        seen.add(key)
    return (first + rest)[:most]


def processors():
    """Seconds that all processes have taken, and those that this one has waited for."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = [int(x) for x in f.readline().split()[1:9]]
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def measure(words, layout, steps):
    """A run, with the share of the processors that others took beside it."""
    global again
    best = None
    for turn in range(3):
        all_then, own_then, then = *processors(), time.monotonic()
        got, _ = run(["bench", "train", "--steps", str(steps), "--profile", "--json"] + words + flags(layout))
        all_now, own_now = processors()
        got["others"] = max(0, (all_now - all_then) - (own_now - own_then)) / (time.monotonic() - then) / os.cpu_count()
        if best is None or got["others"] < best["others"]:
            best = got
        if best["others"] <= OTHERS_MOST:
            break
        again += turn < 2
    return best


def work(processor):
    return sum(processor[p] for p in WORK)


def percent(offs):
    offs = sorted(offs)
    return f"{100 * statistics.median(offs):.1f} % median, {100 * offs[-1]:.1f} % worst"


class Group:
    """The layouts on one number of ranks: what is planned, what has been measured, and the reference's last run."""

    def __init__(self, a, ranks, store, more):
        self.a, self.ranks = a, ranks
        self.base = ["--preset", a.preset, "--ranks", str(ranks), "--threads", "1", "--data", "synth:chain"] + more
        self.base += ["--batch-tokens", str(int(a.batch_tokens) // 2 * 3 if ranks == 3 else a.batch_tokens)]
        asked = time.monotonic()
        self.plan, told = run(["plan", "--rows", "1000", "--json", "--store", store] + self.base + QUIET)
        self.probing = time.monotonic() - asked
        sys.stderr.write(told)
        self.choice = self.plan["layouts"][0]
        self.left = spread(self.plan["layouts"], a.layouts)
        plain = [x for x in self.plan["layouts"] if x["pp"] == x["tp"] == 1 and x["zero"] == 0]
        self.reference = max(plain, key=lambda x: x["micro_batch"]) if plain else self.choice
        self.rows = []

    def run_s(self):
        """About what one more run takes: its start, its warm-up and its steps."""
        return 1.5 + self.reference["step_ms"] * (self.a.steps + 2) / 1000

    def measure_some(self, n, end):
        """The next n layouts, or as many as there is time for."""
        some = []
        while self.left and len(some) < n and time.monotonic() + (1.5 * (len(some) + 1) + 1) * self.run_s() < end:
            some.append(self.left.pop(0))
        if some:
            before = measure(self.base, self.reference, self.a.steps)
            for at in range(0, len(some), 2):
                got = [(x, self.try_one(x)) for x in some[at:at + 2]]
                after = measure(self.base, self.reference, self.a.steps)
                for x, was in got:
                    if was:
                        self.note(x, was, before, after)
                before = after
        return len(some)

    def try_one(self, x):
        try:
            return measure(self.base, x, self.a.steps)
        except RuntimeError as why:
            print(f"{self.ranks:5} {name(x):<44} failed: {why}")
            return None

    def note(self, x, got, before, after):
        # the reference's stretch while this layout ran: measured over predicted
        stretch = statistics.mean([before["step_ms"], after["step_ms"]]) / self.reference["step_ms"]
        planned, was = work(x["processor"]), work(got["processor"])
        busy = statistics.mean([work(before["processor"]), work(after["processor"])]) / work(self.reference["processor"])
        row = {"ranks": self.ranks, "layout": name(x), "what": x, "planned_mib": x["all_bytes"] / 2**20, "peak_mib": got["memory_mib"],
               "predicted_ms": x["step_ms"], "measured_ms": got["step_ms"], "reference": x is self.reference,
               "wall": x["step_ms"] / got["step_ms"], "relative": x["step_ms"] / got["step_ms"] * stretch,
               "normal_ms": got["step_ms"] / stretch, "others": got["others"], "processor": planned / was * busy,
               "processor_alone": planned / was,
               "processor_ms": x["wait_ms"] + (x["step_ms"] - x["wait_ms"]) * was / planned / busy,
               "phases": {p: [x[p], x["processor"][p], got["processor"][p], got[p]] for p in PHASES}}
        row["memory"] = row["planned_mib"] / row["peak_mib"]
        row["step"] = row["predicted_ms"] / row["processor_ms"]
        self.rows.append(row)
        print(f"{self.ranks:5} {row['layout']:<44} {row['planned_mib']:7.0f}M {row['peak_mib']:7.0f}M {row['memory']:7.3f} "
              f"{row['predicted_ms']:8.0f}ms {row['measured_ms']:7.0f}ms {row['wall']:6.2f} {row['relative']:8.2f} "
              f"{row['processor']:9.2f} {100 * row['others']:6.1f}%", flush=True)
        if self.a.phases:
            for i, what in enumerate(["step predicted", "processor predicted", "processor measured", "step measured"]):
                print(f"{'':12}{what:<20}" + " ".join(f"{p[:-3].replace('comm_exposed', 'comm')} {row['phases'][p][i]:.1f}" for p in PHASES))

    def regret(self, end):
        """In %, of the planner's choice over the fastest; and the latter. Those in question run again in turn: twice, and on until `end`."""
        rows = sorted((g for g in self.rows if g["layout"] != name(self.choice)), key=lambda g: g["normal_ms"])[:2]
        finals = [{"layout": name(x), "what": x, "took": []} for x in [self.choice] + [g["what"] for g in rows]]
        for turn in range(5):
            if turn > 1 and time.monotonic() + len(finals) * self.run_s() > end:
                break
            for f in finals if turn % 2 == 0 else reversed(finals):
                f["took"].append(measure(self.base, f["what"], self.a.steps)["step_ms"])
        least = min(finals, key=lambda f: statistics.median(f["took"]))
        return 100 * (statistics.median(finals[0]["took"]) / statistics.median(least["took"]) - 1), least["layout"]


def measure_all(groups, end):
    """Four layouts of each number of ranks in turn, until `end` or all are measured."""
    while any([g.measure_some(4, end) for g in groups]):
        pass


def finals(groups, end):
    """(ranks, regret in %, seconds of probing) of all; each may take its share of the time that is left."""
    found = []
    for at, g in enumerate(groups):
        over, fastest = g.regret(time.monotonic() + (end - time.monotonic()) / (len(groups) - at))
        found.append((g.ranks, over, g.probing))
        print(f"{g.ranks:5} choice {name(g.choice)}: regret {over:.1f} % (fastest: {fastest}); probing {g.probing:.1f} s", flush=True)
    return found


def main():
    global program
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--bitrain", default=program)
    p.add_argument("--preset", default="small")
    p.add_argument("--batch-tokens", default="2048")
    p.add_argument("--ranks", default="1,2,3,4")
    p.add_argument("--layouts", type=int, default=12, help="of each number of ranks, at most")
    p.add_argument("--minutes", type=float, default=14, help="for all of it: no layout begins after these, less what the finals will take")
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--store", default=None, help="where rates are kept (default: a new folder for each number of ranks, so that they are measured)")
    p.add_argument("--phases", action="store_true")
    p.add_argument("--json", default=None, help="rows as JSON to this file")
    a, more = p.parse_known_args()
    program = a.bitrain
    began = time.monotonic()
    end = began + 60 * a.minutes
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {a.preset}, {a.batch_tokens} tokens a step, {a.steps} steps each")
    print(f"{'ranks':>5} {'layout':<44} {'planned':>8} {'peak':>8} {'memory':>7} {'predicted':>10} "
          f"{'measured':>9} {'wall':>6} {'relative':>8} {'processor':>9} {'others':>7}")
    groups = [Group(a, int(r), a.store or os.path.join(tempfile.mkdtemp(), "plan.db"), more) for r in a.ranks.split(",")]
    measure_all(groups, end - sum(6 * g.run_s() for g in groups))
    rows = [r for g in groups for r in g.rows]
    choices = finals([g for g in groups if g.rows], end)
    if not rows:
        sys.exit("no layout could be measured (more --minutes)")
    print(f"{len(rows)} layouts in {(time.monotonic() - began) / 60:.1f} min, load {os.getloadavg()[0]:.1f}: predicted apart from measured: "
          f"by the clock {percent(abs(r['wall'] - 1) for r in rows)}; relative to the reference {percent(abs(r['relative'] - 1) for r in rows)}; "
          f"step by processor time {percent(abs(r['step'] - 1) for r in rows)}; memory {percent(abs(r['memory'] - 1) for r in rows)}; "
          f"regret {', '.join(f'{over:.1f} % on {ranks}' for ranks, over, _ in choices)}; "
          f"probing {', '.join(f'{probing:.1f}' for _, _, probing in choices)} s; {again} runs made again")
    if a.json:
        with open(a.json, "w") as f:
            json.dump([{k: v for k, v in r.items() if k != "what"} for r in rows], f, indent=1)


if __name__ == "__main__":
    main()
