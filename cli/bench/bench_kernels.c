/* bench_kernels.c - `bitrain bench kernels`: the speed of every slot of every kernel set, in percent of the machine's
 * measured peak. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/progress.h"
#include "engine/base/system/json_fields.h"
#include "engine/base/threads.h"
#include "engine/bench/kernel_rates.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"

typedef struct kernels_cfg {
    char isa[16], slot[32];
    int64_t threads;
    double seconds;
    bool json;
} kernels_cfg;

static const bt_opt kernels_opts[] = {
    BT_ROW_TEXT(kernels_cfg, isa, "--isa", "all",
                "kernel set: all (the plain ones left out), or one of " BT_ISA_WORDS),
    BT_ROW_TEXT(kernels_cfg, slot, "--slot", "", "only slots whose name begins so"),
    BT_ROW_INT(kernels_cfg, threads, "--threads", "1", 1, 1024, NULL, "threads"),
    BT_ROW_REAL(kernels_cfg, seconds, "--seconds", "0.1", 0, 60, "s", "spent on each row"),
    BT_ROW_JSON(kernels_cfg),
};

const bt_option_set bt_bench_kernels_opts = BT_OPTION_SET(kernels_opts, kernels_cfg);

typedef struct report {
    bool json;
    bt_text text;
    bt_json j;
    size_t rows;
    bt_progress bar; /* shows the row that is being measured */
} report;

static void show_current_case(void *ctx, const char *isa, const char *slot, const char *size) {
    report *p = ctx;
    char note[96];
    snprintf(note, sizeof note, "%s %s %s", isa, slot, size);
    bt_progress_stage(&p->bar, "measuring", 0, note);
}

static void put_kernel_row(void *ctx, const bt_bench_row *r) {
    report *p = ctx;
    double frac = r->bound > 0 ? r->best / r->bound : NAN;
    p->rows++;
    bt_progress_end(&p->bar);
    if (!p->json) { /* prints row by row, because the whole table takes minutes */
        printf("%-8s %-18s %-15s %9.1f %9.1f %-6s", r->isa, r->slot, r->size, r->best, r->median,
               r->unit);
        if (isfinite(frac)) printf(" %5.1f %% of %s", 100 * frac, r->bound_name);
        printf("\n");
        fflush(stdout);
        return;
    }
    bt_json_object(&p->j, NULL);
    BT_JSON_FIELDS(&p->j, r, F(isa), F(slot), F(size), F(best), F(median), F(unit), F(bound),
                   F(bound_name));
    bt_json_num(&p->j, "roofline_frac", frac);
    bt_json_end(&p->j, '}');
}

bt_code bt_bench_kernels_verb(bt_call *call, bt_err *err) {
    kernels_cfg *cfg = call->cfg;
    report p = {0};
    p.json = cfg->json;
    BT_TRY(bt_threads_init((int)cfg->threads, err));
    if (p.json) {
        bt_json_begin(&p.j, &p.text);
        bt_json_object(&p.j, NULL);
        bt_json_str(&p.j, "cpu", bt_cpu_get()->model);
        bt_json_int(&p.j, "threads", cfg->threads);
        bt_json_array(&p.j, "rows");
    } else {
        printf("%s, %d thread%s\n%-8s %-18s %-15s %9s %9s\n", bt_cpu_get()->model,
               (int)cfg->threads, cfg->threads == 1 ? "" : "s", "isa", "slot", "size", "best",
               "median");
    }
    bt_bench_kernels_cfg bench = {.isa = cfg->isa,
                                  .slot = cfg->slot[0] ? cfg->slot : NULL,
                                  .seconds = cfg->seconds,
                                  .before = show_current_case,
                                  .row = put_kernel_row,
                                  .ctx = &p};
    bt_progress_begin(&p.bar, cfg->json);
    bt_code code = bt_bench_kernels(&bench, err);
    bt_progress_end(&p.bar);
    bt_threads_release();
    if (code == BT_OK && p.rows == 0)
        code = bt_fail(err, BT_ARG,
                       "no slot begins with '%s' (bitrain bench kernels --isa auto lists them)",
                       cfg->slot);
    if (code == BT_OK && p.json) {
        bt_json_end(&p.j, ']');
        bt_json_end(&p.j, '}');
        return bt_cli_put(&p.text, err);
    }
    bt_text_release(&p.text);
    return code;
}
