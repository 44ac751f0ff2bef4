/* convert.h - converts a model from one format to another, and compares the predictions of the result with those of the
 * source.
 *
 * Cost:     tensors pass through a buffer; only a linear layer that becomes codes is in memory as a whole. verify has
 *           one whole model in memory at a time.
 * Failure:  DEST is removed. An existing DEST is never changed but refused (BT_BUSY).
 * Threads:  one caller, which has the thread pool. */
#ifndef BT_ENGINE_INTEROP_CONVERT_H
#define BT_ENGINE_INTEROP_CONVERT_H

#include "engine/interop/model_file.h"

typedef enum { BT_TO_BITRAIN, BT_TO_HF, BT_TO_GGUF } bt_convert_to;

typedef struct bt_convert_job {
    bt_convert_to to;
    const char *dest;
    bt_number number;   /* type of the matrices; BT_NUM_COUNT: automatic */
    bool inverse_scale; /* PACKED: the weights are divided by the scale (linear_class bitlinear) */
    uint64_t shard_bytes; /* longest safetensors file, 0: 5 GB */
    bool
        scale_tensors; /* GGUF: ternary layers are stored as codes times 1, and their scales as fp32 tensors */
    bool any_activation; /* GGUF: also writes a model whose activation no other program computes */
} bt_convert_job;

/* Converts a model. notes: a line for each property of the result to check. bytes: the number written. */
bt_code bt_convert(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                   bt_err *err) BT_MUST_CHECK;

/* The writers that bt_convert uses: of a folder, of a file. */
bt_code bt_hf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                    bt_err *err) BT_MUST_CHECK;
bt_code bt_gguf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                      bt_err *err) BT_MUST_CHECK;

/* Log probabilities of the next token after fixed prompts of at most 1, 3, 17 and 64 tokens, which are drawn from the
 * tokens below `tokens`. Computed in fp32; one model is in memory at a time. */
enum { BT_PROBES = 4 };
typedef struct bt_probe {
    int V;
    float *log_prob; /* (BT_PROBES, V); malloc'ed */
} bt_probe;
bt_code bt_probe_source(bt_model_file *s, int tokens, bt_probe *out, bt_err *err) BT_MUST_CHECK;
/* Computes the log probabilities after one prompt, out (V). The shape's T is reduced to the prompt. */
bt_code bt_model_file_log_probs(bt_model_file *s, const int32_t *ids, size_t n, float *out,
                                bt_err *err) BT_MUST_CHECK;
void bt_probe_release(bt_probe *p);
typedef struct bt_probe_difference {
    double largest, mean; /* |difference| of log probabilities, in nats */
    int same_first; /* number of prompts after which both models have the same likeliest token */
} bt_probe_difference;
/* Compares the tokens that both vocabularies have; they may differ by padding. */
bt_probe_difference bt_probe_compare(const bt_probe *a, const bt_probe *b);

#endif
