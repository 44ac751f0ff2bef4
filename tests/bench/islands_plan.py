#!/usr/bin/env python3
"""Simulated islands beside real ones: two islands of one rank and a hub on this machine, over loopback.

    tests/bench/islands_plan.py [--bitrain build/bitrain] [--steps 60] [--preset nano] [--batch-tokens 1024] [--link 10Gbit,30us]
                                [--modes 0,1,2,3] [words for plan and train]

A line a mode: tokens/s of both islands as `bitrain plan --simulate 1x1 --islands 2` says, as they were (last 3/4 of the steps, by the
records' clock), the ratio, and in the same way for one island without a hub, which shows how much of it is the step's own prediction. The
last line has how far the ratios are off, median and worst, by themselves and relative to one island's. A machine that does other work
lengthens steps: then the relative ones alone say something, and on two cores that have less than two free not even these.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
program = os.environ.get("BITRAIN", os.path.join(SRC, "build", "bitrain"))
# rounds of ten steps from the first step on, so that what is measured of a run is what all of it is like
DILOCO = ["--mode", "diloco", "--inner", "10", "--set", "islands.ramp=0", "--set", "islands.warmup=0"]
MODES = [("sync", []), ("ps, 4 steps ahead at most", ["--mode", "ps", "--staleness", "4"]),
         ("diloco, 10 steps", DILOCO), ("diloco, 10 steps, int8", DILOCO + ["--codec", "int8"])]
QUIET = ["--eval-every", "1000000", "--set", "train.stats_every=0", "--set", "ckpt.minutes=0", "--set", "ckpt.final=false"]


def predicted(a, words, mode, store):
    done = subprocess.run([program, "plan", "--simulate", "1x1", "--link", a.link, "--islands", "2", "--shared-cores", str(os.cpu_count()), "--json", "--store", store] + words + mode,
                          capture_output=True, text=True, check=True)
    got = json.loads(done.stdout)["islands"]["sizes"]
    return {x["n"]: x["tokens_per_s"] for x in got}, got[-1]["held_frac"]


def rate(folder, name, batch):
    """Tokens a second of a recorded run, by the clock of its last 3/4 of the steps."""
    out = subprocess.run([program, "query", "--csv", "--store", f"{folder}/{name}.db", "SELECT step, time_s FROM steps ORDER BY step"],
                         capture_output=True, text=True, check=True).stdout.split()
    rows = [[float(x) for x in line.split(",")] for line in out[1:]]
    rows = rows[len(rows) // 4:]
    return batch * (rows[-1][0] - rows[0][0]) / (rows[-1][1] - rows[0][1])


def train(a, words, name, folder, more):
    return subprocess.Popen([program, "train", "--ranks", "1", "--steps", str(a.steps), "--seed", "1", "--name", name, "--store", f"{folder}/{name}.db",
                             "--out", f"{folder}/out-{name}", "--quiet"] + words + QUIET + more, stdout=subprocess.DEVNULL, cwd=folder)


def measured(a, words, mode):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "hub", "--keys", "keys", "a", "b"], cwd=folder, check=True, capture_output=True)
        with open(f"{folder}/address", "w") as address:
            hub = subprocess.Popen([program, "hub", "--listen", "127.0.0.1:0", "--keys", "keys", "--islands", "2", "--store", "hub.db", "--out", "hub-out",
                                    "--name", "hub", "--quiet"], cwd=folder, stdout=address, stderr=subprocess.DEVNULL)
        while not os.path.getsize(f"{folder}/address") and hub.poll() is None:
            time.sleep(0.1)
        where = open(f"{folder}/address").read().strip()
        both = [train(a, words, f"isl-{i}", folder, ["--hub", where, "--keys", f"keys/{i}.key"] + mode) for i in "ab"]
        for t in both:
            if t.wait() != 0:
                raise RuntimeError("an island failed")
        hub.wait()
        return sum(rate(folder, f"isl-{i}", a.batch_tokens) for i in "ab")


def alone(a, words):
    with tempfile.TemporaryDirectory() as folder:
        train(a, words, "alone", folder, []).wait()
        return rate(folder, "alone", a.batch_tokens)


def percent(offs):
    return f"{100 * statistics.median(offs):.1f} % median, {100 * max(offs):.1f} % worst"


def main():
    global program
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--bitrain", default=program)
    p.add_argument("--modes", default=",".join(str(i) for i in range(len(MODES))), help="numbers of those above")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--preset", default="nano")
    p.add_argument("--batch-tokens", type=int, default=1024)
    p.add_argument("--link", default="10Gbit,30us")
    a, more = p.parse_known_args()
    program = os.path.abspath(a.bitrain)
    ratios, shares = [], []
    words = ["--preset", a.preset, "--batch-tokens", str(a.batch_tokens), "--threads", "1", "--tokenizer", "bytes"] + more
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {a.preset}, {a.batch_tokens} tokens a step, {a.steps} steps, link {a.link}")
    with tempfile.TemporaryDirectory() as kept:
        store = f"{kept}/plan.db"
        one = None
        for name, mode in [MODES[int(i)] for i in a.modes.split(",")]:
            simulated, held = predicted(a, words, mode, store)
            if one is None:
                one = alone(a, words)
                print(f"{'one island, no hub':<28} simulated {simulated[1]:9.0f} tokens/s (with a hub), measured {one:9.0f}")
            real = measured(a, words, mode)
            print(f"{name:<28} simulated {simulated[2]:9.0f} tokens/s, held up {100 * held:4.1f} %; measured {real:9.0f}; ratio {simulated[2] / real:.2f}; "
                  f"of one island's: simulated {simulated[2] / simulated[1]:.2f}, measured {real / one:.2f}", flush=True)
            ratios.append(simulated[2] / real)
            shares.append(simulated[2] / simulated[1] / (real / one))
    print(f"simulated apart from measured: tokens/s {percent([abs(r - 1) for r in ratios])}; relative to one island "
          f"{percent([abs(r - 1) for r in shares])}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
