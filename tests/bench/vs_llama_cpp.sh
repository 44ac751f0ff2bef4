#!/usr/bin/env bash
# vs_llama_cpp.sh - tokens per second of bitrain and llama.cpp on the same GGUF files (TQ2_0) with equal numbers of
# threads, by one command:
#     tests/bench/vs_llama_cpp.sh [BUILD] [THREADS] [ROUNDS]
# BUILD: folder of the program (default: build). The script installs node-llama-cpp (npm, prebuilt) into
# BUILD/other-programs/node, which tests/interop/compare_models.sh uses too. Its files are the preset `base` with a
# vocabulary of 32000, and four layers of BitNet b1.58 2B4T; the weights are random (random_bitnet.py). The figures
# depend on the machine and its load.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(realpath "${1:-$root/build}")
node=${JUDGES:-$build/other-programs}/node
mkdir -p "$node"
[ -d "$node/node_modules/node-llama-cpp" ] || npm install --prefix "$node" --no-audit --no-fund node-llama-cpp@3.22.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make_file() { # NAME ARGUMENT...
    "$root/tests/bench/random_bitnet.py" "$work/$1" "${@:2}"
    "$build/bitrain" convert "$work/$1" --to gguf --type tq2_0 -o "$work/$1.gguf" >/dev/null
    rm -r "${work:?}/$1"
}
make_file base --shape base
make_file 2b4t-4-layers --shape 2b4t --layers 4 --vocab 32000
"$build/bitrain" convert "$root/tests/engine/interop/golden/bitnet-tq/bitnet-tq-tq1_0.gguf" --to gguf --type tq2_0 -o "$work/tiny.gguf" >/dev/null
cp "$root/tests/bench/vs_llama_cpp.mjs" "$node/"
uptime
cd "$node" && node vs_llama_cpp.mjs "$build/bitrain" "${2:-1}" "${3:-5}" "$work/tiny.gguf" "$work/base.gguf" "$work/2b4t-4-layers.gguf"
