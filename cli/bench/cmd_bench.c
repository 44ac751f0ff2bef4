/* cmd_bench.c - `bitrain bench VERB`: measurements anyone can repeat. */
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/common/command.h"
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

static const bt_opt *options_of(const char *verb, size_t *n) {
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(verb, verbs[i].name) == 0) return verbs[i].options(n);
    return NULL;
}

static bt_code run(int argc, char **argv, int *exit_status, bt_err *err) {
    const char *names[N_VERBS];
    for (size_t i = 0; i < N_VERBS; i++) {
        names[i] = verbs[i].name;
        if (argc > 0 && strcmp(argv[0], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1, exit_status, err);
    }
    bt_text all;
    bt_text_init(&all);
    for (size_t i = 0; i < N_VERBS; i++) bt_text_printf(&all, "%s%s", i ? " | " : "", names[i]);
    bt_code code;
    if (argc == 0) {
        code = bt_fail(err, BT_ARG, "what to measure is missing (%s)", bt_text_str(&all));
    } else {
        const char *near = bt_nearest(argv[0], names, N_VERBS);
        code =
            near
                ? bt_fail(err, BT_ARG, "cannot measure '%.80s' (did you mean '%s'?)", argv[0], near)
                : bt_fail(err, BT_ARG, "cannot measure '%.80s' (%s)", argv[0], bt_text_str(&all));
    }
    bt_text_release(&all);
    return code;
}

const bt_command bt_cmd_bench = {
    .name = "bench",
    .summary =
        "measure kernels, training, recipes, the link between ranks, generation, the metrics "
        "database or the dashboard on this machine",
    .args = "kernels|train|learn|comm|decode|store|http [OPTIONS]",
    .examples = "bitrain bench train --preset small --threads 1 --data synth:chain --json\n"
                "bitrain bench train --preset nano --ranks 2 --threads 1 --steps 20\n"
                "bitrain bench learn --recipe default: 'muon: optim.name=muon' --goal 1.88 --with "
                "train.steps=1000\n"
                "bitrain bench comm --ranks 2 --json\n"
                "bitrain bench kernels --isa auto --slot tern\n"
                "bitrain bench decode --preset base --threads 1\n"
                "bitrain bench store --ranks 8 --steps 100000 --json\n"
                "bitrain bench http --ranks 8 --steps 1000000\n",
    .verb_options = options_of,
    .run = run,
};
