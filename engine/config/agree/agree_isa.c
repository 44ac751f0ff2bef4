/* agree_isa.c - chooses the kernel set of a job: the best one that every processor has and every --isa allows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/sink.h"
#include "engine/base/testing/testing.h"
#include "engine/config/agree/job_agreement.h"
#include "engine/kernels/isa/blas.h"
#include "engine/kernels/table/cpu.h"

typedef struct offer {
    bt_isa_level processor; /* best level of this rank's processor */
    bt_isa_level allowed;   /* best level that --isa allows */
    char isa[16];           /* --isa */
    char host[BT_HOST_MAX];
} offer;

static bt_isa_level processor_level(int rank) {
    const char *pretended = bt_testing_processor(rank);
    const bt_isa_level found = bt_kernels_level("auto"),
                       level = pretended ? bt_kernels_level(pretended) : found;
    return level < found ? level : found;
}

static bool is_auto_offer(const char *isa) { return !isa[0] || strcmp(isa, "auto") == 0; }

static bt_code make_offer(int rank, const char *isa, offer *o, bt_err *err) {
    memset(o, 0, sizeof *o);
    snprintf(o->isa, sizeof o->isa, "%s", isa);
    gethostname(o->host, sizeof o->host - 1);
    o->processor = o->allowed = processor_level(rank);
    if (is_auto_offer(isa)) return BT_OK;
    bt_err why = BT_ERR_INIT;
    o->allowed = bt_kernels_level(isa);
    bt_code code = bt_kernels_select(isa, &why);
    if (code == BT_OK && o->allowed > o->processor)
        code = bt_fail(
            &why, BT_UNSUPPORTED,
            "the kernel set '%s' does not run on this processor (%s): choose another with --isa",
            isa, bt_cpu_get()->model);
    return code == BT_OK ? BT_OK
                         : bt_fail(err, code, "%s (rank %d on host '%s')", why.msg, rank, o->host);
}

/* Returns in *same whether all ranks run the same OpenBLAS kernels, without which their results differ. */
static bt_code compare_blas_kernels(bt_comm *world, bool *same, bt_err *err) {
    char mine[64] = "", *all = calloc((size_t)bt_comm_size(world), sizeof mine);
    bt_code code = all ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for the ranks' names");
    code = bt_agree(world, code, err);
    if (code == BT_OK) {
        if (bt_blas_load(NULL) == BT_OK) snprintf(mine, sizeof mine, "%s", bt_blas_corename());
        code = bt_all_gather(world, mine, sizeof mine, all, err);
    }
    *same = code == BT_OK && mine[0];
    for (int r = 0; code == BT_OK && r < bt_comm_size(world); r++)
        *same &= memcmp(all + (size_t)r * sizeof mine, all, sizeof mine) == 0;
    free(all);
    return code;
}

/* Lists levels, the best first, as in "avx512 on ranks 0-2, avx2 on rank 3"; truncated if out is too small. */
static void list_processors(const offer *all, int n, char *out, size_t size) {
    bt_text t;
    bt_text_init(&t);
    for (int level = BT_LEVEL_COUNT - 1; level >= 0; level--) {
        int found = 0, has = 0;
        for (int r = 0; r < n; r++) has += all[r].processor == (bt_isa_level)level;
        for (int r = 0, last; r < n; r = last + 1) {
            last = r;
            if (all[r].processor != (bt_isa_level)level) continue;
            while (last + 1 < n && all[last + 1].processor == (bt_isa_level)level) last++;
            if (!found++)
                bt_text_printf(&t, "%s%s on rank%s %d", t.len ? ", " : "",
                               bt_kernels_level_isa((bt_isa_level)level), has == 1 ? "" : "s", r);
            else
                bt_text_printf(&t, ",%d", r);
            if (last > r) bt_text_printf(&t, "-%d", last);
        }
    }
    snprintf(out, size, "%s", bt_text_str(&t));
    if (t.len >= size) memcpy(out + size - 4, "...", 4);
    bt_text_release(&t);
}

