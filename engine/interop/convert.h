/* convert.h - one model from one format to another, and what the result says compared with what it
 * was made of.
 *
 * Cost:     tensors pass through a buffer; only a linear layer that becomes codes is in memory as a
 *           whole. verify holds one whole model at a time.
 * Failure:  nothing is left of DEST, and an older DEST is never touched: it is refused (BT_BUSY). */
#ifndef BT_ENGINE_INTEROP_CONVERT_H
#define BT_ENGINE_INTEROP_CONVERT_H

#include "engine/interop/model_file.h"

typedef enum { BT_TO_BITRAIN, BT_TO_HF, BT_TO_GGUF } bt_convert_to;

typedef struct bt_convert_job {
    bt_convert_to to;
    const char *dest;
    bt_number number;     /* of the matrices; BT_NUM_COUNT: chosen */
    bool inverse_scale;   /* PACKED: the scale divides (linear_class bitlinear) */
    uint64_t shard_bytes; /* longest safetensors file, 0: 5 GB */
    bool scale_tensors;   /* GGUF: codes of ternary layers times 1, their scales as fp32 tensors */
    bool any_activation;  /* GGUF: write a model whose activation no runtime computes */
} bt_convert_job;

/* notes: one line each about what a person should know of the result; bytes: written */
bt_code bt_convert(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                   bt_err *err) BT_MUST_CHECK;

/* of bt_convert: a folder, a file */
bt_code bt_hf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                    bt_err *err) BT_MUST_CHECK;
bt_code bt_gguf_write(bt_model_file *s, const bt_convert_job *job, bt_text *notes, int64_t *bytes,
                      bt_err *err) BT_MUST_CHECK;

/* Log probabilities of the next token after fixed prompts (1, 3, 17 and 64 tokens at most), drawn
 * from the tokens below `tokens`. fp32, one model in memory, gone again afterwards. */
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
    double largest, mean; /* of |difference| of log probabilities, nats */
    int same_first;       /* prompts after which both find the same token likeliest */
} bt_probe_difference;
/* V may differ by padding: compared is what both have */
bt_probe_difference bt_probe_compare(const bt_probe *a, const bt_probe *b);

#endif
