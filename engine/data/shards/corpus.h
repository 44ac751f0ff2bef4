/* corpus.h - presents all the data of one split as a single stream of ids.
 *
 * With packing (row_set.h) documents are laid into rows instead, and the split is one of documents.
 * val_frac of every text file, and of every segment of a shard, is held out for validation: the
 * end of it, or of stretch `fold.i` of `fold.of` equal ones. A split is the stream of its parts in
 * the order of the sources. No id is in both splits.
 * Threads:  one caller. */
#ifndef BT_ENGINE_DATA_SHARDS_CORPUS_H
#define BT_ENGINE_DATA_SHARDS_CORPUS_H

#include "engine/base/status.h"
#include "engine/data/io/sources.h"
#include "engine/data/shards/loader.h"
#include "engine/data/shards/row_set.h"
#include "engine/data/tokenizer/tokenizer.h"

typedef struct bt_corpus bt_corpus;

/* Opens the split of cfg from `sources` (without synth). */
bt_code bt_corpus_open(bt_corpus **out, const bt_sources *sources, const bt_loader_cfg *cfg,
                       const bt_tokenizer *tokenizer, bool whole, bt_err *err) BT_MUST_CHECK;
uint64_t bt_corpus_count(const bt_corpus *c);
uint64_t bt_corpus_hash(const bt_corpus *c);
const bt_text *bt_corpus_notes(
    const bt_corpus *c); /* notes on its files, like bt_documents_notes */
/* Returns the number of rows: of T tokens and the following one in a stream, otherwise packed rows. */
uint64_t bt_corpus_rows(const bt_corpus *c);
/* training data, T of each. positions: of a token in its document, -1 after the last document; NULL for a stream.
 * targets: -1 is not learned */
typedef struct bt_corpus_row {
    int32_t *inputs, *targets, *positions;
} bt_corpus_row;
bt_code bt_corpus_read_row(bt_corpus *c, uint64_t row, const bt_corpus_row *out, bt_err *err)
    BT_MUST_CHECK;
/* Returns the divisor of the loss: learned targets, or pairs of preferences. */
uint32_t bt_corpus_row_counted(const bt_corpus *c, uint64_t row);
/* Returns the mean number of source bytes per learned token. */
double bt_corpus_bytes_per_token(const bt_corpus *c);
const bt_row_facts *bt_corpus_row_facts(const bt_corpus *c); /* NULL for a stream */
void bt_corpus_close(bt_corpus *c);                          /* accepts NULL */

#endif
