#!/usr/bin/env python3
"""peer_tune.py: the PyTorch twin of bitrain's fine-tuning, for equal-start comparisons in fp32.

The model, its quantisers and its optimizer are peer_torch.py's, imported; new here are chat data with a loss mask,
packing with a document mask, LoRA over a frozen ternary base, DPO, the lambda warm-up from 16 to 1.58 bit, distillation
and a classification head.  Everything is a pure function of the options: no downloads, no clock, no global shuffling.

  python peer_tune.py --dir OUT all                        # data, start weights, every mode; a table and OUT/losses.json
  python peer_tune.py --dir OUT --shape nano sft lora      # only these modes (the start weights are made when absent)
  python peer_tune.py --dir OUT check                      # packed = alone, parts = whole, DPO's first loss = ln 2
  python peer_tune.py --dir OUT ties                       # the twin's own losses of pairs, fp32 against fp64
  python peer_tune.py --dir OUT measure                    # what an adapter sees; what merging does to codes and loss

In OUT: *.jsonl (data; train_* and held_* without the last 8 rows, and these alone), base.safetensors (ternary: fp32 latent weights), dense.safetensors (the full-precision model;
also the teacher), adapters/ (peft's form, before step 0), batch_MODE.safetensors (tokens, targets, documents and positions
of the first 20 steps; target -100: not counted), grad_MODE.safetensors (the first step's gradients, before clipping),
topk.safetensors (a top-k teacher file), losses.json.

What is fixed, so that another program can do the very same work:
  shape    tiny (2 layers, d 64, 4 heads, 2 kv, ffn 192) or nano, vocab 256 (bytes), T = 256, sub-norms, relu2, tied head.
  template ChatML as plain bytes: "<|im_start|>ROLE\\nTEXT<|im_end|>\\n".  Counted: the bytes of an assistant's TEXT and its
           "<|im_end|>"; not counted: role headers, other roles, the newline behind <|im_end|>.
  packing  in file order, next fit: a row closes when the next document does not fit whole; the rest is padding (byte 0,
           not counted, each pad byte its own document).  Attention: causal and same document; positions start at 0 in each.
           Step s takes rows s*B .. s*B+B-1, round and round; the last 8 rows of the set are held out for the final loss.
  loss     sum over counted tokens of the step / number of counted tokens of the step, whatever the micro-batches.
  step     AdamW 0.9/0.95, eps 1e-8, decay 0.1 on matrices (0 for adapters), global clip 1.0, constant rate, no warm-up.
  lora     y = Q(x)Q(W)^T + (alpha/r) (x A^T) B^T; W, embedding and norms frozen; A ~ U(-1/sqrt(in), 1/sqrt(in)), B = 0.
  dpo      -logsigmoid(beta ((pc - rc) - (pr - rr))), p/r: summed log-probabilities of the counted tokens under the
           adapted / the bare base; mean over the pairs of the step; each text alone in a row, rows of a step: chosen, rejected.
  orpo     -a(c) - beta logsigmoid(log odds(c) - log odds(r)), a: mean log-probability of the counted tokens, log odds = a - log(1 - e^a).
  simpo    -logsigmoid(20 beta (a(c) - a(r)) - 0.5); both without the bare base.
  convert  x + lam (Q(x) - x), W + lam (Q(W) - W), gradients straight through; lam = min(step/warm, 1), step from 0.
  distil   (1-a) CE + a tau^2 KL(teacher^tau || student^tau), per counted token; top-k: both renormalised over the teacher's k.
  classify logits = W h, h: the final norm's output at the last byte of the text; W starts at 0; mean CE over the texts.
           Everything learns; with --frozen embedding and final norm stay.
  dense    sft of the full-precision model: no rounding anywhere.
"""
import argparse
import json
import math
import os
import sys

