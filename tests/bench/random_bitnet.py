#!/usr/bin/env python3
"""random_bitnet.py - a BitNetForCausalLM (or dense Qwen3ForCausalLM) folder of any size with random bf16 weights, for measurements: what it
says means nothing.

    tests/bench/random_bitnet.py FOLDER [--shape 2b4t|base|qwen3-0.6b] [--layers N] [--vocab V]

2b4t: width 2560, feed-forward 6912, 20 heads, 5 of keys and values, vocabulary 128256, 30 layers (4.8 GB). base: the preset's sizes with a
vocabulary of 32000. qwen3-0.6b: width 1024, feed-forward 3072, 16 heads of 128, 8 of keys and values, vocabulary 151936, 28 layers (1.2 GB).
The tokenizer has 320 tokens; the rest of the vocabulary is unused. Weights repeat a block of normal numbers.
"""
import argparse, array, json, os, random, shutil, struct

SHAPES = {"2b4t": dict(C=2560, F=6912, H=20, KV=5, V=128256, L=30), "base": dict(C=768, F=2048, H=12, KV=4, V=32000, L=12),
          "qwen3-0.6b": dict(C=1024, F=3072, H=16, KV=8, D=128, V=151936, L=28)}


def tensors(s):
    D = s.get("D") or s["C"] // s["H"]
    C, F, q, kv = s["C"], s["F"], D * s["H"], D * s["KV"]
    own = (("self_attn.q_norm", (D,)), ("self_attn.k_norm", (D,))) if "D" in s else (("self_attn.attn_sub_norm", (C,)), ("mlp.ffn_sub_norm", (F,)))
    yield "model.embed_tokens.weight", (s["V"], C)
    yield "model.norm.weight", (C,)
    for i in range(s["L"]):
        layer = f"model.layers.{i}."
        for name, shape in (("input_layernorm", (C,)), ("post_attention_layernorm", (C,)), ("self_attn.q_proj", (q, C)), ("self_attn.k_proj", (kv, C)),
                            ("self_attn.v_proj", (kv, C)), ("self_attn.o_proj", (C, q)), *own, ("mlp.gate_proj", (F, C)), ("mlp.up_proj", (F, C)), ("mlp.down_proj", (C, F))):
            yield layer + name + ".weight", shape


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--shape", choices=SHAPES, default="base")
    p.add_argument("--layers", type=int)
    p.add_argument("--vocab", type=int)
    a = p.parse_args()
    s = dict(SHAPES[a.shape])
    s["L"], s["V"] = a.layers or s["L"], a.vocab or s["V"]
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../engine/interop/golden")
    os.makedirs(a.folder)
    header, at, norms = {"__metadata__": {"format": "pt"}}, 0, []
    for name, shape in tensors(s):
        n = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        if len(shape) == 1:
            norms.append((at, n))
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    r = random.Random(1)
    floats = array.array("f", (r.gauss(0, 0.02) for _ in range(1 << 20)))
    block = array.array("H", floats.tobytes())[1::2].tobytes()          # their upper halves
    with open(os.path.join(a.folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for left in range(at, 0, -len(block)):
            f.write(block[:left])
        for first, n in norms:                          # gains of one
            f.seek(8 + len(text) + first)
            f.write(b"\x80\x3f" * (n // 2))
    kind = "qwen3" if "D" in s else "bitnet"
    with open(os.path.join(golden, kind, "hf/config.json")) as f:
        config = json.load(f)
    if "D" in s:
        config.update(head_dim=s["D"], dtype="bfloat16")
        config.pop("layer_types")
    config.update(hidden_size=s["C"], intermediate_size=s["F"], num_attention_heads=s["H"], num_key_value_heads=s["KV"], vocab_size=s["V"],
                  num_hidden_layers=s["L"], max_position_embeddings=1024, hidden_act="silu")
    with open(os.path.join(a.folder, "config.json"), "w") as f:
        json.dump(config, f)
    shutil.copy(os.path.join(golden, kind, "hf/tokenizer.json"), a.folder)
    print(f"{a.folder}: {a.shape}, {s['L']} layers, {at / 1e6:.0f} MB")


main()
