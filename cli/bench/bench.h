/* bench.h - the verbs of `bitrain bench`: one file bench_<verb>.c and one row in cmd_bench.c
 * each. */
#ifndef BT_CLI_BENCH_BENCH_H
#define BT_CLI_BENCH_BENCH_H

#include "engine/base/opt.h"
#include "engine/base/status.h"

typedef struct bt_bench_verb {
    const char *name, *summary;
    /* argv after the verb */
    bt_code (*run)(int argc, char **argv, int *exit_status, bt_err *err);
    const bt_opt *(*options)(size_t *n); /* those of `train`: bt_run_opts */
} bt_bench_verb;

bt_code bt_bench_kernels_verb(int argc, char **argv, int *exit_status, bt_err *err);
bt_code bt_bench_train(int argc, char **argv, int *exit_status, bt_err *err);
bt_code bt_bench_learn(int argc, char **argv, int *exit_status, bt_err *err);
bt_code bt_bench_decode(int argc, char **argv, int *exit_status, bt_err *err);
bt_code bt_bench_comm(int argc, char **argv, int *exit_status, bt_err *err);
bt_code bt_bench_http(int argc, char **argv, int *exit_status, bt_err *err);
bt_code bt_bench_store(int argc, char **argv, int *exit_status, bt_err *err);

/* their option tables */
const bt_opt *bt_bench_kernels_opts(size_t *n);
const bt_opt *bt_bench_learn_opts(size_t *n);
const bt_opt *bt_bench_decode_opts(size_t *n);
const bt_opt *bt_bench_http_opts(size_t *n);
const bt_opt *bt_bench_store_opts(size_t *n);

#endif
