/* sample.h - collects the rows of one sampled scope (scopes.def) in one step for the sink. Memory is allocated once;
 * adding rows allocates none.
 *
 * Order:    init -> { add* -> send }* -> release. Threads: the training thread, on rank 0. */
#ifndef BT_ENGINE_OBSERVE_SAMPLE_H
#define BT_ENGINE_OBSERVE_SAMPLE_H

#include "engine/base/sink.h"
#include "engine/base/status.h"

typedef struct bt_sample {
    bt_scope scope;
    size_t n, max; /* number of rows, and room */
    bt_key *keys;
    double *values;
} bt_sample;

bt_code bt_sample_init(bt_sample *s, bt_scope scope, size_t max_rows, bt_err *err) BT_MUST_CHECK;
size_t bt_sample_bytes(bt_scope scope, size_t max_rows); /* memory that init allocates */
void bt_sample_release(bt_sample *s);
/* Adds a row with these keys, in the order of scopes.def; texts are borrowed until `send`. Returns its values, all NaN,
 * in the order of the scope's metrics. */
double *bt_sample_add(bt_sample *s, const bt_key *keys);
/* Sends the rows, if there are any and the sink accepts them, and removes them. */
void bt_sample_send(bt_sample *s, const bt_sink *sink, int64_t step);

#endif
