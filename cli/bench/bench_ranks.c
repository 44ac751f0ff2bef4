/* bench_ranks.c - starts the ranks of a measurement and returns their result. */
#include "cli/bench/bench_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/common/run_shown.h"
#include "monitor/job/launch/run_once.h"

void bt_bench_bar_begin(bt_bench_bar *b, bool marked, bool quiet) {
    b->marked = marked;
    bt_progress_begin(&b->bar, quiet || marked);
}

void bt_bench_bar_show(bt_bench_bar *b, double done, const char *note) {
    if (b->marked)
        bt_run_shown_progress(done, note);
    else
        bt_progress_stage(&b->bar, "measuring", done, note);
}

void bt_bench_bar_end(bt_bench_bar *b) { bt_progress_end(&b->bar); }

/* The result is one line, so newlines of a text report are escaped. */
void bt_bench_print_result(bt_printout *o, bool marked) {
    if (o->json) bt_json_end(&o->j, '}');
    if (o->json && !marked) bt_text_put(&o->out, "\n");
    if (!marked) {
        fputs(bt_text_str(&o->out), stdout);
    } else {
        fputs(BT_RUN_ONCE_RESULT, stdout);
        for (const char *p = bt_text_str(&o->out); *p; p++) fputc(*p == '\n' ? '\t' : *p, stdout);
        fputc('\n', stdout);
        fflush(stdout);
    }
    bt_printout_release(o);
}

bt_code bt_bench_on_ranks(const char *verb, int argc, char **argv, const bt_run_cfg *cfg,
                          bt_err *err) {
    const char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) return bt_fail(err, BT_NOMEM, "no memory for the command line of the ranks");
    words[0] = "bench";
    words[1] = verb;
    for (int i = 0; i < argc; i++) words[2 + i] = argv[i];
    const bt_run_once once = {.ranks = (int)cfg->launch.ranks,
                              .hosts = cfg->launch.hosts,
                              .mpirun_args = cfg->launch.mpirun_args,
                              .words = words,
                              .n_words = (size_t)argc + 2};
    bt_text result;
    bt_text_init(&result);
    bt_code code = bt_run_shown(&once, "measuring", cfg->run.quiet || cfg->run.json, &result, err);
    if (code == BT_OK) {
        for (char *p = result.data; p && *p; p++)
            if (*p == '\t') *p = '\n';
        fputs(bt_text_str(&result), stdout);
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): len > 0 implies data
        if (result.len && result.data[result.len - 1] != '\n') fputc('\n', stdout);
    }
    bt_text_release(&result);
    free(words);
    return code;
}
