#!/usr/bin/env python3
"""corpus/model_file/gguf.*: seeds of fuzz_model_file.c: blocks of Q2_0 (64 and 128 elements) and Q1_0, floats that are ternary, and keys of Gemma.
Run: python3 make_model_seeds.py   (numpy)"""
import os, struct
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus/model_file")
rng = np.random.default_rng(11)
SMALL = dict(V=4, C=16, F=16, H=2, D=8)
KINDS = { # type and bytes of a block of elements
    "f32": (0, 1, 4), "f16": (1, 1, 2), "q2_0": (42, 64, 18), "q2_0_128": (42, 128, 34), "q1_0": (41, 128, 18),
}

def matrix(kind, rows, cols):
    number, block, size = KINDS[kind]
    if kind == "f32": return rng.normal(0, 0.3, (rows, cols)).astype("<f4").tobytes()
    if kind == "f16": return (rng.integers(-1, 2, (rows, cols)) * (rng.integers(1, 4, (rows, 1)) / 8)).astype("<f2").tobytes()
    raw = rng.integers(0, 256, (rows * cols // block, size), dtype=np.uint8)
    raw[:, :2] = np.full((len(raw), 1), 0.125, "<f2").view(np.uint8)
    return raw.tobytes()

def seed(name, arch, kind, V, C, F, H, D, keys={}, norms=("attn_norm", "ffn_norm")):
    tensors = [("token_embd.weight", "f32", V, C), ("output_norm.weight", "f32", 1, C), ("output.weight", "f32", V, C)]
    tensors += [("blk.0.%s.weight" % n, "f32", 1, D if n in ("attn_q_norm", "attn_k_norm") else C) for n in norms]
    tensors += [("blk.0.%s.weight" % n, kind, r, c) for n, r, c in (("attn_q", H * D, C), ("attn_k", D, C), ("attn_v", D, C), ("attn_output", C, H * D),
                                                                   ("ffn_gate", F, C), ("ffn_up", F, C), ("ffn_down", C, F))]
    if arch.startswith("gemma"): tensors.pop(2)
    all_keys = {"block_count": 1, "embedding_length": C, "feed_forward_length": F, "context_length": 16, "attention.head_count": H,
                "attention.head_count_kv": 1, "attention.key_length": D, "attention.value_length": D, "attention.layer_norm_rms_epsilon": 1e-5, **keys}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(all_keys) + 1)
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    out += text("general.architecture") + struct.pack("<I", 8) + text(arch)
    for k, v in all_keys.items():
        out += text(arch + "." + k) + (struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v))
    data = b""
    for n, k, r, c in tensors:
        dims = (c,) if r == 1 else (c, r)
        out += text(n) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", KINDS[k][0], len(data))
        data += matrix(k, r, c)
        data += bytes(-len(data) % 32)
    out += bytes(-len(out) % 32) + data
    with open(os.path.join(OUT, "gguf." + name), "wb") as f: f.write(b"\0" + out)

seed("ternary_floats", "llama", "f16", **SMALL)
seed("q2_0", "llama", "q2_0", **{**SMALL, "C": 64, "F": 64, "H": 2, "D": 32})
seed("q2_0_128", "llama", "q2_0_128", **{**SMALL, "C": 128, "F": 128, "H": 2, "D": 64})
seed("q1_0", "llama", "q1_0", **{**SMALL, "C": 128, "F": 128, "H": 2, "D": 64})
window = {"attention.sliding_window": 8}
seed("gemma", "gemma", "f32", **SMALL)
post = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
seed("gemma2", "gemma2", "f32", **SMALL, keys={**window, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, norms=post)
seed("gemma3", "gemma3", "f32", **SMALL, keys={**window, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.sliding_window_pattern": 6},
     norms=post + ("attn_q_norm", "attn_k_norm"))
