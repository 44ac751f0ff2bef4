/* engine_fixture.h - set-up and tear-down of test groups that compute: the fastest kernels, two threads. */
#ifndef BT_TESTS_ENGINE_MODEL_ENGINE_FIXTURE_H
#define BT_TESTS_ENGINE_MODEL_ENGINE_FIXTURE_H

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/kernels.h"

static inline int engine_start(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    return bt_kernels_select("auto", &err) != BT_OK || bt_threads_init(2, &err) != BT_OK;
}

static inline int engine_stop(void **state) {
    (void)state;
    bt_ops_release();
    bt_threads_release();
    return 0;
}

#endif
