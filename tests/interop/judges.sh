#!/usr/bin/env bash
# judges.sh - what `bitrain convert` writes, judged by transformers and by llama.cpp: development only, because both are fetched.
#
#     tests/interop/judges.sh [FOLDER]      FOLDER keeps a Python environment and node modules (default: build/judges)
#
# The small models of tests/engine/interop/golden are written in every format and type; each judge compares log probabilities of
# the next token and ids of hostile texts with what our own reader says of the same file. Bounds: 1e-4 where nothing is rounded
# (transformers; f32 files), 5e-3 for f16, 0.5 where bf16, q8_0 or a ternary type rounds weights or activations in another way.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
at=${1:-$root/build/judges}
bitrain=$root/build/bitrain
say=$root/build/tests/log_probs
golden=$root/tests/engine/interop/golden
mkdir -p "$at/node"
[ -x "$at/venv/bin/python" ] || python3 -m venv "$at/venv"
"$at/venv/bin/python" -c 'import torch, transformers, accelerate' 2>/dev/null ||
    "$at/venv/bin/pip" install -q torch 'transformers>=5,<6' accelerate
[ -d "$at/node/node_modules/node-llama-cpp" ] || npm install --prefix "$at/node" --no-audit --no-fund node-llama-cpp@3.22.1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
convert() { "$bitrain" convert "$golden/$1" --to "$2" --type "$3" -o "$work/$4" "${@:5}" >/dev/null; }
convert bitnet/hf hf f32 bitnet
convert bitnet/hf hf packed packed
convert bitnet/hf hf packed packed-divide --scale divide
convert llama/llama-f32.gguf hf f32 llama
convert qwen3/hf hf f16 qwen3
"$at/venv/bin/python" "$root/tests/interop/judge_hf.py" "$say" "$work"/*/

cp "$root/tests/interop/judge_gguf.mjs" "$at/node/"
judge() { (cd "$at/node" && node judge_gguf.mjs "$say" "$@"); }
for model in llama qwen3; do
    for type in f32 f16 bf16 q8_0; do convert $model/hf gguf $type $model-$type.gguf; done
done
tq=bitnet-tq/bitnet-tq-tq1_0.gguf
for type in f32 f16 q8_0 tq1_0 tq2_0; do convert $tq gguf $type bitnet-$type.gguf; done
convert $tq gguf tq2_0 bitnet-tq2_0-scale.gguf --scale-tensors
judge 1e-4 "$work"/llama-f32.gguf "$work"/qwen3-f32.gguf
judge 5e-3 "$work"/llama-f16.gguf "$work"/qwen3-f16.gguf
judge 0.5 "$work"/*-bf16.gguf "$work"/*-q8_0.gguf "$work"/bitnet-*.gguf
echo "the judges agree"