MODES = ["dense", "sft", "lora", "lora_int8", "dpo", "dpo_int8", "orpo", "orpo_int8", "simpo", "simpo_int8", "convert", "convert_none", "distil", "distil_topk", "classify"]
ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
ap.add_argument("what", nargs="+", help="all, data, check, ties, measure, or modes: " + " ".join(MODES))
ap.add_argument("--dir", required=True)
ap.add_argument("--shape", choices=["tiny", "nano"], default="tiny")
ap.add_argument("--rslora", action="store_true", help="scale alpha/sqrt(r) instead of alpha/r")
ap.add_argument("--frozen", action="store_true", help="classify: embedding and final norm stay")
ap.add_argument("--base", default="", help="start weights instead of OUT/base.safetensors")
for name, value, text in (("steps", 100, "of a run; the first 20 losses are listed"), ("threads", 1, ""), ("rank", 8, ""), ("alpha", 16.0, ""),
                          ("plus", 1.0, "LoRA+: rate of B over rate of A"), ("beta", 0.1, "DPO"), ("warm", 10, "steps until lambda is 1"),
                          ("tau", 2.0, "temperature"), ("mix", 0.5, "distillation's share of the loss"), ("topk", 16, ""),
                          ("lr", 0.0, "instead of the mode's own")):
    ap.add_argument("--" + name, type=type(value), default=value, help=text)
OPT = ap.parse_args()

sys.argv = ["peer_torch.py", "--workload", OPT.shape, "--dtype", "fp32", "--subln", "--threads", str(OPT.threads)]
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer_torch as P  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

CFG = dict(P.WORKLOADS[OPT.shape], T=256)
T, B, PAIRS, IGNORE = 256, 8, 8, -100
LR = dict(dense=1e-3, sft=1e-3, lora=2e-3, lora_int8=2e-3, dpo=5e-4, dpo_int8=5e-4, orpo=5e-4, orpo_int8=5e-4, simpo=5e-4, simpo_int8=5e-4, convert=1e-3, convert_none=1e-3, distil=1e-3, distil_topk=1e-3, classify=1e-3)
HF = dict(q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj", o="self_attn.o_proj", gate="mlp.gate_proj", up="mlp.up_proj",
          down="mlp.down_proj", n1="input_layernorm", n2="post_attention_layernorm", no="self_attn.attn_sub_norm", nd="mlp.ffn_sub_norm")
LINEAR = ["q", "k", "v", "o", "gate", "up", "down"]

# ---------------------------------------------------------------------- data
class Dice:
    """splitmix64 of 1, 2, 3, ...: the same draws everywhere."""
    def __init__(self, seed):
        self.i = seed << 32

    def below(self, n):
        self.i += 1
        return int(P.splitmix64(np.array([self.i], dtype=np.uint64))[0] % np.uint64(n))

    def word(self, lo, hi):
        return "".join(chr(97 + self.below(26)) for _ in range(lo + self.below(hi - lo + 1)))

def task(d):
    """One question, its answer and a wrong one."""
    k, w = d.below(4), d.word(3, 7)
    if k == 0:
        return "upper", w, w.upper(), w
    if k == 1:
        return "reverse", w, w[::-1], w.upper()
    if k == 2:
        return "first", w, w[0], w[-1]
    a, b = d.below(50), d.below(50)
    return "add", "%d %d" % (a, b), str(a + b), str(a + b + 1)

def make_data(folder):
    os.makedirs(folder, exist_ok=True)
    out = {n: [] for n in ("text", "messages", "alpaca", "preference", "labels")}
    d = Dice(1)
    for i in range(2400):
        name, x, y, _ = task(d)
        out["text"].append({"text": "%s of %s is %s.\n" % (name, x, y)} if i % 3 else
                           {"text": "<|im_start|>user\necho %s<|im_end|>\n<|im_start|>assistant\n%s<|im_end|>\n" % (x, x)})
    d = Dice(2)
    for _ in range(500):
        turns = [{"role": "system", "content": "Be brief."}] if d.below(4) == 0 else []
        for _ in range(1 + d.below(2)):
            name, x, y, _ = task(d)
            turns += [{"role": "user", "content": "%s %s" % (name, x)}, {"role": "assistant", "content": y}]
        out["messages"].append({"messages": turns})
    for _ in range(200):
        name, x, y, bad = task(d)
        out["alpaca"].append({"instruction": name, "input": x, "output": y})
        out["preference"].append({"prompt": "%s %s" % (name, x), "chosen": y, "rejected": bad})
    for _ in range(400):
        name, x, y, _ = task(d)
        out["labels"].append({"text": "%s of %s" % (x, y), "label": ["upper", "reverse", "first", "add"].index(name)})
    for n, rows in out.items():
        with open(os.path.join(folder, n + ".jsonl"), "w") as fh:
            fh.writelines(json.dumps(r) + "\n" for r in rows)
    for n, at in (("messages", held_from("messages")), ("preference", -8), ("labels", -8)):
        for part, rows in (("train", out[n][:at]), ("held", out[n][at:])):
            with open(os.path.join(folder, "%s_%s.jsonl" % (part, n)), "w") as fh:
                fh.writelines(json.dumps(r) + "\n" for r in rows)

