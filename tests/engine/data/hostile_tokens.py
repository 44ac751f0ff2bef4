"""hostile_tokens.json: texts that tokenizers disagree on, and the ids that Hugging Face's `tokenizers` gives them, for each hostile_NAME.json.
Run: python3 hostile_tokens.py   (takes the texts from the file and writes it again; tokenizers 0.23). The vocabularies of 1500 tokens were trained
by the same library, one per word pattern, on a text with digits, runs of white space and mixed scripts; 512 is bitrain's, on its own corpus; tokenizer/hostile_rules.py makes smollm, deepseek and o200k,
tokenizer/hostile_marked.py llama2, mistral, metaspace and gemma, tokenizer/hostile_unigram.py the Unigram models. "decoded": by text, what decoding those ids gives where it is not the text."""
import json
import os

from tokenizers import Tokenizer

here = os.path.dirname(os.path.abspath(__file__))
path = os.path.join(here, "hostile_tokens.json")
texts = json.load(open(path, encoding="utf8"))["texts"]
ids, decoded = {}, {}
for name in ("512", "gpt2", "llama3", "qwen2", "smollm", "deepseek", "o200k", "llama2", "mistral", "metaspace", "gemma", "unigram", "unigram_words", "unigram_whole"):
    folder = "." if name in ("512", "gpt2", "llama3", "qwen2") else "tokenizer"
    t = Tokenizer.from_file(os.path.join(here, folder, "hostile_%s.json" % name))
    ids[name] = [t.encode(s, add_special_tokens=False).ids for s in texts]
    back = [t.decode(i, skip_special_tokens=False) for i in ids[name]]
    decoded[name] = {str(i): b for i, b in enumerate(back) if b != texts[i]}
with open(path, "w") as f:
    json.dump({"about": "made by hostile_tokens.py", "texts": texts, "ids": ids, "decoded": decoded}, f, separators=(",", ":"))
    f.write("\n")
