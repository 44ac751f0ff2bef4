/* corpus.h - presents the data of one split as a single stream of ids, or as packed rows of documents (row_set.h).
 *
 * The share val_frac of every text file, and of every segment of a shard, is held out for validation. The held-out part
 * is at the end; data.fold=I/K moves it to the end of the I-th of K equal parts. The parts of a split are in the order
 * of the sources. The training and validation splits have no id in common; packed rows divide documents in the same
 * way.
 * Threads:  one caller. */
#ifndef BT_ENGINE_DATA_SHARDS_CORPUS_H
#define BT_ENGINE_DATA_SHARDS_CORPUS_H

#include "engine/base/status.h"
#include "engine/data/io/sources.h"
#include "engine/data/shards/loader.h"
#include "engine/data/shards/row_set.h"
#include "engine/data/tokenizer/tokenizer.h"

typedef struct bt_corpus bt_corpus;

/* Opens the split that cfg names, from `sources` other than "synth:". */
bt_code bt_corpus_open(bt_corpus **out, const bt_sources *sources, const bt_loader_cfg *cfg,
                       const bt_tokenizer *tokenizer, bool whole, bt_err *err) BT_MUST_CHECK;
uint64_t bt_corpus_count(const bt_corpus *c);
uint64_t bt_corpus_hash(const bt_corpus *c);
const bt_text *bt_corpus_notes(const bt_corpus *c);
/* Returns the number of rows. A row of a stream is T tokens and the next token. */
uint64_t bt_corpus_rows(const bt_corpus *c);
/* Row of training data, with T values each. positions: position of a token in its document, -1 after the last document;
 * NULL for a stream. targets: -1 excludes a token from the loss. */
typedef struct bt_corpus_row {
    int32_t *inputs, *targets, *positions;
} bt_corpus_row;
bt_code bt_corpus_read_row(bt_corpus *c, uint64_t row, const bt_corpus_row *out, bt_err *err)
    BT_MUST_CHECK;
/* Returns the row's part of the divisor of the loss: its learned targets, or its pairs of preferences. */
uint32_t bt_corpus_row_counted(const bt_corpus *c, uint64_t row);
/* Returns the mean number of source bytes per learned token. */
double bt_corpus_bytes_per_token(const bt_corpus *c);
const bt_row_facts *bt_corpus_row_facts(const bt_corpus *c); /* NULL for a stream */
void bt_corpus_close(bt_corpus *c);                          /* accepts NULL */

#endif
