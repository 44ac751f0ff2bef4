/* adapter_sum.h - several adapters of one base as one: the sum of their products, each times a weight.
 *
 * w1 s1 B1 A1 + w2 s2 B2 A2 is one product B A times a scale: A has the rows of A1, then those of A2; B has the columns
 * of w1 s1 / scale B1, then those of B2. Its rank is the sum of their ranks. A model with that rank computes with all
 * of them at once and reads each input once.
 * Cost:     one tensor in memory at a time.
 * Threads:  one caller. */
#ifndef BT_ENGINE_TUNE_ADAPTER_SUM_H
#define BT_ENGINE_TUNE_ADAPTER_SUM_H

#include "engine/interop/model_file.h"

typedef struct
    bt_adapter_part { /* a checkpoint of adapters, and the weight with which it is added */
    bt_model_file *adapters;
    double weight;
} bt_adapter_part;
enum { BT_ADAPTER_PARTS = 8 };

/* Opens the adapters of n <= BT_ADAPTER_PARTS parts as a model file: cfg.lora has the sum of their ranks, the layers of
 * any of them, and `scale`; there is no tokenizer. The caller must check that all were trained with the same base
 * (bt_base_weights_of). Takes ownership of the parts' files, also after an error. BT_ARG: a part is a classifier, or
 * its layers have other sizes than those of the first part. */
bt_code bt_adapter_sum_open(bt_model_file **out, const bt_adapter_part *parts, size_t n,
                            double scale, bt_err *err) BT_MUST_CHECK;
/* BT_ARG: adapters with magnitudes (DoRA) beside others, or with a weight other than 1: they are not a sum */
bt_code bt_adapter_parts_check(const bt_adapter_part *parts, size_t n, bt_err *err) BT_MUST_CHECK;
/* Closes the files; a part may have none. */
void bt_adapter_parts_close(const bt_adapter_part *parts, size_t n);

#endif
