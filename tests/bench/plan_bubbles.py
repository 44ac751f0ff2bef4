#!/usr/bin/env python3
"""What filling and draining the pipeline costs where the planner's own choice is a pipeline: presets x clusters, by `bitrain plan --simulate`.

    tests/bench/plan_bubbles.py                       a table as Markdown, half a minute a preset
    tests/bench/plan_bubbles.py --presets base --more '8x1;1Gbit,50us;8GiB;16'      further clusters: HOSTSxRANKS;link;memory;sequences

A row is the fastest layout that fits. `fill` is the textbook's (P-1)/(v m+P-1) of it, v chunks of layers a stage (virtual stages,
arXiv:2104.04473, section 2.2); `waiting` all that stages wait for each other, messages and uneven stages included (bubble_frac); `one chunk`
by how much longer the fastest layout without virtual stages takes. `without` is the fastest layout without a pipeline that fits; "none": memory
forces the pipeline.
"""

import argparse
import json
import os
import subprocess
import tempfile

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BITRAIN = os.environ.get("BITRAIN", os.path.join(SRC, "build", "bitrain"))
# hosts, link, memory of a host, sequences a step (0: the planner's): fast and slow networks, much and little memory, large and small batches
CLUSTERS = ["512x8;100Gbit,3us;;0", "64x8;100Gbit,3us;64GiB;0", "16x4;1Gbit,50us;16GiB;0", "16x4;1Gbit,50us;16GiB;64",
            "8x4;1Gbit,50us;16GiB;32", "8x1;1Gbit,50us;16GiB;32", "8x1;1Gbit,50us;8GiB;8", "16x1;100Mbit,200us;8GiB;16", "4x1;10Gbit,20us;8GiB;4"]


def simulate(preset, cluster, store, more=()):
    hosts, link, memory, sequences = cluster.split(";")
    words = [BITRAIN, "plan", "--preset", preset, "--simulate", hosts, "--link", link, "--json", "--store", store] + list(more)
    if memory:
        words += ["--memory", memory]
    if sequences != "0":
        length = 4096 if preset.startswith("bitnet") else 1024
        words += ["--seq-len", str(length), "--batch-tokens", str(int(sequences) * length)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1]
    full = json.loads(done.stdout)["sizes"][-1]
    return full.get("layout"), full.get("refused", "")


def row(preset, cluster, store):
    x, why = simulate(preset, cluster, store)
    if not x:
        return f"| {preset} | {cluster.replace(';', ', ')} | none: {why[:70]} | | | | | |"
    p, m, v = x["pp"], x["accum"], x["virtual_stages"]
    fill = (p - 1) / (v * m + p - 1)
    without, one = "it has none", "it has one"
    if p > 1:
        y, _ = simulate(preset, cluster, store, ["--pp", "1"])
        without = f"{100 * (y['step_ms'] / x['step_ms'] - 1):+.0f} %" if y else "none"
    if v > 1:
        y, _ = simulate(preset, cluster, store, ["--virtual-stages", "1"])
        one = f"{100 * (y['step_ms'] / x['step_ms'] - 1):+.1f} %"
    dp, chunks = x["dp_replicate"] * x["dp_shard"], f" ({v} virtual)" if v > 1 else ""
    return (f"| {preset} | {cluster.replace(';', ', ')} | pp {p}{chunks} x dp {dp} (ZeRO-{x['zero']}) x tp {x['tp']}, {m} x {x['micro_batch']} | {100 * fill:.1f} % | "
            f"{100 * x['bubble_frac']:.1f} % | {100 * x['comm_exposed_ms'] / x['step_ms']:.0f} % | {one} | {without} |")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--presets", default="small,base,bitnet-2b4t")
    p.add_argument("--more", action="append", default=[])
    p.add_argument("--store", default=None)
    a = p.parse_args()
    store = a.store or os.path.join(tempfile.mkdtemp(), "plan.db")
    print("| preset | cluster, link, memory, sequences | first layout | fill | waiting | exchange | one chunk | without a pipeline |")
    print("|---|---|---|---|---|---|---|---|")
    for preset in a.presets.split(","):
        for cluster in CLUSTERS + a.more:
            print(row(preset, cluster, store), flush=True)


if __name__ == "__main__":
    main()
