/* convert.c - converts a model to each of the formats. */
#include "engine/interop/convert.h"

#include "engine/interop/native.h"

bt_code bt_convert(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                   bt_err *err) {
    switch (job->to) {
    case BT_TO_BITRAIN: return bt_native_write(s, job->dest, bytes, err);
    case BT_TO_HF: return bt_hf_write(s, job, notes, bytes, err);
    case BT_TO_GGUF: return bt_gguf_write(s, job, notes, bytes, err);
    }
    return bt_fail(err, BT_ARG, "models cannot be written in this format");
}
