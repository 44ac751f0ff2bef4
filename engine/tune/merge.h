/* merge.h - a model to whose weights its adapters are added; it is read like a file (interop/model_file.h), and so can
 * be written in
 * any format.
 *
 * W are the latent weights of a ternary layer, c their codes, g their scale (absmean; with model.scale everything holds
 * for each row or group), and D = scale B A, or for several adapters the sum of weight scale B A:
 *     DENSE    g c + D, in a model without quantisers. For a dense base: W + D, exactly the trained model.
 *              For a ternary base the layers then read floats instead of int8
 *     LATENT   W + D, quantised again by its readers
 *     KEEP     the codes of (g c + D) / g, and the scale g
 *     FIT      those codes c', and the scale <g c + D, c'> / <c', c'> that fits them best
 *
 * With magnitudes m (DoRA) each row j of the sum is multiplied by m_j / |row j of g c + D|, or of W + D if dense.
 *
 * Quantising again loses a part of the training, since D changes a code only if it reaches g / 2: bt_merge_describe
 * reports how many
 * codes changed.
 * Cost:     one tensor in memory at a time.
 * Threads:  one caller. */
#ifndef BT_ENGINE_TUNE_MERGE_H
#define BT_ENGINE_TUNE_MERGE_H

#include "engine/tune/adapter_sum.h"

/* In the order of the words in cli/model/cmd_convert.c. */
typedef enum {
    BT_MERGE_NONE,
    BT_MERGE_DENSE,
    BT_MERGE_LATENT,
    BT_MERGE_KEEP,
    BT_MERGE_FIT
} bt_merge_kind;

/* Takes ownership of the adapters of n <= BT_ADAPTER_PARTS parts, also after an error. BT_ARG: they have another base,
 * or it is dense
 * and kind needs codes. Close with bt_model_file_close. */
bt_code bt_merge_open(bt_model_file **out, const bt_adapter_part *parts, size_t n, const char *base,
                      bt_merge_kind kind, bt_err *err) BT_MUST_CHECK;
/* Writes lines about the tensors that have been read: their adapters, and the number of changed codes. */
void bt_merge_describe(const bt_model_file *s, bt_text *notes);

#endif
