#!/usr/bin/env python3
"""packing_gain.py: learned tokens a second with documents packed into sequences, beside one document a sequence.

  tests/bench/packing_gain.py --bitrain build/bitrain [--data tests/examples/chat.jsonl] [--form messages] [--rounds 8] [-- WORDS OF bitrain train]

data.packing=pad and documents take turns (nano, sequences of 512, one rank of two threads, 12 steps a turn unless WORDS say otherwise).
What packing can gain is the ratio of learned tokens in a step, which is the data's; what it gains is the ratio of learned tokens a second.
Asked: at least 0.9 of it. A quiet machine only.
"""
import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT = ["--preset", "nano", "--seq-len", "512", "--batch-tokens", "4096", "--ranks", "1", "--threads", "2", "--steps", "12"]


def turn(a, how, folder):
    db = os.path.join(folder, "p.db")
    name = f"{how}{len(os.listdir(folder))}"
    cmd = [a.bitrain, "train", *(a.words or DEFAULT), "--tokenizer", "bytes", "--data", a.data, "--form", a.form, "--set", f"data.packing={how}", "--set", "data.val_frac=0",
           "--eval-every", "1000000", "--set", "ckpt.final=false", "--set", "ckpt.memory=off", "--set", "train.distributions=0", "--store", db, "--name", name, "--quiet"]
    run = subprocess.run(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(cmd)}: {run.stderr.strip()}")
    rows = sqlite3.connect(db).execute("SELECT step_ms, counted FROM steps WHERE run = ? ORDER BY step", (name,)).fetchall()[2:]
    os.unlink(db)
    return statistics.median(r[0] for r in rows), statistics.mean(r[1] for r in rows)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--data", default=os.path.join(HERE, "../examples/chat.jsonl"))
    p.add_argument("--form", default="messages")
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("words", nargs="*")
    a = p.parse_args()
    got = {"pad": [], "documents": []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(a.rounds):
            for how in list(got)[::1 - i % 2 * 2]:  # A B B A
                got[how].append(turn(a, how, folder))
                print(f"{how:10} {got[how][-1][0]:8.1f} ms a step, {got[how][-1][1]:8.1f} learned tokens", flush=True)
    counted = {how: statistics.median(x[1] for x in got[how]) for how in got}
    # a neighbour on the machine only ever adds time: the fastest quarter of the turns is the least disturbed
    ms = {how: statistics.mean(sorted(x[0] for x in got[how])[:max(1, a.rounds // 4)]) for how in got}
    fill, gain = counted["documents"] / counted["pad"], counted["documents"] / ms["documents"] / (counted["pad"] / ms["pad"])
    print(f"packing has {fill:.2f} times as many learned tokens in a step, and {gain:.2f} times as many a second: {gain / fill:.3f} of what it can")


main()
