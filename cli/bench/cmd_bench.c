/* cmd_bench.c - `bitrain bench VERB`: measurements anyone can repeat. */
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/common/command.h"
#include "cli/common/verbs.h"
#include "engine/config/run_cfg.h"

/* of the verbs that measure a run */
static const bt_opt *run_options(size_t *n) {
    *n = bt_run_opts_n;
    return bt_run_opts;
}

static const bt_bench_verb verbs[] = {
    {"kernels", "every kernel slot against the machine's peaks", bt_bench_kernels_verb,
     bt_bench_kernels_opts},
    {"train", "whole training steps", bt_bench_train, run_options},
    {"learn", "minutes and tokens until a validation loss, recipe beside recipe", bt_bench_learn,
     bt_bench_learn_opts},
    {"comm", "the link between ranks, and every codec on it", bt_bench_comm, run_options},
    {"decode", "generation, token by token", bt_bench_decode, bt_bench_decode_opts},
    {"store", "writing and reading the metrics database", bt_bench_store, bt_bench_store_opts},
    {"http", "the dashboard's server", bt_bench_http, bt_bench_http_opts},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

extern const bt_command bt_cmd_bench;

static bool verb_help(size_t i, bt_verb_help *out) {
    if (i >= N_VERBS) return false;
    *out = (bt_verb_help){.name = verbs[i].name, .words = "", .summary = verbs[i].summary};
    out->options = verbs[i].options(&out->n_options);
    return true;
}

static bt_code run(int argc, char **argv, int *exit_status, bt_err *err) {
    for (size_t i = 0; i < N_VERBS; i++)
        if (argc > 0 && strcmp(argv[0], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1, exit_status, err);
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
    .verb = verb_help,
    .run = run,
};
