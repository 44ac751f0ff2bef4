"""Golden values of synth:chain and synth:random, from the data function of bench/peer_torch.py (copied below).
Run: python3 synth_golden.py > synth_golden.h"""
import numpy as np


def splitmix64(i):
    with np.errstate(over="ignore"):
        z = i.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def tokens(kind, n, V, seed):
    r = splitmix64(np.arange(seed, seed + n, dtype=np.uint64))
    if kind == "random":
        return (r % np.uint64(V)).astype(np.int64)
    t, e = np.zeros(n, dtype=np.int64), (r & np.uint64(3)).astype(np.int64)
    x = 0
    for i in range(n - 1):
        x = (5 * x + 17 + int(e[i])) % V
        t[i + 1] = x
    return t


print("/* made by synth_golden.py: kind, V, seed, first id, 12 ids from there */\n/* clang-format off */")
print("static const struct { const char *name; int V; uint64_t seed, first; int ids[12]; } golden[] = {")
for kind in ("chain", "random"):
    for V, seed in ((256, 1), (8192, 1), (32000, 12345), (1048576, 7), (3, 0)):
        t = tokens(kind, 100100, V, seed)
        for first in (0, 1, 15, 16, 17, 257, 65535, 99999):
            row = '    {"synth:%s", %d, %d, %d, {%s}},' % (kind, V, seed, first, ", ".join(str(v) for v in t[first:first + 12]))
            print(row if len(row) <= 120 else row.replace(", {", ",\n     {"))
print("};\n/* clang-format on */")
