#!/usr/bin/env bash
# clients.sh - uses `bitrain serve last` with openai's Python client and lm-evaluation-harness: development only,
# because both are fetched.
#     tests/interop/clients.sh [FOLDER]
# FOLDER keeps a Python environment (default: build/other-programs). Trains a small model on the built-in text, serves it, and
# prints a table of results. The harness must count as many of 60 drawn questions right as `bitrain eval` does, and must
# measure the bits per byte that it measures for the exported folder in transformers.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
at=${1:-$root/build/other-programs}
bitrain=${BITRAIN:-$root/build/bitrain}
mkdir -p "$at"
[ -x "$at/clients/bin/python" ] || python3 -m venv "$at/clients"
"$at/clients/bin/python" -c 'import openai, lm_eval, transformers, tenacity, torch, accelerate' 2>/dev/null || "$at/clients/bin/pip" install -q 'openai>=3,<4' 'lm_eval[api]==0.4.13' 'transformers>=5,<6' torch accelerate

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
export BITRAIN_STORE=$work/runs.db XDG_RUNTIME_DIR=$work
"$bitrain" tokenizer train --vocab 400 --out tok.json >/dev/null
"$bitrain" train --tokenizer tok.json --preset nano --set model.seq_len=256 --batch-tokens 1024 --ranks 1 --threads 1 --steps "${STEPS:-40}" --name asked --out run --quiet
"$bitrain" convert last --to hf -o folder >/dev/null
python3 - <<'END' >questions.jsonl
import json, random
r = random.Random(3)
words = "in the beginning God created heaven and earth light was upon face of waters caf\u00e9 na\u00efve \u4e2d\u6587 firmament evening morning day".split()
def some(a, b):
    return " ".join(r.choice(words) for _ in range(r.randint(a, b)))
for i in range(60):
    print(json.dumps({"id": str(i), "question": some(3, 9) + "?", "choices": {"text": [some(1, 6) for _ in range(4)], "label": list("ABCD")}, "answerKey": r.choice("ABCD")}))
with open("texts.jsonl", "w") as f:
    for n in [20] * 20 + [400]: # the last is longer than a window
        print(json.dumps({"text": some(3, n) + "."}), file=f)
END
ours=$("$bitrain" eval last --task arc --data questions.jsonl --json)
"$bitrain" serve last --port 0 --json --threads 2 >serve.out 2>serve.err &
server=$!
for _ in $(seq 200); do [ -s serve.out ] && break; sleep 0.1; done
[ -s serve.out ] || { cat serve.err; exit 1; }
"$at/clients/bin/python" "$root/tests/interop/clients.py" "$(cat serve.out)" folder questions.jsonl "$ours" texts.jsonl
kill -TERM "$server"
wait "$server"
server=
echo "the clients are answered"
