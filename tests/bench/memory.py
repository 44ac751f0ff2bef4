#!/usr/bin/env python3
"""memory.py: memory of a rank by layout: what --dry-run plans beside what a run takes; prints the table of tests/bench/results/layouts.md.

  tests/bench/memory.py --bitrain build/bitrain [--preset base] [--ranks 4] [--seq-len 1024] [--tp] [--pp] [--only WORDS]

Every layout trains three steps of one sequence a rank. Planned: the mean over the ranks of `train --dry-run --json`. Measured:
the mean over the ranks of their largest resident memory, what they share counted once, as `bench train --json` reports it. Bytes: sent a step and rank.
"""
import argparse
import json
import subprocess
import sys

LAYOUTS = ["--zero 0", "--zero 1", "--zero 2", "--zero 3", "--zero 3 --recompute selective", "--zero 3 --recompute full"]
WITH_TP = ["--dp-shard {half} --tp 2 --zero 3", "--dp-shard {half} --tp 2 --zero 3 --recompute full"]
WITH_PP = ["--pp {ranks} --micro-batch 1", "--pp {ranks} --micro-batch 1 --virtual-stages 2", "--pp {half} --micro-batch 1 --virtual-stages 2"]


def run(a, command, layout):
    words = [a.bitrain, *command, "--preset", a.preset, "--ranks", str(a.ranks), "--threads", "1", "--data", "synth:chain",
             "--set", "train.stats_every=1", *layout.split()]           # three steps touch the code history too
    sequences = a.ranks // 2 if "--tp" in layout else a.ranks
    if a.seq_len:
        words += ["--seq-len", str(a.seq_len)]
    words += ["--batch-tokens", str(sequences * (a.seq_len or 1024)), "--json"]
    out = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if out.returncode != 0:
        sys.exit(f"{' '.join(words)}: {out.stderr.strip() or out.returncode}")
    return json.loads(out.stdout.strip().splitlines()[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--preset", default="base")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--seq-len", type=int, default=1024)
    p.add_argument("--only", default="", help="layouts that contain these words")
    p.add_argument("--tp", action="store_true", help="tensor-parallel layouts too")
    p.add_argument("--pp", action="store_true", help="pipelines too, with one chunk of layers a stage and with two")
    a = p.parse_args()
    worst = 0
    print(f"| `{a.preset}`, {a.ranks} ranks | planned, MiB | measured, MiB | off | sent a step and rank, MiB |\n|---|---|---|---|---|")
    more = (WITH_TP if a.tp else []) + (WITH_PP if a.pp else [])
    for layout in LAYOUTS + [x.format(half=a.ranks // 2, ranks=a.ranks) for x in more]:
        if a.only not in layout:
            continue
        # a benchmark writes no checkpoint, and keeps no states in memory
        plan = run(a, ["train", "--dry-run", "--set", "ckpt.async=false", "--set", "ckpt.memory=off"], layout)["ranks"]
        got = run(a, ["bench", "train", "--steps", "1"], layout)
        planned = sum(r["bytes"] for r in plan) / len(plan) / 2**20
        measured = got["memory_mib"] / a.ranks
        worst = max(worst, abs(measured / planned - 1))
        print(f"| `{layout}` | {planned:.0f} | {measured:.0f} | {100 * (measured / planned - 1):+.1f} % | {got['bytes_wire'] / 2**20:.0f} |", flush=True)
    if worst > 0.05:
        sys.exit(f"a plan is off by {100 * worst:.1f} %")


if __name__ == "__main__":
    main()
