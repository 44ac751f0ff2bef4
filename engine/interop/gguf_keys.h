/* gguf_keys.h - words that the reader and the writer of GGUF files share.
 *
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_INTEROP_GGUF_KEYS_H
#define BT_ENGINE_INTEROP_GGUF_KEYS_H

#include "engine/base/text.h"
#include "engine/interop/formats/gguf.h"
#include "engine/interop/model_file.h"

/* Bitrain's own keys, which other programs ignore: the kind of linear layers ("bitnet158", "dense"), the activation
 * with
 * which the model was trained, and whether text is normalised to NFC. */
#define BT_KEY_LINEAR "bitrain.linear"
#define BT_KEY_ACT "bitrain.hidden_activation"
/* the architecture of bitnet.cpp for BitNet b1.58 2B4T: that of llama.cpp's bitnet, with relu2 */
#define BT_GGUF_B158 "bitnet-b1.58"
#define BT_KEY_NFC "bitrain.normalizer_nfc"

/* Values of tokenizer.ggml.token_type. */
enum {
    BT_GGUF_NORMAL = 1,
    BT_GGUF_UNKNOWN,
    BT_GGUF_CONTROL,
    BT_GGUF_USER_DEFINED,
    BT_GGUF_UNUSED,
    BT_GGUF_BYTE
};

/* Names of llama.cpp's pre-tokenisers; the first one of a pattern is written. ignore_merges: what llama.cpp does with
 * such a
 * vocabulary. pattern: the name of a fixed pattern, or regular expressions, one per line. */
typedef struct bt_gguf_pre {
    const char *pre, *pattern;
    bool ignore_merges;
} bt_gguf_pre;
extern const bt_gguf_pre bt_gguf_pres[];
extern const size_t bt_gguf_pres_n;

/* Compares all keys of a file with those that are used; keys of the model begin with arch->gguf. BT_UNSUPPORTED names a
 * key
 * that changes what the model computes (a scaled rotary embedding, experts, attention to later tokens), or a file that
 * does
 * not contain a whole model (adapters, a part of a split file). notes receives at most one line: the unused keys. */
bt_code bt_gguf_keys_check(const bt_gguf *g, const bt_arch_row *arch, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

typedef struct bt_gguf_rope_key { /* has an f32 or a u32, and no prefix of the architecture */
    const char *name;
    bool real;
    double value;
} bt_gguf_rope_key;
typedef struct bt_gguf_rope_tensor { /* has a divisor for each rotary frequency */
    const char *name;
    size_t n;
    float by[512];
} bt_gguf_rope_tensor;
/* The scaling of rotary frequencies in a file. */
typedef struct bt_gguf_rope {
    const char *type; /* rope.scaling.type, or NULL */
    bt_gguf_rope_key keys[6];
    size_t n_keys, n_tensors;
    bt_gguf_rope_tensor tensors[2];
} bt_gguf_rope;
void bt_gguf_rope_write(bt_gguf_rope *out, const bt_model_cfg *c);

/* Returns the name of the architecture in a file whose matrices have this type; NULL: there is none. */
const char *bt_gguf_word(bt_arch arch, bt_act act, bt_number number);
/* Returns the activation that programs compute for files with this name. */
bt_act bt_gguf_act(bt_arch arch, const char *word);
/* Returns the type of the model's matrices if none is chosen. */
bt_number bt_gguf_default_number(const bt_model_file *s);
/* Refuses layers that are not ternary, or whose scales cannot be stored in a file of this type, or with scales in
 * separate
 * tensors. */
bt_code bt_gguf_scales_check(bt_arch arch, const bt_model_cfg *c, bt_number number,
                             bool scale_tensors, bt_err *err) BT_MUST_CHECK;
/* BT_UNSUPPORTED: llama.cpp computes the model differently, or aborts when it reads it. any_activation: permits another
 * activation. */
bt_code bt_gguf_arch_check(bt_arch arch, const bt_model_cfg *c, bool any_activation, bt_err *err)
    BT_MUST_CHECK;

#endif
