/* cmd_bench.c - `bitrain bench VERB`: measurements anyone can repeat. */
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/common/command.h"
#include "cli/common/verbs.h"
#include "engine/config/run_cfg.h"

static const bt_option_set run_options = {
    .rows = bt_run_opts}; /* options of the verbs that measure a run */

static const bt_bench_verb verbs[] = {
    {"kernels", "speed of every kernel compared with the machine's peaks", &bt_bench_kernels_opts,
     bt_bench_kernels_verb, NULL},
    {"train", "whole training steps", &run_options, NULL, bt_bench_train},
    {"learn", "minutes and tokens until a validation loss, for several recipes",
     &bt_bench_learn_opts, bt_bench_learn, NULL},
    {"comm", "the link between ranks, and every codec on it", &run_options, NULL, bt_bench_comm},
    {"decode", "generation, token by token", &bt_bench_decode_opts, bt_bench_decode, NULL},
    {"store", "writing and reading the metrics database", &bt_bench_store_opts, bt_bench_store,
     NULL},
    {"http", "the dashboard's server", &bt_bench_http_opts, bt_bench_http, NULL},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

extern const bt_command bt_cmd_bench;

static bool bench_verb_help(size_t i, bt_verb_help *out) {
    if (i >= N_VERBS) return false;
    *out = (bt_verb_help){.name = verbs[i].name,
                          .words = "",
                          .summary = verbs[i].summary,
                          .options = verbs[i].options->rows,
                          .n_options = bt_option_count(verbs[i].options)};
    return true;
}

static bt_code cmd_bench(int argc, char **argv, int *exit_status, bt_err *err) {
    for (size_t i = 0; i < N_VERBS; i++) {
        if (argc == 0 || strcmp(argv[0], verbs[i].name) != 0) continue;
        const bt_command verb = {
            .options = *verbs[i].options, .run = verbs[i].run, .run_argv = verbs[i].run_argv};
        return bt_command_run(&verb, argc - 1, argv + 1, exit_status, err);
    }
    return bt_no_verb(&bt_cmd_bench, argc ? argv[0] : NULL, err);
}

const bt_command bt_cmd_bench = {
    .ranked = true,
    .name = "bench",
    .summary =
        "measure this machine: kernels, training, recipes, links, generation, database, dashboard",
    .args = "kernels|train|learn|comm|decode|store|http",
    .examples = "bitrain bench train --preset small --threads 1 --data synth:chain --json\n"
                "bitrain bench train --preset nano --ranks 2 --threads 1 --steps 20\n"
                "bitrain bench learn --recipe default: 'muon: optim.name=muon' --goal 1.88 --with "
                "train.steps=1000\n"
                "bitrain bench comm --ranks 2 --json\n"
                "bitrain bench kernels --isa auto --slot tern\n"
                "bitrain bench decode --preset base --threads 1\n"
                "bitrain bench store --ranks 8 --steps 100000 --json\n"
                "bitrain bench http --ranks 8 --steps 1000000\n",
    .verb = bench_verb_help,
    .run_argv = cmd_bench,
};
