#!/usr/bin/env python3
"""golden/ternary: small Llamas whose linear weights are ternary, in the forms that other programs publish, and the logits of transformers with
inputs of linear layers rounded to int8.

    tensor-bf16   floats of bf16, one scale for each tensor, no quantization_config: the revision "bfloat16" of Falcon-E, which convert_to_bf16 of
                  onebitllms writes
    packed        what quantize_to_1bit of onebitllms writes, and Falcon-E's main revision has: two bits, weight_scale of bf16 divides
    row-f16       floats of f16, one scale for each row; row-f16.gguf has the same tensors
    packed-rows   two bits, weight_scale has an element for each row and multiplies (linear_class autobitlinear)

Run: python3 make_ternary_golden.py   (torch, transformers 5, safetensors, gguf)
"""
import json, os, shutil
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import gguf, torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden/ternary")
V, C, F, H, KV, L = 64, 64, 96, 4, 2, 2
torch.manual_seed(5)
CONFIG = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 11,
          "head_dim": C // H, "hidden_act": "silu", "hidden_size": C, "initializer_range": 0.02, "intermediate_size": F,
          "max_position_embeddings": 128, "mlp_bias": False, "model_type": "llama", "num_attention_heads": H, "num_hidden_layers": L,
          "num_key_value_heads": KV, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 1000042,
          "tie_word_embeddings": False, "use_cache": True, "vocab_size": V}
PACKED = {"modules_to_not_convert": ["lm_head"], "quant_method": "bitnet"}
PROMPTS = [[5], [3, 1, 4], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9, 0, 4, 5], list(range(60, 20, -1))]

def linear(name): return name.endswith("_proj.weight")

def codes_and_scales(w, rows):
    scale = w.abs().mean(1, keepdim=True) if rows else w.abs().mean()
    return (w / scale).round().clamp(-1, 1), scale

def int8(x):                                            # per token, as activation_quant of onebitllms
    s = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (x * s).round().clamp(-128, 127) / s

def logits(weights):
    m = LlamaForCausalLM(LlamaConfig(**CONFIG, attn_implementation="eager")).float().eval()
    m.load_state_dict({n: t.float() for n, t in weights.items()})
    for name, module in m.named_modules():
        if name.endswith("_proj"): module.register_forward_pre_hook(lambda _, args: (int8(args[0]),))
    with torch.no_grad():
        return [{"ids": p, "logits": [float("%.7g" % v) for v in m(torch.tensor([p])).logits[0, -1]]} for p in PROMPTS]

def pack(codes):                                        # rows r, r + N/4, r + N/2, r + 3N/4 in a byte, the first in the lower bits
    q = (codes + 1).to(torch.uint8).reshape(4, -1, codes.shape[1])
    return q[0] | q[1] << 2 | q[2] << 4 | q[3] << 6

def save(name, tensors, config, values):
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    save_file({n: t.contiguous() for n, t in tensors.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as f: json.dump({**CONFIG, **config}, f, indent=2)
    with open(os.path.join(folder, "expected.json"), "w") as f: json.dump({"prompts": logits(values)}, f, separators=(",", ":"))

def pairs(w, heads):                                    # rows of q and k in a GGUF file of llama
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)

def write_gguf(path, tensors):
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(128); w.add_embedding_length(C); w.add_block_count(L); w.add_feed_forward_length(F); w.add_head_count(H)
    w.add_head_count_kv(KV); w.add_layer_norm_rms_eps(1e-5); w.add_rope_freq_base(1000042.0); w.add_rope_dimension_count(C // H)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}
    for name, t in tensors.items():
        if "q_proj" in name: t = pairs(t, H)
        if "k_proj" in name: t = pairs(t, KV)
        name = name.replace("model.layers.", "blk.").replace("model.embed_tokens", "token_embd").replace("model.norm", "output_norm").replace("lm_head", "output")
        for theirs, ours in names.items(): name = name.replace(theirs, ours)
        w.add_tensor(name, t.half().numpy() if t.ndim > 1 else t.float().numpy())
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

latent = LlamaForCausalLM(LlamaConfig(**CONFIG)).state_dict()
for n, t in latent.items(): latent[n] = torch.rand(t.shape) + 0.5 if t.ndim == 1 else torch.randn(t.shape) * (0.15 if not linear(n) else 0.2)
for n, t in latent.items():                             # rows of several sizes
    if linear(n): latent[n] = t * (torch.arange(t.shape[0]) % 5 + 1).unsqueeze(1) / 3

def floats(kind, rows):
    out = {}
    for n, t in latent.items():
        if linear(n):
            codes, scale = codes_and_scales(t, rows)
            t = (codes / (1 / scale).to(torch.bfloat16)).to(kind) if kind == torch.bfloat16 else codes * scale
        out[n] = t.to(kind)
    return out

shutil.rmtree(OUT, ignore_errors=True)
tensor = floats(torch.bfloat16, False)
save("tensor-bf16", tensor, {"torch_dtype": "bfloat16"}, tensor)
row = floats(torch.float16, True)
save("row-f16", row, {"torch_dtype": "float16"}, row)
write_gguf(os.path.join(OUT, "row-f16.gguf"), row)
for name, rows, config in (("packed", False, {"is_bitnet_config": True, "quantization_config": PACKED}),
                           ("packed-rows", True, {"quantization_config": {**PACKED, "linear_class": "autobitlinear", "quantization_mode": "offline"}})):
    files, values = {}, {}
    for n, t in latent.items():
        files[n] = values[n] = t.to(torch.bfloat16)
        if not linear(n): continue
        codes, scale = codes_and_scales(t, rows)
        s = scale.reshape(-1).to(torch.bfloat16) if rows else (1 / scale).reshape(1).to(torch.bfloat16)
        files[n], files[n.replace("weight", "weight_scale")] = pack(codes), s
        values[n] = codes * s.float().unsqueeze(1) if rows else codes / s.float()
    save(name, files, {"torch_dtype": "bfloat16", **config}, values)
