/* bench.h - the verbs of `bitrain bench`; each has a file bench_<verb>.c and a row in cmd_bench.c. */
#ifndef BT_CLI_BENCH_BENCH_H
#define BT_CLI_BENCH_BENCH_H

#include "cli/common/command.h"

typedef struct bt_bench_verb {
    const char *name, *summary;
    const bt_option_set *options;
    bt_code (*run)(bt_call *call, bt_err *err);
    /* function of a verb that starts ranks with arguments of `train`, instead of `run` */
    bt_code (*run_argv)(int argc, char **argv, int *exit_status, bt_err *err);
} bt_bench_verb;

bt_code bt_bench_kernels_verb(bt_call *call, bt_err *err);
bt_code bt_bench_learn(bt_call *call, bt_err *err);
bt_code bt_bench_decode(bt_call *call, bt_err *err);
bt_code bt_bench_http(bt_call *call, bt_err *err);
bt_code bt_bench_store(bt_call *call, bt_err *err);
bt_code bt_bench_train(int argc, char **argv, int *exit_status, bt_err *err);
bt_code bt_bench_comm(int argc, char **argv, int *exit_status, bt_err *err);

extern const bt_option_set bt_bench_kernels_opts, bt_bench_learn_opts, bt_bench_decode_opts,
    bt_bench_http_opts, bt_bench_store_opts;

#endif
