#!/usr/bin/env python3
"""recovery.py: from the kill of a rank to the first step, the first step that is new, and the steps done again.

  tests/bench/recovery.py --bitrain build/bitrain [--kills 20] [--rounds 1] [--json FILE] [-- WORDS OF bitrain train]

A run of 2 ranks with one thread each (1.0 M parameters, a checkpoint every 10 steps) trains on; whenever it has done 12 to 22 new
steps, SIGKILL ends one of its ranks, drawn by chance (--seed); with --hot-spare once a spare waits as well. The times come from the
records in the database: a step counts when it is done. Several programs, separated by commas, take turns (--rounds), so that a change can be held against the program before it
under the same load; words after a + are of that program alone: now=build/bitrain,spare=build/bitrain+--hot-spare.
--once: three kills of a smaller model, to see that the script works.
"""
import argparse
import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

LARGE = {"model.layers": 6, "model.d_model": 128, "model.heads": 2, "model.kv_heads": 2, "model.d_ff": 256, "model.seq_len": 64}
SMALL = {**LARGE, "model.layers": 2, "model.d_model": 64}


def command(a, program, folder, words):
    shape = [w for key, value in (SMALL if a.once else LARGE).items() for w in ("--set", f"{key}={value}")]
    return [program, "train", "--preset", "nano", *shape, "--batch-tokens", "1024", "--data", "synth:chain", "--set", "train.eval_tokens=256",
            "--eval-every", "100000000", "--threads", "1", "--ranks", "2", "--steps", "10000000", "--ckpt-every", "10", "--set", "ckpt.final=false",
            "--name", "r", "--store", os.path.join(folder, "m.db"), "--out", os.path.join(folder, "out"), *words]


def ask(db, sql, *values):
    """rows of a query; none while the database is not there yet"""
    try:
        store = sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=1)
        try:
            return store.execute(sql, values).fetchall()
        finally:
            store.close()
    except sqlite3.Error:
        return []


STEPS = "SELECT a.attempt, s.step, s.wall_us / 1e6, s.step_us / 1e3 FROM step s JOIN attempt a ON a.id = s.aid"


def wait_for(run, db, newest, more, said, limit_s=120):
    """until `more` steps after step `newest` are recorded"""
    until = time.time() + limit_s
    while time.time() < until:
        rows = ask(db, "SELECT count(*) FROM steps WHERE step > ?", newest)
        if rows and rows[0][0] >= more:
            return
        if run.poll() is not None:
            with open(said, encoding="utf-8") as err:
                sys.exit(f"the run ended by itself: {err.read()[-800:]}")
        time.sleep(0.02)
    sys.exit(f"no {more} steps after step {newest} within {limit_s} s")


def wait_for_spare(db, nth):
    """until the n-th spare of the run waits (60 s: a machine without room for one is measured as it is)"""
    until = time.time() + 60
    sql = "SELECT count(*) FROM events WHERE kind = 'spare' AND title LIKE 'a hot spare waits%'"
    while time.time() < until and (ask(db, sql) or [[0]])[0][0] < nth:
        time.sleep(0.02)


def kills(a, program, words, chance):
    """one run, --kills kills: a dictionary for each"""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        db = os.path.join(folder, "m.db")
        said = os.path.join(folder, "err")
        with open(said, "wb") as err:
            run = subprocess.Popen(command(a, program, folder, words), stdout=subprocess.DEVNULL, stderr=err)
        newest, moments = -1, []
        for _ in range(a.kills):
            wait_for(run, db, newest, chance.randint(12, 22), said)
            if "--hot-spare" in words:
                wait_for_spare(db, len(moments) + 1)
            pids = ask(db, "SELECT rank, pid FROM ranks WHERE attempt = (SELECT max(attempt) FROM ranks) ORDER BY rank")
            rank, pid = chance.choice(pids)
            moments.append((time.time(), rank))
            os.kill(pid, signal.SIGKILL)
            while ask(db, "SELECT count(*) FROM attempt")[0][0] <= len(moments) and run.poll() is None:
                time.sleep(0.02)
            newest = ask(db, STEPS + " WHERE a.attempt < ? ORDER BY s.step DESC LIMIT 1", len(moments))[0][1]
        wait_for(run, db, newest, 5, said)
        run.send_signal(signal.SIGTERM)
        run.wait()
        attempts = dict(ask(db, "SELECT attempt, from_step FROM attempt"))
        rows = ask(db, STEPS + " ORDER BY a.attempt, s.step")
        for i, (when, rank) in enumerate(moments):
            begun = [r for r in rows if r[0] == i + 1]
            newest = max(r[1] for r in rows if r[0] <= i)
            new = [r for r in begun if r[1] > newest]
            found.append({"rank": rank, "first_ms": 1e3 * (begun[0][2] - when), "new_ms": 1e3 * (new[0][2] - when), "redone": newest + 1 - attempts[i + 1],
                          "step_ms": statistics.median(r[3] for r in rows if r[0] == i)})
    return found


def table(results):
    lines = ["| program | kills | kill to first step, ms | kill to first new step, ms | steps redone | step, ms |", "|---|---|---|---|---|---|"]
    for name, found in results.items():
        def spread(key, form=".0f"):
            values = [f[key] for f in found]
            return f"{min(values):{form}} / {statistics.median(values):{form}} / {max(values):{form}}"
        lines.append(f"| {name} | {len(found)} | {spread('first_ms')} | {spread('new_ms')} | {spread('redone', 'g')} | {statistics.median(f['step_ms'] for f in found):.0f} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain", help="programs, separated by commas, each with a name before it if you like: before=/tmp/bitrain,now=build/bitrain")
    p.add_argument("--kills", type=int, default=20)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--once", action="store_true", help="a small trial")
    p.add_argument("--json", help="file that receives every kill")
    p.add_argument("words", nargs="*", help="further words of bitrain train")
    a = p.parse_args()
    if a.once:
        a.kills = 3
    chance, results = random.Random(a.seed), {}
    for _ in range(a.rounds):
        for entry in a.bitrain.split(","):
            name, _, program = entry.rpartition("=")
            program, *more = program.split("+")
            results.setdefault(name or entry, []).extend(kills(a, program, [*a.words, *more], chance))
    print(table(results))
    print(f"\nmin / median / max; {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} of the last minute")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()
