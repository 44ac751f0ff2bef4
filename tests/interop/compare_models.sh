#!/usr/bin/env bash
# compare_models.sh - compares what `bitrain convert` writes with transformers and llama.cpp: development only, because both are
# fetched.
#     tests/interop/compare_models.sh [FOLDER [GOLDEN]]
# FOLDER keeps a Python environment and node modules (default: build/other-programs). The small models of
# tests/engine/interop/golden are written in every format and type, and so are those of GOLDEN, a folder of further
# models (NAME/hf, NAME/hf-*, NAME/NAME-TYPE.gguf), which are also compared unchanged, and random models of further
# architectures (make_architectures.py). Both programs compare log
# probabilities of the next token and ids of 140 hostile texts with the output of our own reader for the same file.
# compare_i2_s.py decodes i2_s, which only bitnet.cpp computes.
# Bounds: 1e-4 without rounding (transformers; f32 files), 5e-3 for f16, 0.5 where bf16, q8_0 or a ternary type rounds
# weights or activations in another way; prints a table.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
at=${1:-$root/build/other-programs}
more=${2:-}
bitrain=$root/build/bitrain
say=$root/build/tests/log_probs
golden=$root/tests/engine/interop/golden
texts=$root/tests/engine/data/hostile_tokens.json
mkdir -p "$at/node"
[ -x "$at/venv/bin/python" ] || python3 -m venv "$at/venv"
"$at/venv/bin/python" -c 'import torch, transformers, accelerate, gguf' 2>/dev/null ||
    "$at/venv/bin/pip" install -q torch 'transformers>=5,<6' accelerate gguf
[ -d "$at/node/node_modules/node-llama-cpp" ] || npm install --prefix "$at/node" --no-audit --no-fund node-llama-cpp@3.22.1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0
convert() { # SOURCE FORMAT TYPE NAME OPTION...
    "$bitrain" convert "$1" --to "$2" --type "$3" -o "$work/$4" "${@:5}" >/dev/null || { echo "| $4 | convert | | | | NO |"; faults=1; }
}
transformers() { "$at/venv/bin/python" "$root/tests/interop/compare_hf.py" "$say" "$texts" "$@" || faults=1; }
cp "$root/tests/interop/compare_gguf.mjs" "$at/node/"
llama_cpp() { (cd "$at/node" && node compare_gguf.mjs "$say" "$texts" "$@") || faults=1; }
# dense SOURCE NAME, ternary SOURCE NAME: every type from one source
dense() {
    for type in f32 f16 bf16 q8_0; do convert "$1" gguf $type "$2-$type.gguf"; done
    for type in f32 bf16 f16; do convert "$1" hf $type "$2-$type"; done
    folders+=("$work/$2-"{f32,bf16,f16})
    case $2 in # llama.cpp computes GELU by a table of f16
    *gemma*) half+=("$work/$2-f32.gguf") ;;
    *) exact+=("$work/$2-f32.gguf") ;;
    esac
    half+=("$work/$2-f16.gguf") loose+=("$work/$2-"{bf16,q8_0}.gguf)
}
ternary() { # SOURCE NAME TYPE...
    for type in "${@:3}"; do
        convert "$1" gguf "$type" "$2-$type.gguf"
        loose+=("$work/$2-$type.gguf")
    done
    convert "$1" hf f32 "$2-hf"
    convert "$1" hf packed "$2-packed"
    convert "$1" hf packed "$2-packed-divide" --scale divide
    folders+=("$work/$2-"{hf,packed,packed-divide})
}
folders=() exact=() half=() loose=()
convert "$golden/bitnet/hf" hf f32 bitnet # relu2, which llama.cpp does not compute
convert "$golden/bitnet/hf" hf packed packed
convert "$golden/bitnet/hf" hf packed packed-divide --scale divide
folders+=("$work/"{bitnet,packed,packed-divide})
dense "$golden/llama/llama-f32.gguf" llama
dense "$golden/qwen3/hf" qwen3
ternary "$golden/bitnet-tq/bitnet-tq-tq1_0.gguf" bitnet f32 f16 q8_0 tq1_0 tq2_0
convert "$golden/bitnet-tq/bitnet-tq-tq1_0.gguf" gguf tq2_0 bitnet-tq2_0-scale.gguf --scale-tensors
loose+=("$work/bitnet-tq2_0-scale.gguf")
convert "$golden/bitnet-tq/bitnet-tq-tq1_0.gguf" gguf i2_s bitnet-i2_s.gguf
folders+=("$golden/ternary/"{tensor-bf16,row-f16,packed,packed-rows})
"$at/venv/bin/python" "$root/tests/interop/make_architectures.py" "$work/architectures" 2>/dev/null
for model in "$work"/architectures/*/ ${more:+"$more"/*/}; do
    name=$(basename "$model")
    [ -d "$model/hf" ] || continue
    folders+=("$model"hf*)
    case $name in
    *relu2*) # compared with transformers only
        convert "$model/hf" hf packed "golden-$name-packed"
        folders+=("$work/golden-$name-packed")
        continue
        ;;
    *rows) ternary "$model/hf" "golden-$name" f32 f16 q8_0 tq1_0 tq2_0 q2_0 ;;
    *groups)
        for type in f32 f16 q2_0; do convert "$model/hf" gguf "$type" "golden-$name-$type.gguf"; done
        convert "$model/hf" hf f32 "golden-$name-hf"
        folders+=("$work/golden-$name-hf") loose+=("$work/golden-$name-"{f32,f16,q2_0}.gguf)
        ;;
    mistral-window) # GGUF has no architecture for it
        for type in f32 bf16 f16; do convert "$model/hf" hf $type "golden-$name-$type"; done
        folders+=("$work/golden-$name-"{f32,bf16,f16})
        ;;
    *small) ternary "$model/hf" "golden-$name" f32 f16 q8_0 ;;
    bitnet*) ternary "$model/hf" "golden-$name" f32 f16 q8_0 tq1_0 tq2_0 ;;
    *) dense "$model/hf" "golden-$name" ;;
    esac
    for file in "$model"*.gguf; do
        [ -e "$file" ] || continue
        case $file in
        */bitnet*) loose+=("$file") ;;
        *-f32.gguf) exact+=("$file") ;;
        *-f16.gguf) half+=("$file") ;;
        *) loose+=("$file") ;;
        esac
    done
done
echo "| file | program | log probabilities differ by | bound | hostile texts with the same ids | holds |"
echo "|---|---|---|---|---|---|"
"$at/venv/bin/python" "$root/tests/interop/compare_i2_s.py" "$work/bitnet-i2_s.gguf" "$work/bitnet-f32.gguf" || faults=1
transformers "${folders[@]}"
llama_cpp 1e-4 "${exact[@]}"
llama_cpp 5e-3 "${half[@]}"
llama_cpp 0.5 "${loose[@]}"
[ "$faults" -eq 0 ] && echo "the programs agree"
exit "$faults"
