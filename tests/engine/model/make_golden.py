#!/usr/bin/env python3
"""make_golden.py: the golden files of tests/engine/model, from PyTorch (any version from 1.13 on) and numpy.

    python3 make_golden.py                    # writes golden_tiny.bin and golden_losses.txt beside this script
    python3 make_golden.py --preferences      # writes golden_preferences.txt alone
    python3 make_golden.py --relations        # writes golden_relations.txt alone
    python3 make_golden.py --dora             # writes golden_dora.txt alone
    python3 make_golden.py --peer FILE        # also trains the Model of a peer_torch.py from the same weights and compares

golden_tiny.bin    per variant: the configuration, the summed loss of one batch, and every gradient by autograd through the
                   textbook straight-through estimator x + (q(x) - x).detach(), in float64.
golden_losses.txt  the first ten losses of `nano` on synth:chain, 4096 tokens a step, AdamW, float32: norm, learning rate, the
                   tolerance, ten losses. Rounding to ternary and int8 and Adam's first steps (a sign, whatever the size of
                   the gradient) amplify the last bit of a float: at the full rate 2e-3 PyTorch itself, from the same weights,
                   differs by up to 4e-3 (pre) and 9e-3 (subln) within ten steps when its number of threads changes. At 5e-5
                   it repeats itself within 5e-5: that is where ten losses can agree to 1e-4.

golden_preferences.txt  twenty losses of small dense models that learn from pairs of answers, in float64: adapters or all weights, the
                   loss, its settings, the losses.

golden_relations.txt  twenty losses of a small dense student with sub-norms that learns from a pre-norm teacher, in float64: its logits, and
                   the attention relations of the second layer.

golden_dora.txt    adapters with magnitudes (DoRA) beside a small dense and a small ternary base, in float64: twenty losses, then of each
                   tensor the gradient of the first step and the values after the last one, as projections on a fixed random direction, each
                   with its norm. The formulas are those of PEFT's DoraLinearVariant without dropout.

Weights are not stored: bitrain's are a function of (seed, tensor name, index), and this script computes the same ones.
"""
import argparse
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
NORM, ACT, LINEAR = ["subln", "bitlinear", "pre"], ["relu2", "silu"], ["bitnet158", "bitnet1", "dense"]


