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

/* Reads the vocabulary into s->tokenizer, and the tokens that begin and end texts into s->roles. */
bt_code bt_gguf_tokenizer_read(bt_gguf_reader *r, bt_err *err) BT_MUST_CHECK;

#endif
