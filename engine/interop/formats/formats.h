/* formats.h - architectures, element types and tensor names of other programs' files (formats.def), and conversions
 * between each type and floats.
 *
 * Threads: constant tables and pure functions. */
#ifndef BT_ENGINE_INTEROP_FORMATS_H
#define BT_ENGINE_INTEROP_FORMATS_H

#include "engine/model/shape/params.h"

#define BT_ARCH(id, ...) BT_ARCH_##id,
#define BT_NUMBER(...)
#define BT_NAME(...)
typedef enum {
#include "engine/interop/formats/formats.def"
    BT_ARCH_COUNT
} bt_arch;
#undef BT_ARCH
#undef BT_NUMBER
#define BT_ARCH(...)
#define BT_NUMBER(id, ...) BT_NUM_##id,
typedef enum {
#include "engine/interop/formats/formats.def"
    BT_NUM_COUNT
} bt_number;
#undef BT_ARCH
#undef BT_NUMBER
#undef BT_NAME

typedef struct bt_arch_row {
    const char *hf_class, *model_type, *gguf; /* gguf NULL: GGUF has no such architecture */
    bt_norm_kind norm;
    bool qk_norm, qkv_bias, turned, joined, window;
    int no_rope;
    bool tied; /* the following members are defaults for keys missing in config.json */
    double theta, eps;
    const char *act;
    int kv;
    /* Few classes have the following members; zeros select what the other classes compute. */
    bool post_norm, embed_scale; /* as in bt_model_cfg */
    bool partial;                /* only a part of each head may rotate (model.rotary_dim) */
    float gain_offset; /* Hugging Face stores the gains of norms minus this number; GGUF does not */
    int head_dim;      /* default for a missing key; 0: hidden_size / heads, 128 with QK-norm */
    int sliding_window; /* default for a missing key; 0: none */
    /* Number of layers after which a global layer follows, for classes with local and global layers. Rows with
     * query_scale have such a factor, those with local_theta a second rotary base, and those with attention_cap soft
     * limits in llama.cpp. */
    int window_every;
    double query_scale, local_theta, attention_cap, logit_cap;
    /* llama.cpp scales the queries of a model with this number of layers by C / H instead of D; 0: of no model */
    int wide_layers;
    const char *own_keys
        [10]; /* keys of config.json and GGUF that only such classes use; NULL after the last one */
} bt_arch_row;

typedef struct bt_number_row {
    const char *word, *safetensors;
    int ggml;
    size_t block, bytes; /* elements of a block, bytes of one */
    int file_type;
    bool coded;
} bt_number_row;

const bt_arch_row *bt_arch_at(bt_arch a);
const bt_number_row *bt_number_at(bt_number n);
/* Returns BT_NUM_COUNT if there is no such type, or the name is NULL. */
bt_number bt_number_of_safetensors(const char *name);
bt_number bt_number_of_ggml(uint32_t type);
/* Returns the bytes of n elements; n must be a multiple of the block. */
size_t bt_number_bytes(bt_number t, size_t n);

/* Write names such as "model.layers.3.mlp.up_proj.weight" and "blk.3.ffn_up.weight"; suffix: ".weight", ... */
enum { BT_FOREIGN_NAME = 96 };
void bt_name_hf(char out[BT_FOREIGN_NAME], bt_arch arch, const bt_tensor *t, const char *suffix);
/* Returns the index of a tensor in the joined tensor of the architecture, or -1 if it is not joined. */
int bt_arch_part(bt_arch arch, const bt_tensor *t);
void bt_name_hf_out(char out[BT_FOREIGN_NAME], bt_arch arch, const bt_tensor *t,
                    const char *suffix);
void bt_name_gguf_out(char out[BT_FOREIGN_NAME], bt_arch arch, const bt_tensor *t,
                      const char *suffix);
/* Writes the name in folders of older classes; returns false if there is no other name. */
bool bt_name_hf_other(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *suffix);
void bt_name_gguf(char out[BT_FOREIGN_NAME], const bt_tensor *t, const char *suffix);

/* Returns "relu2", "silu" or "gelu"; the inverse returns -1 for an unknown word. */
const char *bt_arch_act_word(bt_act act);
int bt_arch_act_of(const char *word);
bt_act bt_arch_gguf_act(const bt_arch_row *r);
double bt_arch_gguf_query_scale(const bt_arch_row *r, const bt_model_cfg *c);
/* Returns the number that the architecture adds to this gain of a norm; 0 for all other tensors. */
float bt_arch_gain_offset(bt_arch arch, const bt_tensor *t);
/* Returns T, or with BT_ROPE_LONGROPE the length from which other programs compute the factor. */
int bt_arch_longest_text(const bt_model_cfg *c);
/* Finds the architecture that computes the same as the model. BT_UNSUPPORTED: there is none; err has the reason. */
bt_code bt_arch_of_model(bt_arch *out, const bt_model_cfg *c, bt_err *err) BT_MUST_CHECK;

/* bytes after the codes of a tensor of I2_S; the first four are its scale */
enum { BT_I2_S_TAIL = 32 };

/* Decodes n elements, in whole blocks. Not PACKED (its rows are interleaved). BT_FORMAT: an invalid code. */
bt_code bt_number_decode(bt_number t, float *out, const unsigned char *in, size_t n, bt_err *err)
    BT_MUST_CHECK;
/* Decodes n elements that are 0 or +-*size to codes -1, 0, 1, without floats. *size 0: unknown; the first nonzero
 * element sets it. Returns false without an error if an element has another size, or if bt_number_decode would report
 * an error. */
bool bt_number_codes(bt_number t, int8_t *codes, const unsigned char *in, size_t n, float *size)
    BT_MUST_CHECK;
/* F32, F16, BF16, Q8_0 */
void bt_number_encode(bt_number t, unsigned char *out, const float *in, size_t n);
/* TQ1_0, TQ2_0, Q2_0: codes -1, 0, 1 and one scale for all; a block of zeros has the scale 0, as the packers of
 * llama.cpp write it. I2_S: only the codes; the scale of the tensor follows them. */
void bt_number_encode_codes(bt_number t, unsigned char *out, const int8_t *codes, float scale,
                            size_t n);

#endif
