/* logit_file.h - the largest logits of a teacher at each learned token of documents, in a file, so that a student
 * learns from them
 * without the teacher.
 *
 *     header   64 bytes: sizes, vocabulary and tokenizer
 *     rows     for each learned token k ids (u32), the likeliest first, and the logarithms of their probabilities
 *     (fp16): 6 k
 *              bytes, padded to a multiple of 4
 *     index    for each document its key and its first row, in the order of the keys
 *
 * A document's key is a hash of its tokens and of which of them are learned. So the logits that a student finds depend
 * only on the
 * data, and not on the step, the layout or the packing of documents. Equal documents are stored once.
 *
 * Order:    writer: create -> add* -> close. Reader: open -> batch* -> close.
 * Threads:  one caller each. Numbers have the byte order of the processor (little endian). */
#ifndef BT_ENGINE_TUNE_LOGIT_FILE_H
#define BT_ENGINE_TUNE_LOGIT_FILE_H

#include "engine/data/shards/loader.h"
#include "engine/model/net/model.h"

typedef struct bt_logit_shape {
    int k, V, B, T;     /* batches of B sequences of T tokens */
    uint64_t tokenizer; /* bt_tokenizer_hash */
} bt_logit_shape;

typedef struct bt_logit_writer bt_logit_writer;
bt_code bt_logit_writer_create(bt_logit_writer **out, const char *path, const bt_logit_shape *s,
                               bt_err *err) BT_MUST_CHECK;
/* Adds the documents of a micro-batch, which passes forward through m; m is a whole model. */
bt_code bt_logit_writer_add(bt_logit_writer *w, bt_model *m, const bt_batch *b, bt_err *err)
    BT_MUST_CHECK;
/* Writes the index and renames the file; after a failure (code) removes it. notes: its numbers of tokens and
 * documents. */
bt_code bt_logit_writer_close(bt_logit_writer *w, bt_code code, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;

typedef struct bt_logit_file bt_logit_file;
/* k 0: the k of the file. BT_ARG: vocabulary, tokenizer or k differs. BT_FORMAT: not such a file, or damaged. */
bt_code bt_logit_file_open(bt_logit_file **out, const char *path, const bt_logit_shape *s,
                           bt_err *err) BT_MUST_CHECK;
/* Returns the (B T) rows that bt_logit_file_batch fills for bt_model_distil, and their k. */
const bt_top_row *bt_logit_file_rows(const bt_logit_file *f, int *k);
/* Fills the rows of this micro-batch. BT_ARG: the file does not contain one of its documents. */
bt_code bt_logit_file_batch(void *file, const bt_batch *b, bt_err *err) BT_MUST_CHECK;
uint64_t bt_logit_file_hash(const bt_logit_file *f);
void bt_logit_file_close(bt_logit_file *f);

#endif
