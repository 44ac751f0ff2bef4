#!/usr/bin/env python3
"""first_step.py: seconds from the command `bitrain train` to its first step, begun and recorded.

  tests/bench/first_step.py --bitrain build/bitrain [--presets nano,base] [--ranks 1,2] [--rounds 3]

Recorded: row 0 of `steps` can be read in the database. Begun: that less the step's own duration. Medians. A quiet machine only.
"""
import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time


def once(a, preset, ranks, folder):
    db = os.path.join(folder, "bitrain.db")
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    cmd = [a.bitrain, "train", "--preset", preset, "--ranks", ranks, "--store", db, "--name", "first", "--steps", "2", "--set", "ckpt.final=false", "--quiet"]
    start = time.time()
    run = subprocess.Popen(cmd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    row = None
    while row is None and run.poll() is None:
        time.sleep(0.005)
        try:
            store = sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=0.1)
            row = store.execute("SELECT step_ms FROM steps WHERE step = 0").fetchone()
            store.close()
        except sqlite3.Error:
            pass                                # not there yet
    recorded = time.time() - start
    if row is not None:
        run.terminate()
    words = run.communicate()[1].decode()
    if row is None:
        sys.exit(f"{' '.join(cmd)}: no step was recorded: {words}")
    return recorded - row[0] / 1e3, recorded


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--presets", default="nano,base")
    p.add_argument("--ranks", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    print("| preset | ranks | first step begins, s | recorded, s |\n|---|---|---|---|")
    for preset in a.presets.split(","):
        for ranks in a.ranks.split(","):
            got = []
            for _ in range(a.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    got.append(once(a, preset, ranks, folder))
            begins, recorded = (statistics.median(x) for x in zip(*got))
            print(f"| {preset} | {ranks} | {begins:.2f} | {recorded:.2f} |", flush=True)


if __name__ == "__main__":
    main()
