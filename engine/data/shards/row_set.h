/* row_set.h - packs documents into rows of T tokens, so that none continues in another row.
 *
 * A document that fits is in one row as a whole. A longer one is cut into pieces of T tokens if all of it is
 * learned; a conversation is refused, skipped, or truncated, as data.too_long selects. A text with a class keeps
 * its end, where the class is learned. Documents without learned targets are skipped. Skipped and cut documents
 * are counted.
 * In their order (next fit): a row ends where the next document does not fit. So a row depends only on its number and
 * the data. Of preferences two successive documents are a pair, the chosen answer first: both are in one row, or
 * neither is. A preference of one answer has one token and nothing learned in place of the other.
 *
 * Examples of single answers (KTO): each learned document of a pair becomes an example of two documents, itself and
 * one token in place of the other answer. Its mismatched document follows: its prompt with the answer of the next pair
 * of the same addition (the last pair takes that of the first), cut where the row ends.
 * Memory: 24 bytes a document, 16 a row.
 * Threads: one caller; constant after finish. */
#ifndef BT_ENGINE_DATA_SHARDS_ROW_SET_H
#define BT_ENGINE_DATA_SHARDS_ROW_SET_H

#include "engine/data/shards/shard.h"

/* in the order of the words of data.packing */
typedef enum {
    BT_PACKING_AUTO,
    BT_PACKING_STREAM,   /* consecutive tokens regardless of documents (corpus.h) */
    BT_PACKING_PAD,      /* a row for each document */
    BT_PACKING_DOCUMENTS /* each row has as many documents as fit */
} bt_packing;
/* in the order of the words of data.too_long */
typedef enum { BT_TOO_LONG_REFUSE, BT_TOO_LONG_SKIP, BT_TOO_LONG_TRUNCATE } bt_too_long;

typedef struct bt_row_piece { /* part of a document */
    uint64_t first;           /* id of the shard */
    uint32_t shard, n;        /* n ids of shard number `shard` */
    uint32_t counted;         /* number of learned targets among them */
    bool joined;              /* continues the document of the previous piece */
} bt_row_piece;

typedef struct bt_row_facts {
    uint64_t documents; /* documents in rows */
    uint64_t tokens;    /* their tokens in all rows, which have room for rows * T */
    uint64_t counted;   /* targets that are learned */
    uint64_t longest;   /* tokens of a document */
    uint64_t skipped, truncated,
        cut;        /* longer than a row: skipped, cut at the end, cut into pieces */
    uint64_t empty; /* skipped because nothing of them is learned */
    uint64_t desirable, undesirable; /* examples of single answers */
} bt_row_facts;

typedef struct bt_row_set bt_row_set;

/* relation of documents */
typedef enum {
    BT_ROWS_TEXTS,
    BT_ROWS_PAIRS, /* preferences */
    BT_ROWS_LABELLED, /* texts that end with the number of their class, which is kept when a text is cut */
    BT_ROWS_SINGLES,   /* preferences as examples of single answers */
    BT_ROWS_MISMATCHED /* the same, each with its mismatched document */
} bt_row_kind;

bt_code bt_row_set_create(bt_row_set **out, int T, bt_packing packing, bt_too_long too_long,
                          bt_row_kind kind, bt_err *err) BT_MUST_CHECK;
/* Adds documents [from, to) of shard number `shard`; `name` of the data, for messages. */
bt_code bt_row_set_add(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t from, uint64_t to,
                       const char *name, bt_err *err) BT_MUST_CHECK;
bt_code bt_row_set_finish(bt_row_set *r, bt_err *err) BT_MUST_CHECK;
uint64_t bt_row_set_rows(const bt_row_set *r);
/* Returns the divisor of the loss: learned targets, pairs, or examples of single answers. */
uint32_t bt_row_set_counted(const bt_row_set *r, uint64_t row);
const bt_row_piece *bt_row_set_pieces(const bt_row_set *r, uint64_t row, size_t *n);
const bt_row_facts *bt_row_set_facts(const bt_row_set *r);
void bt_row_set_destroy(bt_row_set *r); /* accepts NULL */

/* Writes learned[i] for ids first .. first+n of a shard. */
void bt_shard_learned(const bt_shard *s, uint64_t first, size_t n, unsigned char *learned);

#endif
