/* agree_settings.c - verifies that settings, program and data are equal on all ranks; otherwise the job ends before its
 * first step with an error that names the difference.
 *
 * One all-reduce with two hashes per setting detects a difference; only then are values exchanged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "engine/base/sink.h"
#include "engine/config/agree/job_agreement.h"
#include "engine/config/setting_scope.h"

/* Writes a hash and its negation. The maxima over all ranks are equal in magnitude only if all hashes are equal. */
static void put_hash(int64_t pair[2], const char *text, size_t n) {
    pair[0] = (int64_t)(XXH3_64bits(text, n) >> 1);
    pair[1] = -pair[0];
}

static bool pair_differs(const int64_t pair[2]) { return pair[0] != -pair[1]; }

typedef struct holder {
    char host[BT_HOST_MAX], value[64];
} holder;

static bt_code gather_rank_values(const holder *all, int n, const char *what, bt_err *err) {
    int r = 1;
    while (r < n && strcmp(all[r].value, all[0].value) == 0) r++;
    if (r == n) /* the values differ after the stored characters */
        return bt_fail(err, BT_ARG,
                       "the ranks of this job differ in %s, which must be equal on all ranks",
                       what);
    bt_fail(err, BT_ARG,
            "the ranks of this job differ in %s: it is '%s' on rank %d (host '%s') and '%s' on "
            "rank 0 (host '%s')",
            what, all[r].value, r, all[r].host, all[0].value, all[0].host);
    if (err) err->rank = r;
    return BT_ARG;
}

/* Collective. */
static bt_code report_unequal_setting(bt_comm *world, const char *what, const char *value,
                                      bt_err *err) {
    holder mine = {.host = ""}, *all = calloc((size_t)bt_comm_size(world), sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.value, sizeof mine.value, "%s", value);
    bt_code code = all ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for the ranks' values");
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_all_gather(world, &mine, sizeof mine, all, err);
    if (code == BT_OK) code = gather_rank_values(all, bt_comm_size(world), what, err);
    free(all);
    return code;
}

bt_code bt_agree_value(bt_comm *world, const char *what, const char *value, bt_err *err) {
    int64_t pair[2];
    if (bt_comm_size(world) == 1) return BT_OK;
    put_hash(pair, value, strlen(value));
    BT_TRY(bt_all_reduce_i64(world, pair, 2, BT_MAX, err));
    return pair_differs(pair) ? report_unequal_setting(world, what, value, err) : BT_OK;
}

/* Different programs may round differently or have other settings. */
bt_code bt_agree_program(bt_comm *world, bt_err *err) {
    XXH64_hash_t names = 0;
    char text[64];
    if (bt_comm_size(world) == 1) return BT_OK;
    for (size_t i = 0; i < bt_run_opts_n; i++)
        names = XXH3_64bits_withSeed(bt_run_opts[i].key, strlen(bt_run_opts[i].key), names);
    snprintf(text, sizeof text, "%s, %08x, compiler %.30s", BITRAIN_VERSION, (unsigned)names,
             __VERSION__);
    return bt_agree_value(world, "the program", text, err);
}

bt_code bt_agree_settings(bt_comm *world, const bt_run_cfg *cfg, bt_err *err) {
    if (bt_comm_size(world) == 1) return BT_OK;
    BT_TRY(bt_agree_program(world, err));
    const bt_opts o = {.table = bt_run_opts, .n = bt_run_opts_n, .values = (void *)(uintptr_t)cfg};
    int64_t pairs[BT_OPT_MAX][2] = {{0}};
    bt_text value;
    bt_text_init(&value);
    for (size_t i = 0; i < o.n; i++) {
        if (bt_setting_scope_of(o.table[i].key).ranks == BT_SETTING_OWN) continue;
        bt_text_clear(&value);
        bt_opt_value(&o, i, &value);
        put_hash(pairs[i], bt_text_str(&value), value.len);
    }
    bt_code code = value.failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the settings")
                                : BT_OK;
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_all_reduce_i64(world, &pairs[0][0], 2 * o.n, BT_MAX, err);
    for (size_t i = 0; code == BT_OK && i < o.n; i++) {
        if (!pair_differs(pairs[i])) continue;
        bt_text_clear(&value);
        bt_opt_value(&o, i, &value);
        code = report_unequal_setting(world, o.table[i].key, bt_text_str(&value), err);
    }
    bt_text_release(&value);
    return code;
}
