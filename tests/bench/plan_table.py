#!/usr/bin/env python3
"""Prediction beside measurement: every legal layout of a model on 1 to 4 ranks here, as `bitrain plan` predicts it and as
`bitrain bench train` measures it, in one table.

    tests/bench/plan_table.py                       the table, 30 layouts and more (10 minutes on a quiet machine; --minutes ends it)
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
The reference itself stands in the table with a run of its own, so its ratio shows the noise. Memory: planned over the peak that the
kernel counts.
The choice's regret: `bitrain plan`'s first layout and the fastest two that were measured run again in turn, twice each; by how much the
choice's median is above the least. Probing: the wall time of `bitrain plan` with nothing known, trials included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BITRAIN = os.environ.get("BITRAIN", os.path.join(SRC, "build", "bitrain"))
QUIET = ["--ckpt-every", "0", "--set", "ckpt.minutes=0", "--set", "train.stats_every=0", "--set", "data.val_frac=0"]
PHASES = ["data_ms", "fwd_ms", "bwd_ms", "comm_exposed_ms", "wait_ms", "optim_ms", "monitor_ms", "other_ms"]
WORK = [p for p in PHASES if p != "wait_ms"]


def run(words):
    done = subprocess.run([BITRAIN] + words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return json.loads(done.stdout), done.stderr


def flags(layout):
    """The layout as settings. A pipeline gathers once a step anyway."""
    words = ["--pp", layout["pp"], "--tp", layout["tp"], "--zero", layout["zero"], "--dp-replicate", layout["dp_replicate"],
             "--dp-shard", layout["dp_shard"], "--micro-batch", layout["micro_batch"], "--recompute", layout["recompute"]]
    if layout["zero"] == 3 and layout["pp"] == 1:
        words += ["--set", "parallel.gather=" + layout["gather"]]
    return [str(w) for w in words]


def name(layout):
    dp = layout["dp_replicate"] * layout["dp_shard"]
    zero = f" zero {layout['zero']}{' step' if layout['zero'] == 3 and layout['gather'] == 'step' else ''}" if layout["zero"] else ""
    return f"pp {layout['pp']} dp {dp}{zero} tp {layout['tp']} micro {layout['micro_batch']}x{layout['accum']}"


def spread(layouts, most):
    """At most `most` of them: first one of every mesh and ZeRO stage, then other micro-batches."""
    seen, first, rest = set(), [], []
    for x in layouts:
        key = (x["pp"], x["tp"], x["dp_replicate"], x["dp_shard"], x["zero"], x["gather"])
        (rest if key in seen else first).append(x)
        seen.add(key)
    return (first + rest)[:most]


def measure(words, layout, steps):
    got, _ = run(["bench", "train", "--steps", str(steps), "--profile", "--json"] + words + flags(layout))
    return got


def work(processor):
    return sum(processor[p] for p in WORK)


def percent(offs):
    offs = sorted(offs)
    return f"{100 * statistics.median(offs):.1f} % median, {100 * offs[-1]:.1f} % worst"


def regret(base, choice, group, steps, seconds):
    """In %, of the planner's choice over the fastest; and the latter. Those in question run again in turn, within the seconds."""
    rows = sorted((g for g in group if g["layout"] != name(choice)), key=lambda g: g["normal_ms"])[:2]
    finals = [{"layout": name(choice), "what": choice, "took": []}] + [{"layout": g["layout"], "what": g["what"], "took": []} for g in rows]
    start = time.monotonic()
    for turn in range(2):
        if turn > 0 and 2 * (time.monotonic() - start) > seconds:
            break
        for f in finals:
            f["took"].append(measure(base, f["what"], steps)["step_ms"])
    least = min(finals, key=lambda f: statistics.median(f["took"]))
    return 100 * (statistics.median(finals[0]["took"]) / statistics.median(least["took"]) - 1), least["layout"]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--preset", default="small")
    p.add_argument("--batch-tokens", default="2048")
    p.add_argument("--ranks", default="1,2,3,4")
    p.add_argument("--layouts", type=int, default=12, help="of each number of ranks, at most")
    p.add_argument("--minutes", type=float, default=14.5, help="no further layout begins after its number of ranks has had its share of them")
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--store", default=None, help="where rates are kept (default: a new folder, so that they are measured)")
    p.add_argument("--phases", action="store_true")
    p.add_argument("--json", default=None, help="rows as JSON to this file")
    a, more = p.parse_known_args()
    store = a.store or os.path.join(tempfile.mkdtemp(), "plan.db")
    cores = os.cpu_count()
    rows, choices = [], []
    began = time.monotonic()
    ranks_all = [int(r) for r in a.ranks.split(",")]
    print(f"load {os.getloadavg()[0]:.1f} on {cores} cores; {a.preset}, {a.batch_tokens} tokens a step, {a.steps} steps each")
    print(f"{'ranks':>5} {'layout':<38} {'planned':>8} {'peak':>8} {'memory':>7} {'predicted':>10} "
          f"{'measured':>9} {'wall':>6} {'relative':>8} {'processor':>9}")
    for at, ranks in enumerate(ranks_all):
        # the larger jobs have more layouts
        share = began + 60 * a.minutes * sum(1 + min(r, 3) for r in ranks_all[:at + 1]) / sum(1 + min(r, 3) for r in ranks_all)
        base = ["--preset", a.preset, "--ranks", str(ranks), "--threads", "1", "--batch-tokens", a.batch_tokens]
        base += ["--data", "synth:chain"] + more
        if ranks == 3:
            base[base.index("--batch-tokens") + 1] = str(int(a.batch_tokens) // 2 * 3)
        asked = time.monotonic()
        plan, told = run(["plan", "--rows", "1000", "--json", "--store", store] + base + QUIET)
        probing = time.monotonic() - asked
        sys.stderr.write(told)
        layouts = spread(plan["layouts"], a.layouts)
        plain = [x for x in plan["layouts"] if x["pp"] == x["tp"] == 1 and x["zero"] == 0]
        reference = max(plain, key=lambda x: x["micro_batch"]) if plain else plan["layouts"][0]
        before = measure(base, reference, a.steps)
        group = []
        for x in layouts:
            # what the final between the choice and two others will take is kept free
            if time.monotonic() + 8 * (before["step_ms"] * (a.steps + 2) / 1000 + 1) > share:
                break
            try:
                got = measure(base, x, a.steps)
                after = measure(base, reference, a.steps)
            except RuntimeError as why:
                print(f"{ranks:5} {name(x):<38} failed: {why}")
                continue
            # the reference's stretch while this layout ran: measured over predicted
            stretch = statistics.mean([before["step_ms"], after["step_ms"]]) / reference["step_ms"]
            planned, was = work(x["processor"]), work(got["processor"])
            busy = statistics.mean([work(before["processor"]), work(after["processor"])]) / work(reference["processor"])
            row = {"ranks": ranks, "layout": name(x), "what": x, "planned_mib": x["all_bytes"] / 2**20, "peak_mib": got["rss_mib"],
                   "predicted_ms": x["step_ms"], "measured_ms": got["step_ms"], "reference": x is reference,
                   "wall": x["step_ms"] / got["step_ms"], "relative": x["step_ms"] / got["step_ms"] * stretch,
                   "normal_ms": got["step_ms"] / stretch, "processor": planned / was * busy, "processor_alone": planned / was,
                   "processor_ms": x["wait_ms"] + (x["step_ms"] - x["wait_ms"]) * was / planned / busy,
                   "phases": {p: [x[p], x["processor"][p], got["processor"][p], got[p]] for p in PHASES}}
            row["memory"] = row["planned_mib"] / row["peak_mib"]
            row["step"] = row["predicted_ms"] / row["processor_ms"]
            group.append(row)
            before = after
            print(f"{ranks:5} {row['layout']:<38} {row['planned_mib']:7.0f}M {row['peak_mib']:7.0f}M {row['memory']:7.3f} "
                  f"{row['predicted_ms']:8.0f}ms {row['measured_ms']:7.0f}ms {row['wall']:6.2f} {row['relative']:8.2f} "
                  f"{row['processor']:9.2f}", flush=True)
            if a.phases:
                for i, what in enumerate(["step predicted", "processor predicted", "processor measured", "step measured"]):
                    print(f"{'':12}{what:<20}" + " ".join(f"{p[:-3].replace('comm_exposed', 'comm')} {row['phases'][p][i]:.1f}" for p in PHASES))
        if group:
            over, fastest = regret(base, plan["layouts"][0], group, a.steps, max(0, share - time.monotonic()))
            choices.append((ranks, over, probing))
            print(f"{ranks:5} choice {name(plan['layouts'][0])}: regret {over:.1f} % (fastest: {fastest}); probing {probing:.1f} s", flush=True)
        rows += group
    print(f"{len(rows)} layouts in {(time.monotonic() - began) / 60:.1f} min, load {os.getloadavg()[0]:.1f}: predicted apart from measured: "
          f"by the clock {percent(abs(r['wall'] - 1) for r in rows)}; relative to the reference {percent(abs(r['relative'] - 1) for r in rows)}; "
          f"step by processor time {percent(abs(r['step'] - 1) for r in rows)}; memory {percent(abs(r['memory'] - 1) for r in rows)}; "
          f"regret {', '.join(f'{over:.1f} % on {ranks}' for ranks, over, _ in choices)}; "
          f"probing {', '.join(f'{probing:.1f}' for _, _, probing in choices)} s")
    if a.json:
        with open(a.json, "w") as f:
            json.dump([{k: v for k, v in r.items() if k != "what"} for r in rows], f, indent=1)


if __name__ == "__main__":
    main()