def held_from(name):
    """The document with which the last 8 rows begin."""
    starts, used = [], T + 1
    for i, (b, _) in enumerate(documents(name)):
        if used + len(b) > T:
            starts.append(i)
            used = 0
        used += len(b)
    return starts[-8]

def rows_of(name):
    with open(os.path.join(OPT.dir, name + ".jsonl")) as fh:
        return [json.loads(line) for line in fh]

def render(turns):
    """ChatML as bytes, and for every byte whether it counts."""
    text, counts = b"", []
    for t in turns:
        head, body, tail = ("<|im_start|>%s\n" % t["role"]).encode(), (t["content"] + "<|im_end|>").encode(), b"\n"
        text += head + body + tail
        counts += [0] * len(head) + [int(t["role"] == "assistant")] * len(body) + [0]
    return list(text), counts

def documents(name):
    docs = [render(r["messages"]) if "messages" in r else (list(r["text"].encode()), [int(name == "text")] * len(r["text"].encode())) for r in rows_of(name)]
    assert all(len(b) <= T for b, _ in docs)
    return docs

def row(docs):
    """One row of T: tokens, targets (the next token of the same document where that one counts), documents, positions."""
    tok, tgt, doc, pos = [], [], [], []
    for i, (b, counts) in enumerate(docs):
        tok += b
        tgt += [b[j + 1] if counts[j + 1] else IGNORE for j in range(len(b) - 1)] + [IGNORE]
        doc += [i] * len(b)
        pos += range(len(b))
    pad = T - len(tok)
    return tok + [0] * pad, tgt + [IGNORE] * pad, doc + [1000 + i for i in range(pad)], pos + [0] * pad

def pack(docs):
    rows, now, used = [], [], 0
    for d in docs:
        if used + len(d[0]) > T:
            rows.append(row(now))
            now, used = [], 0
        now, used = now + [d], used + len(d[0])
    return rows + [row(now)]

def tensors(rows):
    return [torch.tensor(c) for c in zip(*rows)]
def batch(data, s, n=B):
    """Rows of step s; the last 8 rows are held out."""
    at = [(s * n + i) % (len(data[0]) - 8) for i in range(n)]
    return [c[at] for c in data]

# --------------------------------------------------------------------- model
def attention(self, q, k, v, mask):
    g = q.shape[1] // self.kv
    return F.scaled_dot_product_attention(q, k.repeat_interleave(g, 1), v.repeat_interleave(g, 1), attn_mask=mask)


P.Block.attention = attention

def hidden(m, tok, doc, pos):
    mask = (doc[:, :, None] == doc[:, None, :]).tril()[:, None]
    x, cos, sin = F.embedding(tok, m.emb), m.cos[pos][:, None], m.sin[pos][:, None]
    for b in m.blocks:
        x = b(x, cos, sin, mask)
    return m.norm(x)

def logits(m, b):
    return F.linear(hidden(m, b[0], b[2], b[3]), m.emb)

def token_nll(m, b):
    """The loss of every token, 0 where it does not count."""
    return F.cross_entropy(logits(m, b).flatten(0, 1), b[1].flatten(), ignore_index=IGNORE, reduction="none").view(b[1].shape)

def nll(m, b):
    """Summed loss of the counted tokens, and their number."""
    return token_nll(m, b).sum(), int((b[1] != IGNORE).sum())

def build(quant, weights=None):
    P.ARGS.quant = quant
    torch.manual_seed(11)
    m = P.Model(CFG, P.ARGS)
    if weights:
        m.load_state_dict(from_hf(load_file(weights)))
    return m

def to_hf(m):
    out = {"model.embed_tokens.weight": m.emb.detach().clone(), "model.norm.weight": m.norm.weight.detach().clone()}
    for i, b in enumerate(m.blocks):
        for n, h in HF.items():
            out["model.layers.%d.%s.weight" % (i, h)] = getattr(b, n).weight.detach().clone()
    return out

