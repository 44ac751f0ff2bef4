/* row_set.h - packs documents into rows of T tokens; no document continues in another row.
 *
 * A document that fits is in one row. A longer document is cut into pieces of T tokens if all its tokens are learned; a
 * longer conversation is refused, skipped or truncated, as data.too_long selects. A text with a class is cut at its
 * beginning, because its last token is the class. Documents without learned targets are skipped. Skipped and cut
 * documents are counted.
 * Packing is next-fit in the order of documents: a row ends where the next document does not fit, so a row depends only
 * on its number and the data. Two successive documents form a preference, the chosen answer first, and both are in the
 * same row. A preference with a single answer has, in place of the other, one token that is not learned.
 *
 * Single answers (KTO): each learned document of a pair becomes an example of two documents, itself and one token in
 * place of the other answer. A mismatched document can follow: its prompt with the answer of the next pair of the same
 * call (the last pair uses the answer of the first), cut where the row ends.
 * Memory: 24 bytes a document, 16 a row.
 * Threads: one caller; constant after finish. */
#ifndef BT_ENGINE_DATA_SHARDS_ROW_SET_H
#define BT_ENGINE_DATA_SHARDS_ROW_SET_H

#include "engine/data/shards/shard.h"

/* in the order of the words of data.packing */
typedef enum {
    BT_PACKING_AUTO,
    BT_PACKING_STREAM,   /* consecutive tokens, without regard to documents (corpus.h) */
    BT_PACKING_PAD,      /* one document per row */
    BT_PACKING_DOCUMENTS /* each row has as many documents as fit */
} bt_packing;
/* in the order of the words of data.too_long */
typedef enum { BT_TOO_LONG_REFUSE, BT_TOO_LONG_SKIP, BT_TOO_LONG_TRUNCATE } bt_too_long;

typedef struct bt_row_piece { /* part of a document */
    uint64_t first;           /* index of its first id in the shard */
    uint32_t shard, n;        /* n ids of shard number `shard` */
    uint32_t counted;         /* learned targets among these ids */
    bool joined;              /* continues the document of the previous piece */
} bt_row_piece;

typedef struct bt_row_facts {
    uint64_t documents; /* documents in rows */
    uint64_t tokens;    /* their tokens; all rows have room for rows * T */
    uint64_t counted;   /* learned targets */
    uint64_t longest;   /* tokens of the longest document */
    uint64_t skipped, truncated,
        cut;        /* longer than a row: skipped, cut at the end, or cut into pieces */
    uint64_t empty; /* skipped because they have no learned target */
    uint64_t desirable, undesirable; /* examples of single answers */
} bt_row_facts;

typedef struct bt_row_set bt_row_set;

/* What a document is, and how it is related to the next one. */
typedef enum {
    BT_ROWS_TEXTS,
    BT_ROWS_PAIRS, /* preferences: pairs of documents */
    BT_ROWS_LABELLED, /* texts that end with the number of their class, which is kept when a text is cut */
    BT_ROWS_SINGLES,   /* single answers of preferences, as examples */
    BT_ROWS_MISMATCHED /* like SINGLES, each followed by its mismatched document */
} bt_row_kind;

bt_code bt_row_set_create(bt_row_set **out, int T, bt_packing packing, bt_too_long too_long,
                          bt_row_kind kind, bt_err *err) BT_MUST_CHECK;
/* Adds documents [from, to) of shard number `shard`. name: file name for messages. */
bt_code bt_row_set_add(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t from, uint64_t to,
                       const char *name, bt_err *err) BT_MUST_CHECK;
bt_code bt_row_set_finish(bt_row_set *r, bt_err *err) BT_MUST_CHECK;
uint64_t bt_row_set_rows(const bt_row_set *r);
/* Returns the row's part of the divisor of the loss: learned targets, pairs, or single answers. */
uint32_t bt_row_set_counted(const bt_row_set *r, uint64_t row);
const bt_row_piece *bt_row_set_pieces(const bt_row_set *r, uint64_t row, size_t *n);
const bt_row_facts *bt_row_set_facts(const bt_row_set *r);
void bt_row_set_destroy(bt_row_set *r); /* accepts NULL */

void bt_shard_learned(const bt_shard *s, uint64_t first, size_t n, unsigned char *learned);

#endif
