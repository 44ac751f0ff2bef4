#!/usr/bin/env python3
"""convert_rate.py - `bitrain convert` of a model of the size of BitNet b1.58 2B4T (random weights): rate and memory.

    tests/bench/convert_rate.py build/bitrain [--layers 30] [--folder /tmp/convert_rate] [--threads N] [--rounds 2]

Rate: bytes of the source and of the result, a second, with the result synced to the disk. Memory: the largest resident set, beside the
largest tensor of the model as it is stored. Processor seconds are those of all threads: on a machine that does other things they tell more.
Needs about three times the model's 4.8 GB of disk (fewer --layers need less), removed at the end.
"""
import argparse, json, os, shutil, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))


def size_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files)


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.path.exists(path) and os.unlink(path)


def run(command):
    """wall seconds, processor seconds and largest resident bytes of a command"""
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: exit code {child.returncode}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bitrain")
    p.add_argument("--layers", type=int, default=30)
    p.add_argument("--folder", default="/tmp/convert_rate")
    p.add_argument("--threads", default="0")
    p.add_argument("--rounds", type=int, default=2)
    a = p.parse_args()
    os.makedirs(a.folder)
    source, gguf = os.path.join(a.folder, "source"), os.path.join(a.folder, "model.gguf")
    try:
        subprocess.run([sys.executable, os.path.join(HERE, "random_bitnet.py"), source, "--shape", "2b4t", "--layers", str(a.layers)], check=True)
        with open(os.path.join(source, "model.safetensors"), "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        sizes = [t["data_offsets"][1] - t["data_offsets"][0] for n, t in header.items() if n != "__metadata__"]
        print(f"largest tensor {max(sizes) / 1e6:.0f} MB as stored (bf16)\n")
        print("| source | result | type | read + written MB | s | MB/s of the source | MB/s of both | processor s | both a processor s | resident MB |\n|---|---|---|---|---|---|---|---|---|---|")
        rows = [(source, "gguf", "tq2_0", gguf), (source, "gguf", "f16", gguf + "-f16"), (source, "hf", "packed", os.path.join(a.folder, "packed")),
                (source, "hf", "bf16", os.path.join(a.folder, "bf16")), (gguf, "hf", "packed", os.path.join(a.folder, "again"))]
        for what, to, type_, dest in rows:
            best = None
            for _ in range(a.rounds):
                remove(dest)
                seconds, busy, resident = run([a.bitrain, "convert", what, "--to", to, "--type", type_, "-o", dest, "--threads", a.threads, "--json"])
                if not best or seconds < best[0]:
                    best = seconds, busy, resident
            read, wrote = size_of(what), size_of(dest)
            print(f"| {os.path.basename(what)} | {to} | {type_} | {read / 1e6:.0f} + {wrote / 1e6:.0f} | {best[0]:.1f} | {read / best[0] / 1e6:.0f} | "
                  f"{(read + wrote) / best[0] / 1e6:.0f} | {best[1]:.1f} | {(read + wrote) / best[1] / 1e6:.0f} | {best[2] / 1e6:.0f} |", flush=True)
            if dest != gguf:
                remove(dest)
    finally:
        shutil.rmtree(a.folder)


main()