def from_hf(t):
    out = {"emb": t["model.embed_tokens.weight"], "norm.weight": t["model.norm.weight"]}
    for i in range(CFG["L"]):
        for n, h in HF.items():
            out["blocks.%d.%s.weight" % (i, n)] = t["model.layers.%d.%s.weight" % (i, h)]
    return out

class Lora(nn.Module):
    """A frozen BitLinear and an adapter; sees: 'float' x, or 'int8' (what the int8 product sees, straight-through)."""
    off = False
    def __init__(self, base, sees):
        super().__init__()
        n_out, n_in = base.weight.shape
        self.base, self.sees = base, sees
        self.scale = OPT.alpha / (math.sqrt(OPT.rank) if OPT.rslora else OPT.rank)
        self.A = nn.Parameter(torch.empty(OPT.rank, n_in).uniform_(-1, 1) / math.sqrt(n_in))
        self.B = nn.Parameter(torch.zeros(n_out, OPT.rank))

    def forward(self, x):
        y = self.base(x)
        if Lora.off:
            return y
        if self.sees == "int8":
            x = x + (P.quant_act(x) - x).detach()
        return y + self.scale * F.linear(F.linear(x, self.A), self.B)

def add_lora(m, sees):
    m.requires_grad_(False)
    torch.manual_seed(7)
    for b in m.blocks:
        for n in LINEAR:
            setattr(b, n, Lora(getattr(b, n), sees))
    return m