def splitmix64(i):
    with np.errstate(over="ignore"):
        z = np.asarray(i, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def rng_u64(seed, stream, index):
    return splitmix64(splitmix64(splitmix64(np.uint64(seed)) ^ np.uint64(stream)) ^ np.asarray(index, dtype=np.uint64))


def rng_unit(seed, stream, index):
    return (rng_u64(seed, stream, index) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def rng_normal(n, sigma, seed, stream):
    pair = np.arange((n + 1) // 2, dtype=np.uint64) * np.uint64(2)
    u, v = rng_unit(seed, stream, pair), rng_unit(seed, stream, pair + np.uint64(1))
    r, a = np.sqrt(-2.0 * np.log(1.0 - u)), 6.283185307179586 * v
    return (np.stack((r * np.cos(a), r * np.sin(a)), axis=1).reshape(-1)[:n] * float(np.float32(sigma))).astype(np.float32)


def hash_name(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & (2 ** 64 - 1)
    return h


# --------------------------------------------------------- engine/model/shape/params.def
def tensors(c):
    """(name, shape, init std or 0 for ones) in memory order"""
    std, resid = c["std"], c["std"] / (2.0 * c["L"]) ** 0.5
    hd, kvd, C, ff = c["H"] * c["D"], c["KV"] * c["D"], c["C"], c["F"]
    out = [("embed", (c["V"], C), std)]
    for i in range(c["L"]):
        rows = [("attn_norm", (C,), 0, c["norm"] != "bitlinear"), ("attn_q", (hd, C), std, True), ("attn_k", (kvd, C), std, True),
                ("attn_v", (kvd, C), std, True), ("q_norm", (c["D"],), 0, c["qk"]), ("k_norm", (c["D"],), 0, c["qk"]),
                ("attn_subnorm", (hd,), 0, c["norm"] == "subln"), ("attn_o", (C, hd), resid, True),
                ("ffn_norm", (C,), 0, c["norm"] != "bitlinear"), ("ffn_gate", (ff, C), std, True), ("ffn_up", (ff, C), std, True),
                ("ffn_subnorm", (ff,), 0, c["norm"] == "subln"), ("ffn_down", (C, ff), resid, True)]
        out += [("layers.%d.%s" % (i, n), s, d) for n, s, d, when in rows if when]
    out.append(("final_norm", (C,), 0))
    if not c["tied"]:
        out.append(("head", (c["V"], C), std))
    return out


def initial(c, seed, dtype):
    w = {}
    for name, shape, std in tensors(c):
        n = int(np.prod(shape))
        flat = rng_normal(n, std, seed, hash_name(name)) if std else np.ones(n, dtype=np.float32)
        w[name] = torch.from_numpy(flat.reshape(shape)).to(dtype).requires_grad_()
    return w


# ---------------------------------------------------------------- the network
def ste(x, q):
    return x + (q - x).detach()


def quant_weight(w, kind):
    g = w.abs().mean().clamp(min=1e-5)
    return torch.sign(w - w.mean()) * g if kind == "bitnet1" else (w / g).round().clamp(-1, 1) * g


def quant_act(x):
    a = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5)
    return (x * (127.0 / a)).round() * (a / 127.0)


def rms(x, gain, eps):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y if gain is None else y * gain


def linear(c, x, w):
    """w: the weight, or (weight, A, B, magnitudes) of a frozen weight with an adapter"""
    if c["norm"] == "bitlinear":
        x = rms(x, None, c["eps"])
    w, *dora = w if isinstance(w, tuple) else (w,)
    if c["linear"] != "dense":
        x, w = ste(x, quant_act(x)), ste(w, quant_weight(w, c["linear"]))
    if not dora:
        return F.linear(x, w)
    a, b, m = dora
    norms = (w + SCALE * b @ a).norm(dim=1).detach()
    return m / norms * (F.linear(x, w) + SCALE * F.linear(F.linear(x, a), b))


def rope(c, x):
    T, D = x.shape[-2], c["D"]
    freq = c["theta"] ** (-torch.arange(0, D, 2).to(x.dtype) / D)
    angle = torch.outer(torch.arange(T).to(x.dtype), freq)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


def block(c, w, i, x, heads=None):
    """heads: a list that receives q, k, v as attention reads them, (B, T, heads D) each"""
    B, T, _ = x.shape
    p = {n: w.get("layers.%d.%s" % (i, n)) for n in ("attn_norm", "attn_q", "attn_k", "attn_v", "q_norm", "k_norm", "attn_subnorm", "attn_o",
                                                     "ffn_norm", "ffn_gate", "ffn_up", "ffn_subnorm", "ffn_down")}
    pre, sub = c["norm"] != "bitlinear", c["norm"] == "subln"
    y = rms(x, p["attn_norm"], c["eps"]) if pre else x
    q, k, v = (linear(c, y, p[n]).view(B, T, -1, c["D"]).transpose(1, 2) for n in ("attn_q", "attn_k", "attn_v"))
    if c["qk"]:
        q, k = rms(q, p["q_norm"], c["eps"]), rms(k, p["k_norm"], c["eps"])
    q, k = rope(c, q), rope(c, k)
    if heads is not None:
        heads.extend(t.transpose(1, 2).reshape(B, T, -1) for t in (q, k, v))
    k, v = (t.repeat_interleave(c["H"] // c["KV"], 1) for t in (k, v))
    s = q @ k.transpose(-1, -2) / c["D"] ** 0.5 + torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
    o = (torch.softmax(s, dim=-1) @ v).transpose(1, 2).reshape(B, T, -1)
    x = x + linear(c, rms(o, p["attn_subnorm"], c["eps"]) if sub else o, p["attn_o"])
    y = rms(x, p["ffn_norm"], c["eps"]) if pre else x
    gate, up = linear(c, y, p["ffn_gate"]), linear(c, y, p["ffn_up"])
    h = (F.relu(gate).square() if c["act"] == "relu2" else F.silu(gate)) * up
    return x + linear(c, rms(h, p["ffn_subnorm"], c["eps"]) if sub else h, p["ffn_down"])


def final_states(c, w, tokens):
    x = F.embedding(tokens, w["embed"])
    for i in range(c["L"]):
        x = block(c, w, i, x)
    return rms(x, w["final_norm"], c["eps"])


def loss_of(c, w, tokens, targets, reduction):
    logits = F.linear(final_states(c, w, tokens), w["embed"] if c["tied"] else w["head"])
    return F.cross_entropy(logits.view(-1, c["V"]), targets.reshape(-1), reduction=reduction)


# --------------------------------------------------------------- golden_tiny.bin
TINY = dict(L=2, C=16, H=4, KV=2, D=6, F=28, T=9, V=23, eps=1e-5, std=0.25, theta=100.0)
VARIANTS = [("subln", "relu2", "bitnet158", True, False), ("subln", "silu", "bitnet158", False, True), ("bitlinear", "silu", "bitnet1", False, False),
            ("bitlinear", "relu2", "bitnet158", True, True), ("pre", "relu2", "bitnet158", True, False), ("pre", "silu", "dense", False, True)]


def write_tiny(path, batch=2, seed=7):
    with open(path, "wb") as f:
        f.write(struct.pack("<8sI", b"btgold1\0", len(VARIANTS)))
        for norm, act, lin, tied, qk in VARIANTS:
            c = dict(TINY, norm=norm, act=act, linear=lin, tied=tied, qk=qk)
            n = batch * c["T"]
            tokens = torch.from_numpy((rng_u64(seed, 0, np.arange(n)) % np.uint64(c["V"])).astype(np.int64)).view(batch, -1)
            targets = torch.from_numpy((rng_u64(seed, 1, np.arange(n)) % np.uint64(c["V"])).astype(np.int64)).view(batch, -1)
            w = initial(c, seed, torch.float64)
            loss = loss_of(c, w, tokens, targets, "sum")
            loss.backward()
            grads = np.concatenate([w[name].grad.numpy().reshape(-1) for name, _, _ in tensors(c)]).astype("<f4")
            f.write(struct.pack("<15i", c["L"], c["C"], c["H"], c["KV"], c["D"], c["F"], c["T"], c["V"], NORM.index(norm), ACT.index(act),
                                LINEAR.index(lin), tied, qk, batch, seed))
            f.write(struct.pack("<4dI", c["eps"], c["std"], c["theta"], loss.item(), len(grads)))
            f.write(grads.tobytes())
            print("tiny", norm, act, lin, "tied" if tied else "untied", "qk" if qk else "", loss.item(), len(grads))


# ------------------------------------------------------------- golden_losses.txt
NANO = dict(L=6, C=192, H=6, KV=6, D=32, F=512, T=256, V=256, eps=1e-5, std=0.02, theta=10000.0, act="relu2", linear="bitnet158", tied=True, qk=False)


def chain(n, V, seed):
    e = (splitmix64(np.arange(seed, seed + n, dtype=np.uint64)) & np.uint64(3)).astype(np.int64)
    t = np.zeros(n, dtype=np.int64)
    for i in range(n - 1):
        t[i + 1] = (5 * t[i] + 17 + e[i]) % V
    return t


def ten_losses(params, loss, lr, steps=10, decay=0.1):
    """params: list of tensors; loss(step) -> scalar"""
    groups = [dict(params=[p for p in params if p.dim() > 1], weight_decay=decay), dict(params=[p for p in params if p.dim() <= 1], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)
    out = []
    for s in range(steps):
        value = loss(s)
        value.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad()
        out.append(value.item())
    return out


def peer_losses(path, c, data, seed, lr):
    """The same ten steps by peer_torch.py's own Model, from our weights."""
    import importlib.util
    argv, sys.argv = sys.argv, ["peer_torch.py", "--ste", "detach"] + (["--subln"] if c["norm"] == "subln" else [])
    spec = importlib.util.spec_from_file_location("peer", path)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    sys.argv = argv
    net, w = peer.Model(peer.WORKLOADS["nano"], peer.ARGS), initial(c, seed, torch.float32)
    names = {"n1.weight": "attn_norm", "n2.weight": "ffn_norm", "q.weight": "attn_q", "k.weight": "attn_k", "v.weight": "attn_v", "o.weight": "attn_o",
             "gate.weight": "ffn_gate", "up.weight": "ffn_up", "down.weight": "ffn_down", "no.weight": "attn_subnorm", "nd.weight": "ffn_subnorm"}
    with torch.no_grad():
        for name, p in net.named_parameters():
            parts = name.split(".", 2)
            ours = {"emb": "embed", "norm.weight": "final_norm"}.get(name) or "layers.%s.%s" % (parts[1], names[parts[2]])
            p.copy_(w[ours])
    return ten_losses(list(net.parameters()), lambda s: net(data[s, :, :-1].contiguous(), data[s, :, 1:].contiguous()), lr)


def write_losses(path, peer, seed=1, steps=10):
    data = torch.from_numpy(chain(steps * 16 * 257, 256, seed)).view(steps, 16, 257)
    with open(path, "w") as f:
        f.write("# nano on synth:chain (seed %d), initial weights of seed %d, 16 x 256 tokens a step, float32: make_golden.py\n"
                "# norm, learning rate, tolerance, ten losses\n" % (seed, seed))
        for norm, lr, tolerance in (("pre", 5e-5, 1e-4), ("pre", 2e-3, 1e-2), ("subln", 2e-3, 2e-2)):
            c = dict(NANO, norm=norm)
            w = initial(c, seed, torch.float32)
            losses = ten_losses(list(w.values()), lambda s: loss_of(c, w, data[s, :, :-1], data[s, :, 1:], "mean"), lr)
            f.write("%s %g %g" % (norm, lr, tolerance) + "".join(" %.6f" % x for x in losses) + "\n")
            print(norm, lr, losses)
            if peer:
                theirs = peer_losses(peer, c, data, seed, lr)
                print("peer", theirs, "largest difference %.1e" % max(abs(a - b) for a, b in zip(losses, theirs)))


# ------------------------------------------------------- golden_preferences.txt
PAIRS = dict(L=2, C=32, H=4, KV=2, D=8, F=48, T=64, V=48, eps=1e-5, std=0.08, theta=10000.0, norm="subln", act="relu2", linear="dense", tied=True, qk=False)
RANK, SCALE, PROMPT, ROWS, BATCHES, RATE = 4, 2.0, 5, 4, 2, 2e-3
LAYERS = ["attn_q", "attn_k", "attn_v", "attn_o", "ffn_gate", "ffn_up", "ffn_down"]


def answers(batch):
    """Pairs of documents (chosen, rejected) that share a prompt of PROMPT tokens."""
    out = []
    for row in range(ROWS):
        at = batch * ROWS + row
        draw = lambda i: int(rng_u64(5, at, i))  # noqa: E731
        prompt = [draw(100 + i) % PAIRS["V"] for i in range(PROMPT)]
        lengths = [4 + draw(which) % 20 for which in range(2)]
        out.append([prompt + [draw(1000 * (which + 1) + i) % PAIRS["V"] for i in range(n)] for which, n in enumerate(lengths)])
    return out


def adapters(c, seed, dtype):
    w = {}
    for name, shape, _ in tensors(c):
        if name.split(".")[-1] in LAYERS:
            for part, size in ((".lora_a", (RANK, shape[1])), (".lora_b", (shape[0], RANK))):
                n = size[0] * size[1]
                w[name + part] = torch.from_numpy(rng_normal(n, 0.1, seed, hash_name(name + part)).reshape(size)).to(dtype).requires_grad_()
    return w


def score_head(size, seed, drawn):
    values = rng_normal(size, 0.1, seed, hash_name("score")) if drawn else np.zeros(size)
    return torch.from_numpy(values.reshape(1, size)).to(torch.float64).requires_grad_()


def adapted(w, a):
    return {n: t + SCALE * a[n + ".lora_b"] @ a[n + ".lora_a"] if n + ".lora_a" in a else t for n, t in w.items()} if a else w


def log_probs(c, w, document):
    """Log-probabilities of the tokens behind the prompt."""
    tokens = torch.tensor([document])
    return -loss_of(c, w, tokens[:, :-1], tokens[:, 1:], "none")[PROMPT - 1:]


def singles(kind, beta, weight, c, w, a, pairs, state):
    """KTO: of each pair the answer that the row's number selects; z0 is the clamped mean of the previous step's mismatched log-ratios,
    of each prompt with the answer of the next row. kto: weight of desirable answers; apo: weight of undesirable ones, and z0 = 0."""
    kept = [pair[row % 2] for row, pair in enumerate(pairs)]
    total, ratios = 0, []
    for row, document in enumerate(kept):
        other = document[:PROMPT] + kept[(row + 1) % len(kept)][PROMPT:]
        p = log_probs(c, adapted(w, a), document).sum()
        with torch.no_grad():
            q = log_probs(c, w, document).sum()
            ratios.append((log_probs(c, adapted(w, a), other).sum() - log_probs(c, w, other).sum()).item())
        x = beta * (p - q - (state.get("z0", 0) if kind == "kto" else 0))
        total = total + (weight if (kind == "kto") == (row % 2 == 0) else 1) * (1 - torch.sigmoid(x if row % 2 == 0 else -x))
    state["z0"] = max(0, sum(ratios) / len(ratios))
    return total / len(kept)


def rewards(centre, c, w, a, pairs):
    """A reward model: the score of the last token of each answer; centre: weight of the square of the rewards' sum."""
    total, score = 0, (a or w)["score"]
    for pair in pairs:
        x, y = (F.linear(final_states(c, adapted(w, a), torch.tensor([d]))[0, -1], score)[0] for d in pair)
        total = total - F.logsigmoid(x - y) + centre * (x + y) ** 2
    return total / len(pairs)


def preference(kind, beta, gamma, c, w, a, pairs, state):
    total = 0
    if kind == "reward":
        return rewards(gamma, c, w, a, pairs)
    if kind in ("kto", "apo"):
        return singles(kind, beta, gamma, c, w, a, pairs, state)
    for chosen, rejected in pairs:
        x, y = (log_probs(c, adapted(w, a), d) for d in (chosen, rejected))
        if kind == "dpo":
            with torch.no_grad():
                rx, ry = (log_probs(c, w, d).sum() for d in (chosen, rejected))
            total = total - F.logsigmoid(beta * ((x.sum() - rx) - (y.sum() - ry)))
        elif kind == "simpo":
            total = total - F.logsigmoid(beta * (x.mean() - y.mean()) - gamma)
        else:
            odds = [m - torch.log1p(-torch.exp(m)) for m in (x.mean(), y.mean())]
            total = total - x.mean() - beta * F.logsigmoid(odds[0] - odds[1])
    return total / len(pairs)


def write_preferences(path, seed=3, steps=20):
    with open(path, "w") as f:
        f.write("# 20 steps on pairs of answers, AdamW at %g, float64: make_golden.py --preferences\n"
                "# lora or full, the loss, beta, gamma (kto: weight of desirable answers; apo: of undesirable ones; reward: of the square of the\n"
                "# sum of both rewards), twenty losses\n" % RATE)
        for what, kind, beta, gamma in (("lora", "dpo", 0.3, 0), ("lora", "orpo", 0.4, 0), ("lora", "simpo", 2, 0.5), ("full", "orpo", 0.4, 0),
                                        ("full", "simpo", 2, 0.5), ("lora", "kto", 0.3, 8), ("lora", "apo", 0.3, 0.7),
                                        ("lora", "reward", 0, 0.05), ("full", "reward", 0, 0)):
            state = {}
            w = initial(PAIRS, seed, torch.float64)
            a = adapters(PAIRS, seed, torch.float64) if what == "lora" else {}
            if kind == "reward":
                (a or w)["score"] = score_head(PAIRS["C"], seed, bool(a))
            for t in w.values() if a else ():
                t.requires_grad_(False)
            losses = ten_losses(list((a or w).values()), lambda s: preference(kind, beta, gamma, PAIRS, w, a, answers(s % BATCHES), state), RATE, steps,
                                0.0 if a else 0.1)
            f.write("%s %s %g %g" % (what, kind, beta, gamma) + "".join(" %.9f" % x for x in losses) + "\n")
            print(what, kind, losses[0], losses[-1], flush=True)


# --------------------------------------------------------- golden_relations.txt
STUDENT = dict(L=2, C=32, H=4, KV=2, D=8, F=48, T=90, V=48, eps=1e-5, std=0.08, theta=10000.0, norm="subln", act="silu", linear="dense", tied=True,
               qk=True)
TEACHER = dict(STUDENT, norm="pre", D=12, std=0.2)


def logits_and_heads(c, w, tokens, layer):
    x, heads = F.embedding(tokens, w["embed"]), []
    for i in range(c["L"]):
        x = block(c, w, i, x, heads if i == layer else None)
    return F.linear(rms(x, w["final_norm"], c["eps"]), w["embed"]), heads


def relation_logs(x, n):
    """Logarithms of softmax(A A^T / sqrt(width)) of n equal parts of the columns, (B, n, T, T)"""
    a = x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)
    return torch.log_softmax(a @ a.transpose(-1, -2) / a.shape[-1] ** 0.5, dim=-1)


def distilled(w, taught, tokens, targets, mix, tau, weight, n):
    logits, heads = logits_and_heads(STUDENT, w, tokens, 1)
    with torch.no_grad():
        wanted, models = logits_and_heads(TEACHER, taught, tokens, 1)
    p = torch.log_softmax(wanted / tau, -1)
    loss = (1 - mix) * F.cross_entropy(logits.view(-1, STUDENT["V"]), targets.reshape(-1))
    loss = loss + mix * tau ** 2 * (p.exp() * (p - torch.log_softmax(logits / tau, -1))).sum(-1).mean()
    for own, other in zip(heads, models):
        q = relation_logs(other, n)
        loss = loss + weight * (q.exp() * (q - relation_logs(own, n))).sum(-1).mean()
    return loss


def write_relations(path, rows=2, steps=20, rate=2e-3):
    T = STUDENT["T"]
    data = torch.from_numpy(chain(steps * rows * (T + 1), STUDENT["V"], 9)).view(steps, rows, T + 1)
    w, taught = initial(STUDENT, 3, torch.float64), initial(TEACHER, 4, torch.float64)
    losses = ten_losses(list(w.values()), lambda s: distilled(w, taught, data[s, :, :-1], data[s, :, 1:], 0.5, 2, 4, 2), rate, steps)
    with open(path, "w") as f:
        f.write("# %d steps of distillation with relations, AdamW at %g, float64: make_golden.py --relations\n" % (steps, rate))
        f.write(" ".join("%.9f" % x for x in losses) + "\n")
    print("relations", losses[0], losses[-1], flush=True)


# -------------------------------------------------------------- golden_dora.txt
def magnitudes(a, seed):
    for name in [n[:-len("lora_b")] for n in a if n.endswith("lora_b")]:
        n = a[name + "lora_b"].shape[0]
        a[name + "lora_m"] = (1 + torch.from_numpy(rng_normal(n, 0.1, seed, hash_name(name + "lora_m"))).to(torch.float64)).requires_grad_()


def projection(name, x):
    way = torch.from_numpy(rng_normal(x.numel(), 1, 11, hash_name(name))).to(torch.float64)
    return " %.9g %.9g" % ((way * x.detach().reshape(-1)).sum().item(), x.detach().norm().item())


def write_dora(path, seed=3, steps=20, rows=4):
    with open(path, "w") as f:
        f.write("# %d steps of adapters with magnitudes, AdamW at %g, float64: make_golden.py --dora. The kind of the base and the losses; of each\n"
                "# tensor the projection and the norm of the first gradient, and of the last values\n" % (steps, RATE))
        for kind in ("dense", "bitnet158"):
            c = dict(PAIRS, linear=kind)
            w, a = initial(c, seed, torch.float64), adapters(c, seed, torch.float64)
            magnitudes(a, seed)
            for t in w.values():
                t.requires_grad_(False)
            both = {n: (t, *(a[n + part] for part in (".lora_a", ".lora_b", ".lora_m"))) if n + ".lora_a" in a else t for n, t in w.items()}
            data = [torch.from_numpy(np.stack([rng_u64(6, s * rows + r, np.arange(c["T"] + 1)) % np.uint64(c["V"]) for r in range(rows)])
                                     .astype(np.int64)) for s in range(BATCHES)]
            loss = lambda s: loss_of(c, both, data[s % BATCHES][:, :-1], data[s % BATCHES][:, 1:], "mean")  # noqa: E731
            loss(0).backward()
            first = {n: projection(n, t.grad) for n, t in a.items()}
            for t in a.values():
                t.grad = None
            losses = ten_losses(list(a.values()), loss, RATE, steps, 0.0)
            f.write(kind + "".join(" %.9f" % x for x in losses) + "\n")
            f.writelines(n + first[n] + projection(n, a[n]) + "\n" for n in sorted(a))
            print("dora", kind, losses[0], losses[-1], flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--peer", default="", help="a peer_torch.py to compare with")
    p.add_argument("--preferences", action="store_true", help="write golden_preferences.txt alone")
    p.add_argument("--relations", action="store_true", help="write golden_relations.txt alone")
    p.add_argument("--dora", action="store_true", help="write golden_dora.txt alone")
    p.add_argument("--out", default=HERE)
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.dora:
        write_dora(os.path.join(a.out, "golden_dora.txt"))
        return
    write_relations(os.path.join(a.out, "golden_relations.txt"))
    if a.relations:
        return
    write_preferences(os.path.join(a.out, "golden_preferences.txt"))
    if a.preferences:
        return
    write_dora(os.path.join(a.out, "golden_dora.txt"))
    torch.set_num_threads(2)
    write_tiny(os.path.join(a.out, "golden_tiny.bin"))
    write_losses(os.path.join(a.out, "golden_losses.txt"), a.peer)


if __name__ == "__main__":
    main()
