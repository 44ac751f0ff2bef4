#!/usr/bin/env python3
"""ab_step.py: does a step take longer than with another build? Programs take turns under the same words.

  tests/bench/ab_step.py --programs old=OTHER/build/bitrain,new=build/bitrain [--rounds 6] [--cpu] [-- WORDS OF bitrain bench train]

For example the build of 962f34e, the last one before instruction sets and adapters came in, against this one. Each turn runs `bitrain
bench train` (nano, synthetic data, one rank of two threads, 30 steps unless WORDS say otherwise); printed are the median step of each turn, and
three ratios: of the medians of all turns, of neighbouring turns with its error, and of the fastest quarters. A quiet machine only; on one
whose host gives now more, now less, many short turns (--rounds 24 -- ... --steps 12) and the last ratio.
"""
import argparse
import json
import statistics
import subprocess
import sys

DEFAULT = ["--preset", "nano", "--data", "synth:chain", "--ranks", "1", "--threads", "2", "--steps", "30"]


def turn(program, words, field):
    cmd = [program, "bench", "train", *words, "--json"]
    out = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if out.returncode != 0:
        sys.exit(f"{' '.join(cmd)}: {out.stderr.strip() or out.returncode}")
    return json.loads(out.stdout.strip().splitlines()[-1])[field]


def quarter(times):
    """The fastest quarter: a neighbour on the machine only ever adds time, so these are the least disturbed."""
    return sorted(times)[:max(1, len(times) // 4)]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--programs", required=True)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--cpu", action="store_true", help="processor time of a step, not its wall time: beside other work on the machine")
    p.add_argument("words", nargs="*")
    a = p.parse_args()
    programs = [x.partition("=")[::2] for x in a.programs.split(",")]
    times = {name: [] for name, _ in programs}
    for i in range(a.rounds):
        for name, program in programs if i % 2 == 0 else programs[::-1]:        # A B B A
            times[name].append(turn(program, a.words or DEFAULT, "cpu_ms" if a.cpu else "step_ms"))
        print("  ".join(f"{name} {times[name][-1]:.2f} ms" for name, _ in programs), flush=True)
    first = programs[0][0]
    for name, _ in programs[1:]:
        pairs = [y / x - 1 for x, y in zip(times[first], times[name])]
        whole = statistics.median(times[name]) / statistics.median(times[first]) - 1
        error = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else float("nan")
        quiet = statistics.mean(quarter(times[name])) / statistics.mean(quarter(times[first])) - 1
        print(f"{name} against {first}: {100 * whole:+.2f} % by medians, {100 * statistics.mean(pairs):+.2f} % +- {100 * error:.2f} % by turns, "
              f"{100 * quiet:+.2f} % by the fastest quarter of the turns")


main()
