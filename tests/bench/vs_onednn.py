#!/usr/bin/env python3
"""vs_onednn.py: the products and attention of `bitrain bench kernels` beside the same work in PyTorch, whose CPU products are oneDNN's
(int8, bf16) and MKL's (fp32), one thread, interleaved; prints a table.

  tests/bench/vs_onednn.py --bitrain build/bitrain --python python3 [--isa auto] [--rounds 2]

Theirs is the bare product with operands of its own type already in place: no unpacking of ternary codes, no scales, int32 or bf16 out.
Ours is the whole slot: it unpacks, quantises gradients, scales, and adds in fp32. Best of all rounds each. Run it on a quiet machine.
"""
import argparse
import json
import os
import subprocess
import sys

PEER = r"""
import json, sys, time, torch
import torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(1)
KINDS = {"bf16": torch.bfloat16, "fp32": torch.float32}

def product(slot, M, N, K):
    name, _, kind = slot.rpartition(" ") if slot.split(" ")[-1] in KINDS else (slot, "", "int8")
    def make(*shape):
        return torch.randint(-1, 2, shape, dtype=torch.int8) if kind == "int8" else torch.randn(*shape, dtype=torch.float32).to(KINDS[kind])
    if name == "tern_fwd": a, b = make(M, K), make(N, K).t()
    elif name in ("tern_dx", "tern_dx8", "gemm a b"): a, b = (make(M, K), make(K, N)) if name == "gemm a b" else (make(M, N), make(N, K))
    elif name in ("tern_dw", "tern_dw8"): a, b = make(M, N).t(), make(M, K)
    elif name == "gemm a b^T": a, b = make(M, K), make(N, K).t()
    else: a, b = make(K, M).t(), make(K, N)
    if kind == "int8": return 2.0 * M * N * K, lambda: torch._int_mm(a, b)
    return 2.0 * M * N * K, lambda: a @ b

def attention(slot, T, H, D):
    name, _, kind = slot.rpartition(" ")
    q, k, v = (torch.randn(4096 // T, H, T, D).to(KINDS[kind]).requires_grad_(name == "attn_bwd") for _ in range(3))
    scores = 4096.0 * (T + 1) / 2 * H
    run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if name == "attn_fwd": return 4 * scores * D, run
    y = run()
    g = torch.randn_like(y)
    return 10 * scores * D, lambda: torch.autograd.grad(y, (q, k, v), g, retain_graph=True)

rows = []
for slot, size in json.loads(sys.argv[1]):
    a, b, c = map(int, size.split("x"))
    try:
        ops, run = (attention if slot.startswith("attn") else product)(slot, a, b, c)
        run()
        best, spent = 1e9, 0
        while spent < float(sys.argv[2]):
            t = time.perf_counter()
            run()
            t = time.perf_counter() - t
            best, spent = min(best, t), spent + t
        rows.append([slot, size, ops / best / 1e9])
    except RuntimeError as e:
        rows.append([slot, size, None])
print(json.dumps({"torch": torch.__version__, "rows": rows}))
"""


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--python", default=sys.executable, help="a Python that has torch")
    p.add_argument("--isa", default="auto")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=0.3, help="a case and round")
    a = p.parse_args()
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    ours, theirs, order, frac, version = {}, {}, [], {}, ""
    for _ in range(a.rounds):
        for slot in ("tern_", "gemm", "attn"):
            out = subprocess.run([a.bitrain, "bench", "kernels", "--isa", a.isa, "--slot", slot, "--threads", "1", "--json"], env=env,
                                 capture_output=True, text=True, check=True).stdout
            rows = [r for r in json.loads(out)["rows"] if not r["slot"].startswith(("peak", "tern_codes", "tern_pack", "tern_gemv"))]
            for r in rows:
                key = (r["slot"], r["size"])
                if key not in ours:
                    order.append(key)
                ours[key] = max(ours.get(key, 0), r["best"])
                frac[key] = max(frac.get(key, 0), r["roofline_frac"])
            peer = json.loads(subprocess.run([a.python, "-c", PEER, json.dumps([(r["slot"], r["size"]) for r in rows]), str(a.seconds)], env=env,
                                             capture_output=True, text=True, check=True).stdout)
            version = peer["torch"]
            for slot_, size, best in peer["rows"]:
                theirs[slot_, size] = max(theirs.get((slot_, size), 0), best or 0)
    print(f"best of {a.rounds} rounds, one thread, GOP/s; PyTorch {version}")
    print(f"{'slot':<20}{'size':<18}{'bitrain':>9}{'of peak':>9}{'PyTorch':>9}{'ratio':>7}")
    for key in order:
        other = theirs.get(key, 0)
        print(f"{key[0]:<20}{key[1]:<18}{ours[key]:>9.0f}{100 * frac[key]:>8.0f}%{other:>9.0f}{ours[key] / other if other else float('nan'):>7.2f}")


if __name__ == "__main__":
    main()
