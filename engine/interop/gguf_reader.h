/* gguf_reader.h - a GGUF file while it is read: shared by the readers of its model and its vocabulary.
 *
 * Threads: one owner. */
#ifndef BT_ENGINE_INTEROP_GGUF_READER_H
#define BT_ENGINE_INTEROP_GGUF_READER_H

#include "engine/interop/formats/gguf.h"
#include "engine/interop/model_file.h"

typedef struct bt_gguf_reader {
    bt_model_file *s;
    bt_gguf g;
    const char *arch; /* prefix of the model's keys */
} bt_gguf_reader;

/* Returns the key of the model with this name after the architecture's prefix, or NULL. */
const bt_gguf_kv *bt_gguf_model_key(const bt_gguf_reader *r, const char *name);
/* Reads a whole number up to `most`. least 0: the key is optional, and *out remains unchanged if it is missing. */
bt_code bt_gguf_read_integer(const bt_gguf_reader *r, const char *name, int least, int most,
                             int *out, bt_err *err) BT_MUST_CHECK;
/* Reads a positive number. *out remains unchanged if an optional key is missing. */
bt_code bt_gguf_read_real(const bt_gguf_reader *r, const char *name, bool needed, double *out,
                          bt_err *err) BT_MUST_CHECK;
/* Reads the scaling of the rotary frequencies into s->cfg, whose other members have been set. */
bt_code bt_gguf_rope_read(bt_gguf_reader *r, bt_err *err) BT_MUST_CHECK;

/* Reads the vocabulary into s->tokenizer, and the tokens that begin and end texts into s->roles. */
bt_code bt_gguf_tokenizer_read(bt_gguf_reader *r, bt_err *err) BT_MUST_CHECK;

#endif
