"""hostile_NAME.json for Unigram models. One vocabulary trained by the library on pseudo-text from the hostile texts, with added pieces whose scores
tie; forms: unigram (normalisers and byte fallback, as LLaMA-like models have), unigram_words (Metaspace that splits, unknown token, as T5 without its
normaliser), unigram_whole (Metaspace that does not split, unknown token).
Run: python3 hostile_unigram.py, then python3 ../hostile_tokens.py   (tokenizers 0.23)"""
import collections
import json
import os
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
MARK = "\u2581"
rng = random.Random(7)
words = [w for line in json.load(open(os.path.join(here, "../hostile_tokens.json"), encoding="utf8"))["texts"] for w in line.split()]
text = [" ".join(rng.choice(words) + rng.choice(["", "", ".", "    x", "  "]) for _ in range(30)) for _ in range(400)]
common = {c for c, _ in collections.Counter("".join(text)).most_common(200)}
text = ["".join(c for c in line if c in common) for line in text]
SPECIAL = ["<unk>", "<s>", "</s>"]

t = Tokenizer(models.Unigram())
t.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always", True)
t.train_from_iterator(text, trainers.UnigramTrainer(vocab_size=500, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
learned = [(p, s) for p, s in json.loads(t.to_str())["model"]["vocab"] if p != "<unk>"]
# Every fifth character has no token. Equal scores, exact in binary, make ties; a piece of the unknown token's text and one that crosses spaces.
pieces = [(p, s) for i, (p, s) in enumerate(learned) if len(p) > 1 or p == MARK or i % 5]
have = {p for p, _ in pieces}
pieces += [(p, -4.0) for p in ("aa", "aaa", "ab", "ba", "ll", "lll", MARK * 2, MARK * 3, "a" + MARK, "." + MARK + "x", "<un", "<0x") if p not in have]
BYTES = [("<0x%02X>" % b, 0.0) for b in range(256)]
REPLACE = normalizers.Replace(" ", MARK)
DECODE = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
FORMS = {
    "unigram": (BYTES, normalizers.Sequence([normalizers.Prepend(MARK), REPLACE]), None, decoders.Sequence(DECODE + [decoders.Strip(" ", 1, 0)])),
    "unigram_words": ([], None, pre_tokenizers.Metaspace(MARK, "always", True), decoders.Metaspace(MARK, "always", True)),
    "unigram_whole": ([], None, pre_tokenizers.Metaspace(MARK, "never", False), decoders.Metaspace(MARK, "never", False)),
}
for name, (fallback, normalizer, pre, decode) in FORMS.items():
    t = Tokenizer(models.Unigram([(s, 0.0) for s in SPECIAL] + fallback + pieces, 0, bool(fallback)))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decode
    t.add_special_tokens(SPECIAL + ["<|new|>"])
    if name == "unigram":
        t.add_tokens([AddedToken(MARK * 2, normalized=False), AddedToken("<|shown|>", normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    with open(os.path.join(here, "hostile_%s.json" % name), "w", encoding="utf8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
