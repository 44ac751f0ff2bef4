#!/usr/bin/env bash
# Only an output kills a mutant: failed assertions inside functions with which a test replaces those of the program do
# not count (tests/mutation/mutants.py). Sources and outputs made for this test are checked.
set -u
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
cd "${BT_SRC:-$(dirname "$0")/../..}/tests/mutation" || exit 1
PYTHONDONTWRITEBYTECODE=1 python3 - <<'END'
from mutants import only_internal_calls

SOURCE = """static int calls;
bt_code bt_pipe_send(bt_pipe *p, const float *from, bt_err *e) {
    assert_true(p == PIPE);
    return BT_OK;
}
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_ptr_equal(c, WORLD);
    return mine;
}
int bt_comm_rank(const bt_comm *c) { return assert_rank(c); }
static void bt_like_name(void) {
    assert_true(1);
}
static void the_sum_is_right(void **state) {
    bt_sum_all(x, 3);
    assert_true(x[0] == 3);
}
"""


def failed(*lines):
    return "".join(f"[  ERROR   ] --- 0 != 1\n[   LINE   ] --- ../tests/t.c:{n}: error: Failure!\n" for n in lines)


def read(path):
    return SOURCE


for lines, expected in (((3,), True), ((7,), True), ((10,), True), ((3, 7), True), ((12,), False), ((16,), False), ((3, 16), False), ((), False)):
    found = only_internal_calls(failed(*lines), read)
    assert found == expected, (lines, found)


def missing(path):
    raise OSError


assert not only_internal_calls(failed(3), missing)
print("assertions about internal calls are recognized")
END
