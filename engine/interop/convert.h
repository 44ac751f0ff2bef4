/* convert.h - converts a model from one format to another, and compares the predictions of the result with those
 * of the source.
 *
 * Cost:     tensors pass through a buffer; only a linear layer that becomes codes is in memory as a whole. verify
 *           holds one whole model at a time.
 * Failure:  DEST is removed, and an existing DEST is never changed: it is refused (BT_BUSY).
 * Threads:  one caller, which has the thread pool. */
#ifndef BT_ENGINE_INTEROP_CONVERT_H
#define BT_ENGINE_INTEROP_CONVERT_H

#include "engine/interop/model_file.h"

typedef enum { BT_TO_BITRAIN, BT_TO_HF, BT_TO_GGUF } bt_convert_to;

typedef struct bt_convert_job {
    bt_convert_to to;
    const char *dest;
    bt_number number;     /* type of the matrices; BT_NUM_COUNT: automatic */
    bool inverse_scale;   /* PACKED: the scale divides (linear_class bitlinear) */
    uint64_t shard_bytes; /* longest safetensors file, 0: 5 GB */
    bool scale_tensors;   /* GGUF: codes of ternary layers times 1, their scales as fp32 tensors */
    bool any_activation;  /* GGUF: write a model whose activation no runtime computes */
} bt_convert_job;

/* notes: one line for each property of the result that the user should check; bytes: number written */
bt_code bt_convert(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                   bt_err *err) BT_MUST_CHECK;

/* writers used by bt_convert: a folder, a file */
bt_code bt_hf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                    bt_err *err) BT_MUST_CHECK;
bt_code bt_gguf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                      bt_err *err) BT_MUST_CHECK;

/* Log probabilities of the next token after fixed prompts (at most 1, 3, 17 and 64 tokens), drawn from the tokens
 * below `tokens`. fp32; one model in memory, released afterwards. */
enum { BT_PROBES = 4 };
typedef struct bt_probe {
    int V;
    float *log_prob; /* (BT_PROBES, V); malloc'ed */
} bt_probe;
bt_code bt_probe_source(bt_model_file *s, int tokens, bt_probe *out, bt_err *err) BT_MUST_CHECK;
/* log probabilities after one prompt, out (V). The shape's T is cut to the prompt */
bt_code bt_model_file_log_probs(bt_model_file *s, const int32_t *ids, size_t n, float *out,
                                bt_err *err) BT_MUST_CHECK;
void bt_probe_release(bt_probe *p);
typedef struct bt_probe_difference {
    double largest, mean; /* |difference| of log probabilities, in nats */
    int same_first; /* number of prompts after which both models have the same likeliest token */
} bt_probe_difference;
/* the vocabularies may differ by padding: compares the tokens that both have */
bt_probe_difference bt_probe_compare(const bt_probe *a, const bt_probe *b);

#endif