/* Writes which rank limits the kernel set of the job; "" if every rank uses its best set. */
static void explain_kernel_set(const offer *all, int n, bt_isa_level job, char *out, size_t size) {
    int low = 0, high = 0;
    for (int r = 1; r < n; r++) {
        if (all[r].allowed < all[low].allowed) low = r;
        if (all[r].allowed > all[high].allowed) high = r;
    }
    out[0] = '\0';
    if (all[high].allowed == job) return;
    const char *set = bt_kernels_level_isa(job);
    if (all[low].allowed > job) /* the ranks have different OpenBLAS kernels */
        snprintf(out, size, "all ranks compute with %s kernels: they have no faster set in common",
                 set);
    else if (all[low].allowed < all[low].processor)
        snprintf(out, size,
                 "all ranks compute with %s kernels: rank %d on host '%s' was given --isa %s (rank "
                 "%d could use %s)",
                 set, low, all[low].host, all[low].isa, high,
                 bt_kernels_level_isa(all[high].allowed));
    else
        snprintf(out, size,
                 "all ranks compute with %s kernels: the processor of rank %d on host '%s' has no "
                 "better (rank %d could use %s)",
                 set, low, all[low].host, high, bt_kernels_level_isa(all[high].allowed));
}

static bt_code choose_common_isa(bt_comm *world, const offer *all, bt_isa_agreement *out,
                                 bt_err *err) {
    const int n = bt_comm_size(world);
    const offer *mine = &all[bt_comm_rank(world)];
    bt_isa_level least = BT_LEVEL_COUNT, most = BT_LEVEL_GENERIC;
    for (int r = 0; r < n; r++) {
        if (all[r].allowed < least) least = all[r].allowed;
        if (all[r].allowed > most) most = all[r].allowed;
    }
    bool same = true;
    if (least == BT_LEVEL_BLAS) BT_TRY(compare_blas_kernels(world, &same, err));
    const bt_isa_level job = same ? least : BT_LEVEL_GENERIC;
    list_processors(all, n, out->processors, sizeof out->processors);
    explain_kernel_set(all, n, job, out->note, sizeof out->note);
    /* A rank keeps its own name for the set if both names are equivalent; avx512-plain may run without VNNI. */
    const bool keep = most == job || (mine->allowed == job && !is_auto_offer(mine->isa));
    if (!keep) snprintf(out->isa, sizeof out->isa, "%s", bt_kernels_level_isa(job));
    out->changed = strcmp(out->isa, mine->isa) != 0;
    return BT_OK;
}

bt_code bt_agree_isa(bt_comm *world, const char *isa, bt_isa_agreement *out, bt_err *err) {
    offer mine, *all = calloc((size_t)bt_comm_size(world), sizeof *all);
    memset(out, 0, sizeof *out);
    snprintf(out->isa, sizeof out->isa, "%s", isa);
    bt_code code = all ? make_offer(bt_comm_rank(world), isa, &mine, err)
                       : bt_fail(err, BT_NOMEM,
                                 "cannot allocate memory for the kernel sets of all ranks");
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_all_gather(world, &mine, sizeof mine, all, err);
    if (code == BT_OK) code = choose_common_isa(world, all, out, err);
    free(all);
    BT_TRY(code);
    double pays = bt_kernels_int8_attention_pays(out->isa);
    BT_TRY(bt_all_reduce_f64(world, &pays, 1, BT_MIN, err));
    out->int8_attention = pays > 0;
    return BT_OK;
}

void bt_isa_agreement_apply(const bt_isa_agreement *a, bt_run_cfg *cfg) {
    memcpy(cfg->launch.isa, a->isa, sizeof cfg->launch.isa);
    cfg->int8_attention_slow = !a->int8_attention;
}
