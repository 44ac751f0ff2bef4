#!/usr/bin/env python3
"""golden/quantised: blocks of llama.cpp's quantised types with their values by the package gguf, a small model in one file and in
two parts, and some of I2_S and Q2_0, which the package does not write.
Run: python3 make_quantised_golden.py   (gguf 0.19, numpy)"""
import json, os, struct
import gguf
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden/quantised")
os.makedirs(OUT, exist_ok=True)
rng = np.random.default_rng(8)
T = gguf.GGMLQuantizationType
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
blocks = {}
for kind, at in SCALES.items():
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (2, size), dtype=np.uint8)
    for k in at: raw[:, k:k + 2] = rng.normal(0, 0.1, (2, 1)).astype("<f2").view(np.uint8)
    values = gguf.quants.dequantize(raw, kind).reshape(-1)
    blocks[kind.name.lower()] = {"hex": raw.tobytes().hex(), "values": [float("%.9g" % v) for v in values]}
# Q2_0 and Q1_0 of llama.cpp (ggml-common.h, July 2026), which the package lacks: fp16 d, then codes from the lower bits on
others = np.random.default_rng(9)
for word, elements, bits in (("q2_0", 64, 2), ("q2_0 with blocks of 128", 128, 2), ("q1_0", 128, 1)):
    d, q = others.normal(0, 0.1, (2, 1)).astype("<f2"), others.integers(0, 1 << bits, (2, elements))
    packed = (q.reshape(2, -1, 8 // bits) << np.arange(0, 8, bits)).sum(-1).astype(np.uint8)
    x = d.astype(np.float32) * (q - 1 if bits == 2 else 2 * q - 1)
    blocks[word] = {"hex": np.concatenate([d.view(np.uint8), packed], 1).tobytes().hex(), "values": [float("%.9g" % v) for v in x.reshape(-1)]}
with open(os.path.join(OUT, "blocks.json"), "w") as f: json.dump(blocks, f, separators=(",", ":"))

V = C = F = 32
sizes = {"token_embd.weight": (V, C), "output_norm.weight": (C,), "blk.0.attn_norm.weight": (C,), "blk.0.ffn_norm.weight": (C,)}
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"): sizes["blk.0.%s.weight" % name] = (C, C)
tensors = {n: rng.normal(0, 0.3, s).astype(np.float32) + (1 if len(s) == 1 else 0) for n, s in sizes.items()}
def write(path, names, keys, split=None):
    w = gguf.GGUFWriter(path, "llama")
    if keys:
        w.add_context_length(64); w.add_embedding_length(C); w.add_block_count(1); w.add_feed_forward_length(F); w.add_head_count(2)
        w.add_head_count_kv(2); w.add_layer_norm_rms_eps(1e-5); w.add_rope_freq_base(10000.0)
    if split is not None:
        w.add_uint16("split.no", split); w.add_uint16("split.count", 2); w.add_int32("split.tensors.count", len(tensors))
    for n in names:
        x = tensors[n]
        if x.ndim == 1: w.add_tensor(n, x)
        else:
            kind = T.Q5_1 if "ffn" in n else T.Q4_0
            q = gguf.quants.quantize(x, kind)
            w.add_tensor(n, q, raw_shape=q.shape, raw_dtype=kind)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
names = list(tensors)
write(os.path.join(OUT, "whole.gguf"), names, True)
write(os.path.join(OUT, "part-00001-of-00002.gguf"), names[:4], True, 0)
write(os.path.join(OUT, "part-00002-of-00002.gguf"), names[4:], False, 1)

# I2_S of bitnet.cpp: 32 bytes a block of 128, codes 0, 1, 2 from the upper bits on; a tail of 32 bytes begins with the tensor's scale
def i2_s(codes, scale):
    q = (codes.reshape(-1, 4, 32) + 1).astype(np.uint8)
    return (q[:, 0] << 6 | q[:, 1] << 4 | q[:, 2] << 2 | q[:, 3]).tobytes() + struct.pack("<f28x", scale)
def text(s): return struct.pack("<Q", len(s)) + s.encode()
def raw_gguf(path, keys, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, kind, value in keys: head += text(name) + struct.pack("<I", kind) + (text(value) if kind == 8 else struct.pack("<f" if kind == 6 else "<I", value))
    at = 0
    for name, dims, kind, data in tensors:
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", kind, at)
        at += (len(data) + 31) // 32 * 32
    head += bytes(-len(head) % 32)
    with open(path, "wb") as f: f.write(head + b"".join(data + bytes(-len(data) % 32) for _, _, _, data in tensors))
N = 128
i = np.arange(N * N)
keys = [("general.architecture", 8, "bitnet"), ("bitnet.attention.layer_norm_rms_epsilon", 6, 1e-5), ("bitnet.rope.freq_base", 6, 10000.0)]
keys += [("bitnet." + k, 4, v) for k, v in (("context_length", 64), ("embedding_length", N), ("block_count", 1), ("feed_forward_length", N), ("attention.head_count", 2))]
kinds = [("token_embd", [N, 32], 1, rng.normal(0, 0.1, N * 32).astype("<f2").tobytes()), ("output_norm", [N], 0, np.ones(N, "<f4").tobytes())]
kinds += [("blk.0." + n, [N], 0, np.ones(N, "<f4").tobytes()) for n in ("attn_norm", "ffn_norm", "attn_sub_norm", "ffn_sub_norm")]
for k, n in enumerate(("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")):
    kinds.append(("blk.0." + n, [N, N], 36, i2_s((i * 7 + i // N * 3 + k) % 3 - 1, 0.03125 * (k + 1))))
raw_gguf(os.path.join(OUT, "i2_s.gguf"), keys, [(n + ".weight", d, t, b) for n, d, t, b in kinds])

# Q2_0 with a scale for each block, of 64 elements as in llama.cpp and of 128 as in PrismML's fork
def q2_0(codes, k, size):
    q = (codes.reshape(-1, size // 4, 4) + 1 << np.arange(0, 8, 2)).sum(-1).astype(np.uint8)
    row, block = np.divmod(np.arange(len(q)), N // size)
    d = ((1 + (2 * row + block + k) % 7) / 32).astype("<f2").reshape(-1, 1)
    return np.concatenate([d.view(np.uint8), q], 1).tobytes()
for size in (64, 128):
    at = len(kinds) - 7
    for k in range(7):
        name, dims, _, _ = kinds[at + k]
        kinds[at + k] = (name, dims, 42, q2_0((i * 7 + i // N * 3 + k) % 3 - 1, k, size))
    raw_gguf(os.path.join(OUT, "q2_0-%d.gguf" % size), keys, [(n + ".weight", d, t, b) for n, d, t, b in kinds])
