#!/usr/bin/env bash
# ctest: timeout=400
# The N-th call on a run's files fails, for every kind of call: the run ends with a documented exit code and one line,
# its record is right, and when it is resumed without the fault it ends with the bits of an undisturbed run. The test
# runs a sample of the calls chosen by a seed, and all of them with FULL=1 (tests/HOOKS.md).
. "$BT_SRC/tests/cli/train_lib.sh"
! ldd "$BITRAIN" | grep -q libasan || skip "a preloaded library and AddressSanitizer exclude each other"
cc -shared -fPIC -O1 -o io_fault.so "$BT_SRC/tests/cli/faults/io_fault.c" -ldl 2>cc.err || skip "no compiler: $(head -n 1 cc.err)"
run=(train "${tiny[@]}" --steps 9 --ckpt-every 3 --set train.reproducible=true --set train.unit=1)

ok "${run[@]}" --name calm
losses calm >calm.txt
[ "$(wc -l <calm.txt)" = 9 ] || fault "the calm run has $(wc -l <calm.txt) steps"
of() { sqlite3 "$tmp/case/m.db" "SELECT step, printf('%.17g', loss) FROM steps ORDER BY step" 2>/dev/null | tr '|' ','; }

# try CALL N ERRNO FOLDER: returns 1 if the run makes fewer such calls
try() {
    local what="$1 $2 (errno $3) below $4" code part
    rm -rf case hit
    mkdir case
    BITRAIN_TEST_IO="$1:$2:$3:$tmp/case/$4" BITRAIN_TEST_IO_HIT=$tmp/hit LD_PRELOAD=$tmp/io_fault.so \
        timeout 60 "$BITRAIN" "${run[@]}" --name case --store case/m.db --out "$tmp/case/out" >out 2>err
    code=$?
    [ -e hit ] || return 1
    tried=$((tried + 1))
    case $code in
    0 | 1 | 6) ;;
    *) fault "exit $code after $what: $(tail -n 2 err)" ;;
    esac
    [ $code = 0 ] || [ -s err ] || fault "exit $code without a word after $what"
    if grep -qE "Assertion|Segmentation|signal 11|stack smashing" out err; then fault "a crash after $what: $(tail -n 3 err)"; fi
    # Every recorded step has the right values.
    if [ -s case/m.db ]; then
        of >part.txt
        part=$(grep -vxFf calm.txt part.txt | head -n 1)
        [ -z "$part" ] || fault "a recorded loss differs after $what: $part"
    fi
    # The run continues without the fault from any existing checkpoint.
    if compgen -G "case/out/step-*/manifest.json" >/dev/null; then
        timeout 60 "$BITRAIN" train --resume "$tmp/case/out" --store case/m.db >out 2>err
        code=$?
        [ $code = 0 ] || { [ $code = 4 ] && grep -q "has done its 9 steps" err; } || fault "exit $code when resumed after $what: $(tail -n 2 err)"
    else
        rm -rf case/out
        timeout 60 "$BITRAIN" "${run[@]}" --name case2 --store case/m.db --out "$tmp/case/out" >out 2>err || fault "exit $? when begun again after $what: $(tail -n 2 err)"
    fi
    of | tail -n 1 | cmp -s - <(tail -n 1 calm.txt) || fault "the last loss is not the calm run's after $what: $(of | tail -n 1)"
    [ "$(sqlite3 case/m.db 'PRAGMA quick_check')" = ok ] || fault "the database is damaged after $what"
}

tried=0
# The errors of a disk: 5 EIO, 28 ENOSPC, 13 EACCES.
for kind in "write 28" "write 5" "fsync 5" "open 13" "rename 5" "allocate 28" "mkdir 28" "truncate 5" "unlink 13" "read 5"; do
    read -r call errno <<<"$kind"
    for folder in out m.db; do
        if [ -n "${FULL:-}" ]; then
            for n in $(seq 400); do try "$call" "$n" "$errno" "$folder" || break; done
        else # the first call, and one chosen by a seed derived from the source tree
            try "$call" 1 "$errno" "$folder" || continue
            try "$call" $((2 + $(cksum <<<"$call$errno$folder" | cut -d' ' -f1) % 7)) "$errno" "$folder"
        fi
    done
done
echo "$tried faults tried"
[ $tried -ge 12 ] || fault "only $tried calls were reached"
finish
