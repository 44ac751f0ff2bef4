#!/usr/bin/env bash
# Number of instructions that the kernels execute (not their time): of NEON sets under qemu-aarch64 and of AVX2 sets
# under qemu-x86_64.
# Usage: tests/bench/count_instructions.sh >table; needs tests/cross.sh arm64 build, Debian's qemu-user (the static one
# has no plugins) and, for x86, the target kernel_calls of build/.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
root=${CROSS:-$HOME/.cache/bitrain-cross}/arm64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -shared -fPIC -o "$work/count.so" "$top/tests/bench/count_plugin.c"
slots=(tern_fwd 'tern_fwd of 2 bits' tern_dx8 tern_dw8 tern_dx gemm tern_gemv gemv attn_fwd 'attn_fwd int8' attn_bwd 'attn_bwd int8'
    rmsnorm_quant glu softmax_xent adamw tern_codes exact_add)

# per ISA SLOT: instructions of a unit of work
per() {
    local run=(qemu-x86_64 -cpu max) program=$top/build/tests/kernel_calls n=() calls
    case $1 in neon* | arm-generic) run=(qemu-aarch64 -L "$root" -cpu max) program=$top/build-arm64/tests/kernel_calls ;; esac
    for calls in 2 6; do
        n+=("$("${run[@]}" -plugin "$work/count.so" -d plugin -D "$work/log" "$program" "${1#arm-}" "$2" $calls; sed -n 's/^executed //p' "$work/log")")
    done
    awk -v a="${n[0]}" -v b="${n[1]}" 'BEGIN { split(a, x, " "); split(b, y, " "); printf "%.4f", (y[2] - x[2]) / 4 / x[1] }'
}
sets=(avx2-plain neon-plain neon-dotprod neon)
printf '| slot |'; printf ' %s |' "${sets[@]}"; printf '\n|---|---|---|---|---|\n'
for slot in "${slots[@]}"; do
    printf '| %s |' "$slot"
    for set in "${sets[@]}"; do printf ' %s |' "$(per "$set" "$slot")"; done
    printf '\n'
done