def save_adapters(m, folder):
    os.makedirs(folder, exist_ok=True)
    out = {}
    for i, b in enumerate(m.blocks):
        for n in LINEAR:
            for ab in "AB":
                out["base_model.model.model.layers.%d.%s.lora_%s.weight" % (i, HF[n], ab)] = getattr(getattr(b, n), ab).detach().clone()
    save_file(out, os.path.join(folder, "adapter_model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "adapter_config.json"), "w") as fh:
        json.dump(dict(peft_type="LORA", task_type="CAUSAL_LM", base_model_name_or_path="..", r=OPT.rank, lora_alpha=OPT.alpha, lora_dropout=0.0,
                       use_rslora=OPT.rslora, bias="none", init_lora_weights=True, inference_mode=True, fan_in_fan_out=False, use_dora=False,
                       target_modules=sorted(h.split(".")[-1] for n, h in HF.items() if n in LINEAR)), fh, indent=1, sort_keys=True)

class Fade(nn.Module):
    """A linear layer on its way from full precision (lam 0) to ternary x int8 (lam 1)."""
    lam = 0.0
    def __init__(self, base):
        super().__init__()
        self.weight = base.weight

    def forward(self, x):
        w = self.weight
        return F.linear(x + Fade.lam * (P.quant_act(x) - x).detach(), w + Fade.lam * (P.quant_weight(w) - w).detach())

# ------------------------------------------------------------------- training
def optimizer(m, lr, lora):
    if not lora:
        return P.make_optimizer(m, lr)
    ab = [(n, p) for n, p in m.named_parameters() if p.requires_grad]
    groups = [dict(params=[p for n, p in ab if n.endswith(".A")], lr=lr), dict(params=[p for n, p in ab if n.endswith(".B")], lr=lr * OPT.plus)]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)

def train(m, loss_of, steps, lr, lora=False, grads=""):
    opt, losses = optimizer(m, lr, lora), []
    params = [p for p in m.parameters() if p.requires_grad]
    for s in range(steps):
        loss = loss_of(s)
        loss.backward()
        if s == 0 and grads:                               # of the loss above, before clipping: the test that no rounding noise blurs
            save_file({n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}, grads)
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses

def mean_nll(m, b):
    total, n = nll(m, b)
    return total / n

def weights_of(name):
    return OPT.base if OPT.base and name == "base" else os.path.join(OPT.dir, name + ".safetensors")

def start_weights():
    for name, quant in (("base", "bitnet"), ("dense", "none")):
        path = weights_of(name)
        if not os.path.exists(path):
            m, data = build(quant), tensors(pack(documents("text")))
            losses = train(m, lambda s: mean_nll(m, batch(data, s)), 300, 3e-3)
            save_file(to_hf(m), path, metadata={"format": "pt"})
            print("%s: 300 steps on text.jsonl, loss %.4f -> %.4f" % (name, losses[0], losses[-1]))
    with open(os.path.join(OPT.dir, "config.json"), "w") as fh:
        json.dump(dict(model_type="bitnet", hidden_size=CFG["d"], num_hidden_layers=CFG["L"], num_attention_heads=CFG["h"], tie_word_embeddings=True,
                       num_key_value_heads=CFG["kv"], intermediate_size=CFG["f"], vocab_size=CFG["V"], rms_norm_eps=1e-5, rope_theta=10000.0,
                       hidden_act="relu2", max_position_embeddings=T), fh, indent=1)

def pairs():
    """Chosen rows, then rejected rows, one text a row."""
    sides = {"chosen": [], "rejected": []}
    for r in rows_of("preference"):
        for side, rows in sides.items():
            rows.append(row([render([{"role": "user", "content": r["prompt"]}, {"role": "assistant", "content": r[side]}])]))
    return tensors(sides["chosen"]), tensors(sides["rejected"])

def dpo_loss(m, both):
    policy = -token_nll(m, both).sum(1)
    with torch.no_grad():
        Lora.off = True
        ref = -token_nll(m, both).sum(1)
        Lora.off = False
    good, bad = (policy - ref).chunk(2)
    return -F.logsigmoid(OPT.beta * (good - bad)).mean(), good - bad

def mean_loss(m, both, mode):
    a, r = (-token_nll(m, both).sum(1) / (both[1] != IGNORE).sum(1)).chunk(2)
    if mode.startswith("simpo"):
        return -F.logsigmoid(20 * OPT.beta * (a - r) - 0.5).mean(), a - r
    odds = (a - r) - (torch.log1p(-torch.exp(a)) - torch.log1p(-torch.exp(r)))
    return (-a - OPT.beta * F.logsigmoid(odds)).mean(), a - r

def kl(student, teacher, k=0):
    """tau^2 KL(teacher || student) of each row of logits; k: over the teacher's k largest, both renormalised."""
    if k:
        top = teacher.topk(k, dim=-1)
        teacher, student = top.values, student.gather(-1, top.indices)
    lt, ls = F.log_softmax(teacher / OPT.tau, -1), F.log_softmax(student / OPT.tau, -1)
    return OPT.tau ** 2 * (lt.exp() * (lt - ls)).sum(-1)

def run(mode):
    lr, result = OPT.lr or LR[mode], {}
    chat = tensors(pack(documents("messages")))
    take = lambda s: batch(chat, s)  # noqa: E731
    full = mode == "dense" or mode.startswith("convert")
    m = build("none" if full else "bitnet", weights_of("dense" if full else "base"))
    score = lambda: mean_nll(m, [c[-8:] for c in chat]).item()  # noqa: E731
    if lora := mode.split("_")[0] in ("lora", "dpo", "orpo", "simpo"):
        add_lora(m, "int8" if mode.endswith("int8") else "float")
        save_adapters(m, os.path.join(OPT.dir, "adapters"))
    loss_of = lambda s: mean_nll(m, take(s))  # noqa: E731
    if mode.split("_")[0] in ("dpo", "orpo", "simpo"):
        sides = pairs()
        dpo_loss = globals()["dpo_loss"] if mode.startswith("dpo") else lambda m, both: mean_loss(m, both, mode)  # noqa: E731
        take = lambda s: [torch.cat(c) for c in zip(*(batch(x, s, PAIRS) for x in sides))]  # noqa: E731
        loss_of = lambda s: dpo_loss(m, take(s))[0]  # noqa: E731

        def score():
            loss, margin = dpo_loss(m, [torch.cat(c) for c in zip(*([t[-8:] for t in x] for x in sides))])
            result.update(reward_margin=OPT.beta * margin.mean().item(), reward_accuracy=(margin > 0).float().mean().item())
            return loss.item()
    elif mode.startswith("convert"):
        for b in m.blocks:
            for n in LINEAR:
                setattr(b, n, Fade(getattr(b, n)))

        def loss_of(s):
            Fade.lam = min(s / OPT.warm, 1.0) if mode == "convert" else 1.0
            return mean_nll(m, take(s))
    elif mode.startswith("distil"):
        teacher, k = build("none", weights_of("dense")), OPT.topk if mode == "distil_topk" else 0

        def loss_of(s):
            now = take(s)
            use = now[1] != IGNORE
            with torch.no_grad():
                tl = logits(teacher, now)[use]
            sl = logits(m, now)[use]
            if s == 0 and k:                               # the form proposed for a file of teacher logits: u32 ids, f16 logits, sorted
                top = tl.topk(k, -1)
                save_file({"ids": top.indices.to(torch.int32), "logits": top.values.half(), "at": use.flatten().nonzero().flatten().to(torch.int32)},
                          os.path.join(OPT.dir, "topk.safetensors"))
                result["teacher_mass_in_topk"] = F.softmax(tl, -1).gather(-1, top.indices).sum(-1).mean().item()
            return (1 - OPT.mix) * F.cross_entropy(sl, now[1][use]) + OPT.mix * kl(sl, tl, k).mean()
    elif mode == "classify":
        data = tensors([row([d]) for d in documents("labels")])
        label = torch.tensor([r["label"] for r in rows_of("labels")])
        last = torch.tensor([len(d[0]) - 1 for d in documents("labels")])
        m.register_parameter("score", nn.Parameter(torch.zeros(4, CFG["d"])))
        if OPT.frozen:
            m.emb.requires_grad_(False)
            m.norm.requires_grad_(False)
        take = lambda s: batch(data + [label, last], s, 16)  # noqa: E731

        def class_logits(b):
            return F.linear(hidden(m, b[0], b[2], b[3])[torch.arange(len(b[0])), b[5]], m.score)

        loss_of = lambda s: F.cross_entropy(class_logits(take(s)), take(s)[4])  # noqa: E731

        def score():
            out = class_logits([c[-8:] for c in data + [label, last]])
            result["accuracy"] = (out.argmax(1) == label[-8:]).float().mean().item()
            return F.cross_entropy(out, label[-8:]).item()

    keys = ["tokens", "targets", "documents", "positions", "label", "last"]
    first = [take(s) for s in range(min(20, OPT.steps))]
    save_file({k: torch.stack(c).to(torch.int32).contiguous() for k, c in zip(keys, zip(*first))}, os.path.join(OPT.dir, "batch_%s.safetensors" % mode))
    with torch.no_grad():
        begin = None if mode.startswith("convert") else score()
    losses = train(m, loss_of, OPT.steps, lr, lora, os.path.join(OPT.dir, "grad_%s.safetensors" % mode))
    with torch.no_grad():
        end = score()
    if lora:
        save_adapters(m, os.path.join(OPT.dir, "adapters_" + mode))
    return dict(mode=mode, lr=lr, first=[round(x, 9) for x in losses[:20]], last5=round(sum(losses[-5:]) / 5, 6), held_out_before=begin, held_out=end, **result), m, chat

# --------------------------------------------------------- checks and measures
@torch.no_grad()
def check():
    """Packing changes nothing; parts add up to the whole; means of means do not."""
    m = build("bitnet", weights_of("base"))
    docs = documents("messages")[:40]
    one, many = tensors([row([d]) for d in docs]), tensors(pack(docs))
    far = (token_nll(m, one)[one[1] != IGNORE] - token_nll(m, many)[many[1] != IGNORE]).abs().max().item()
    b = batch(tensors(pack(documents("messages"))), 0)
    whole, n = nll(m, b)
    parts = [nll(m, [c[i:i + 2] for c in b]) for i in range(0, B, 2)]
    add_lora(m, "float")
    both = [torch.cat(c) for c in zip(*(batch(x, 0, PAIRS) for x in pairs()))]
    used = sum(len(d[0]) for d in docs)
    out = dict(packed_alone_token_far=far, packed_fill=used / many[0].numel(), padded_fill=used / one[0].numel(), counted_in_parts=[p[1] for p in parts],
               whole=(whole / n).item(), sum_over_count=sum(p[0].item() for p in parts) / n,
               mean_of_means=sum(p[0].item() / p[1] for p in parts) / len(parts), dpo_first=dpo_loss(m, both)[0].item(), ln2=math.log(2))
    print(json.dumps(out))
    return out

@torch.no_grad()
def ties():
    """First losses of pairs in fp32 against fp64: on a ternary base int8 codes at their thresholds turn by rounding alone."""
    out = {}
    for base, quant, sees in (("base", "bitnet", "int8"), ("dense", "none", "float")):
        for mode in ("nll", "orpo", "simpo"):
            both = []
            for double in (False, True):
                m = add_lora(build(quant, weights_of(base)), sees)
                m = m.double() if double else m
                steps = [[torch.cat(c) for c in zip(*(batch(x, s, PAIRS) for x in pairs()))] for s in range(8)]
                both.append([(mean_nll(m, b) if mode == "nll" else mean_loss(m, b, mode)[0]).item() for b in steps])
            out["%s %s" % (base, mode)] = [abs(x / y - 1) for x, y in zip(*both)]
            print(base, mode, "relative:", " ".join("%.0e" % x for x in out["%s %s" % (base, mode)]), flush=True)
    return out

@torch.no_grad()
def merged(m, chat, how):
    """The held-out loss and the share of turned codes after merging the adapters of m into its base, which is put back."""
    flips, total, kept = 0, 0, []
    for b in m.blocks:
        for n in LINEAR:
            l, w = getattr(b, n), getattr(b, n).base.weight
            kept.append((w, w.clone()))
            g = w.abs().mean().clamp_(min=1e-5)
            code = (w / g).round_().clamp_(-1, 1)                # what the base's packed file holds
            full = (w if how == "latent" else g * code) + l.scale * l.B @ l.A
            if how == "latent" or how == "codes_absmean":
                scale = full.abs().mean().clamp_(min=1e-5)
                new = (full / scale).round_().clamp_(-1, 1)
            else:
                new = (full / g).round_().clamp_(-1, 1)
                scale = g if how == "codes_same_scale" else (full * new).sum() / (new * new).sum()
            flips, total = flips + int((new != code).sum()), total + code.numel()
            w.copy_(full if how == "dense" else scale * new)
    Lora.off = True
    orig = P.quant_weight
    P.quant_weight = lambda w: w                           # the weights above are what they are; activations stay int8
    loss = mean_nll(m, [c[-8:] for c in chat]).item()
    P.quant_weight, Lora.off = orig, False
    for w, old in kept:
        w.copy_(old)
    return dict(how=how, held_out=loss, flipped=0.0 if how == "dense" else flips / total)

def measure():
    out = []
    for mode in ("lora", "lora_int8"):
        for lr in (5e-4, 2e-3, 8e-3):
            OPT.lr = lr
            r, m, chat = run(mode)
            rms = torch.cat([(l.scale * l.B @ l.A).flatten() for b in m.blocks for l in (getattr(b, n) for n in LINEAR)]).detach()
            g = torch.stack([getattr(b, n).base.weight.abs().mean() for b in m.blocks for n in LINEAR]).mean()
            r.update(delta_rms_over_g=(rms.pow(2).mean().sqrt() / g).item(), delta_max_over_g=(rms.abs().max() / g).item(),
                     merged=[merged(m, chat, how) for how in ("dense", "latent", "codes_absmean", "codes_same_scale", "codes_fit_scale")])
            out.append(r)
            print("%s lr %g: base %.4f, adapted %.4f, |delta|/g rms %.3f max %.2f;" % tuple(r[k] if k in r else k for k in (
                "mode", "lr", "held_out_before", "held_out", "delta_rms_over_g", "delta_max_over_g")),
                "; ".join("%s %.4f (%.3f %% turned)" % (x["how"], x["held_out"], 100 * x["flipped"]) for x in r["merged"]), flush=True)
    return out

def main():
    torch.set_num_threads(OPT.threads)
    torch.use_deterministic_algorithms(True)
    what = ["check"] + MODES + ["measure"] if OPT.what == ["all"] else OPT.what
    make_data(OPT.dir)
    start_weights()
    path = os.path.join(OPT.dir, "losses.json")
    found = json.load(open(path)) if os.path.exists(path) else {}
    found["options"] = {k: v for k, v in vars(OPT).items() if k not in ("dir", "what", "base")}
    found["torch"] = torch.__version__.split("+")[0]
    for w in what:
        if w in ("check", "measure", "ties"):
            found[w] = {"check": check, "measure": measure, "ties": ties}[w]()
        elif w in MODES:
            found[w] = run(w)[0]
            r = found[w]
            print("%-12s lr %g: %s ... %.4f | held out %s -> %.4f" % (w, r["lr"], " ".join("%.4f" % x for x in r["first"][:5]), r["last5"],
                                                                 "-" if r["held_out_before"] is None else "%.4f" % r["held_out_before"], r["held_out"]))
        elif w != "data":
            sys.exit("unknown: %s" % w)
        with open(path, "w") as fh:
            json.dump(found, fh, indent=1)


if __name__ == "__main__":
    main()
