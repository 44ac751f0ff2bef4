/* skipped_data.c - an ascending list of ranges. */
#include "engine/train/parts/bad_steps/skipped_data.h"

#include <stdlib.h>
#include <string.h>

void bt_skipped_release(bt_skipped *s) {
    free(s->ranges);
    memset(s, 0, sizeof *s);
}

static bool reserve_ranges(bt_skipped *s, size_t n) {
    if (n <= s->cap) return true;
    const size_t cap = n < 16 ? 16 : 2 * n;
    int64_t(*more)[2] = realloc(s->ranges, cap * sizeof *more);
    if (!more) return false;
    s->ranges = more;
    s->cap = cap;
    return true;
}

bt_code bt_skipped_add(bt_skipped *s, int64_t first, int64_t count, bt_err *err) {
    if (s->n > 0 && s->ranges[s->n - 1][1] == first) {
        s->ranges[s->n - 1][1] += count;
        return BT_OK;
    }
    if (!reserve_ranges(s, s->n + 1))
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu skipped ranges of sequences",
                       s->n + 1);
    s->ranges[s->n][0] = first;
    s->ranges[s->n++][1] = first + count;
    return BT_OK;
}

static void save_skipped(void *ctx, bt_json *j) {
    const bt_skipped *s = ctx;
    bt_json_array(j, "sequences"); /* first, end, first, end, ... */
    for (size_t i = 0; i < 2 * s->n; i++) bt_json_int(j, NULL, s->ranges[i / 2][i % 2]);
    bt_json_end(j, ']');
}

/* An invalid list, or one that does not fit into memory, is read as empty, because no decision depends on it. */
static void load_skipped(void *ctx, const bt_state_values *v) {
    enum { MOST = 1 << 20 }; /* bounds the manifest's size */
    bt_skipped *s = ctx;
    int64_t *numbers = calloc(MOST, sizeof *numbers);
    s->n = 0;
    if (!numbers) return;
    const size_t n = bt_state_ints(v, "sequences", numbers, MOST) / 2;
    bool ascending = reserve_ranges(s, n);
    for (size_t i = 0; ascending && i < n; i++) {
        ascending = numbers[2 * i] < numbers[2 * i + 1] && numbers[2 * i] >= 0 &&
                    (i == 0 || numbers[2 * i - 1] < numbers[2 * i]);
        memcpy(s->ranges[i], numbers + 2 * i, sizeof s->ranges[i]);
    }
    s->n = ascending ? n : 0;
    free(numbers);
}

void bt_skipped_add_state(bt_skipped *s, bt_state *state) {
    bt_state_add(
        state,
        &(bt_state_row){.name = "skipped", .ctx = s, .save = save_skipped, .load = load_skipped});
}
