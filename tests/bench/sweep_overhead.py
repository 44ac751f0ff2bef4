#!/usr/bin/env python3
"""sweep_overhead.py: what a run of `bitrain sweep` costs beside its own training, and where.

  tests/bench/sweep_overhead.py --bitrain build/bitrain [--runs 8] [--steps 20] [--ranks 1] [--parallel 1]

Of each run: the seconds from the end of the run before (at first: of the command) until its record begins (the sweep looks, forks, the
program reads its settings and the data), until its first step begins (mpirun, ranks, memory), its steps, from its last step until its
record ends (validation, checkpoint), and of the same run begun by hand (`bitrain train`) the whole. Overhead is all but the steps.
Medians over the runs. With --parallel above 1 only the whole is told: the time of the sweep by its runs.
"""
import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

FILE = """name: s
parallel: {parallel}
settings:
  model: {{preset: nano, layers: 1, d_model: 32, heads: 2, kv_heads: 2, d_ff: 64, seq_len: 32}}
  train: {{steps: {steps}, batch_tokens: 64, eval_tokens: 64, eval_every: 1000000}}
  data.path: synth:chain
  launch: {{ranks: {ranks}, threads: 1}}
space:
  optim.lr: log 1e-4 .. 1e-2 in {runs}
"""
ROWS = """SELECT started_s, ended_s, (SELECT started_s + time_s - step_ms / 1e3 FROM steps s WHERE s.run = r.run AND step = 0),
    (SELECT started_s + max(time_s) FROM steps s WHERE s.run = r.run), (SELECT sum(step_ms) / 1e3 FROM steps s WHERE s.run = r.run)
    FROM runs r ORDER BY started_s"""


def by_hand(a, folder, i):
    words = ["train", "--preset", "nano", "--data", "synth:chain", "--ranks", str(a.ranks), "--threads", "1", "--batch-tokens", "64", "--seq-len", "32",
             "--steps", str(a.steps), "--name", f"hand-{i}", "--store", os.path.join(folder, "hand.db"), "--quiet"]
    for setting in ("layers=1", "d_model=32", "heads=2", "kv_heads=2", "d_ff=64"):
        words += ["--set", "model." + setting]
    words += ["--set", "train.eval_tokens=64", "--set", "train.eval_every=1000000"]
    begin = time.time()
    subprocess.run([a.bitrain] + words, check=True, stdout=subprocess.DEVNULL)
    return time.time() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--runs", type=int, default=8)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--parallel", type=int, default=1)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db, path = os.path.join(folder, "m.db"), os.path.join(folder, "s.yaml")
        with open(path, "w") as f:
            f.write(FILE.format(**vars(a)))
        begin = time.time()
        run = subprocess.run([a.bitrain, "sweep", path, "--store", db, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        whole = time.time() - begin
        if run.returncode:
            sys.exit(f"the sweep failed: {run.stderr.decode()}")
        store = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
        rows = store.execute(ROWS).fetchall()
        store.close()
        if len(rows) != a.runs:
            sys.exit(f"{len(rows)} runs of {a.runs} are recorded")
        steps = sum(row[4] for row in rows)
        print(f"{a.runs} runs of {a.steps} steps, {a.ranks} rank{'s' if a.ranks > 1 else ''}, {a.parallel} at a time; load {os.getloadavg()[0]:.1f}")
        print(f"whole sweep {whole:.2f} s, of which steps {steps:.2f} s; overhead a run {(whole * a.parallel - steps) / a.runs:.2f} s (wanted: 2)")
        if a.parallel == 1:
            parts = {"begins": [], "first step": [], "steps": [], "ends": [], "own": []}
            last = begin
            for started, ended, first, newest, _ in rows:
                parts["begins"].append(started - last)
                parts["first step"].append(first - started)
                parts["steps"].append(newest - first)
                parts["ends"].append(ended - newest)
                last = ended
            parts["own"] = [by_hand(a, folder, i) for i in range(3)]
            middle = {key: statistics.median(values) for key, values in parts.items()}
            print(f"until its record begins {middle['begins']:.3f} s, until its first step {middle['first step']:.3f}, steps {middle['steps']:.3f}, "
                  f"from the last step to its end {middle['ends']:.3f}; after the last run {begin + whole - last:.3f}")
            print(f"the same run by hand {middle['own']:.2f} s; a run of the sweep {whole / a.runs:.2f} s: the sweep itself costs {whole / a.runs - middle['own']:.2f} s")


if __name__ == "__main__":
    main()
