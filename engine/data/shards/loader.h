/* loader.h - deterministic stream of token batches for one rank.
 *
 * The stream is a pure function of (sources, split, seed, global sample index): sample g of a step is sequence
 * number step * (sequences per step) + g of the epoch order. A resumed run, even with another number of ranks,
 * reads the same tokens as an uninterrupted one. `synth:chain` reproduces bench/peer_torch.py's stream exactly
 * (sequence j is the j-th range of T+1 tokens of the chain, seed = the run's seed, no shuffling, no end).
 * Order:    open -> { next* -> [move] }* -> close. A batch is valid until the following `next`.
 * Owns:     its sources and two batch buffers; a private reader thread prefetches one batch.
 * Cost:     `next` is O(1) unless the reader is late. */
#ifndef BT_ENGINE_DATA_SHARDS_LOADER_H
#define BT_ENGINE_DATA_SHARDS_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/data/chat/instruct.h"
#include "engine/data/shards/fold.h"
#include "engine/data/shards/row_set.h"

typedef struct bt_loader bt_loader;

typedef struct bt_batch {
    const int32_t *inputs;  /* (B, T) token ids in [0, V) */
    const int32_t *targets; /* (B, T) inputs shifted left by one; -1: not learned */
    /* (B, T) position of each token in its document, -1 after the last one; NULL: a stream without document limits */
    const int32_t *positions;
    /* divisor of the loss: learned targets, or pairs of preferences; -1: a stream */
    int64_t counted;
} bt_batch;

typedef enum { BT_SPLIT_TRAIN, BT_SPLIT_VAL } bt_split;

typedef struct bt_loader_cfg {
    /* words separated by line feeds: .txt, .jsonl, .bts token shards, folders, "synth:chain", "builtin" */
    const char *paths;
    const char *val_paths; /* "": the validation split is the last val_frac of each file */
    /* advice in the error about too little validation data; NULL: the advice for `bitrain train` */
    const char *val_remedy;
    /* weights of the words of `paths` (mixture.h); NULL or "": the sources are concatenated */
    const char *mixture;
    const char *glob;      /* in folders, read only files matching this pattern; NULL: all */
    const char *tokenizer; /* "bytes" or a tokenizer file */
    const char *field;     /* text field of JSONL objects */
    bt_form_cfg form;      /* how a row is converted to text */
    /* form.kind PREFERENCE: BT_ROWS_PAIRS (also 0), BT_ROWS_SINGLES or BT_ROWS_MISMATCHED */
    bt_row_kind preferences;
    bt_packing packing; /* AUTO means STREAM here */
    bt_too_long too_long;
    uint64_t max_rows;  /* maximum number of rows read from each JSON file; 0: all */
    bool skip_bad_rows; /* true skips and counts unusable rows; false refuses them */
    int threads;        /* number of threads that tokenise texts; 0: only the caller's */
    /* folder for tokenised shards of text, created if missing; "" keeps them in memory */
    const char *cache_dir;
    bt_split split;
    double val_frac;
    bt_fold fold;
    bool shuffle;
    int B, T, V; /* a micro-batch has B sequences of T tokens; every id must be < V */
    uint64_t seed;
    int64_t first_step;
    int sequences_per_step; /* sum over all ranks */
    /* this rank's part of a step: [first, first + n); n is a multiple of B */
    int first_sequence, n_sequences;
    /* called while texts are tokenised; may be NULL */
    void (*progress)(void *ctx, double done, uint64_t ids);
    void *ctx;
} bt_loader_cfg;

bt_code bt_loader_open(bt_loader **out, const bt_loader_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Returns the micro-batches of a step in order, then those of the next step. */
bt_code bt_loader_next(bt_loader *l, bt_batch *out, bt_err *err) BT_MUST_CHECK;
/* Continues with sequences [first, first + n) of `step` after a rank's share has changed. Drops prefetched data. */
bt_code bt_loader_move(bt_loader *l, int64_t step, int first_sequence, int n_sequences, bt_err *err)
    BT_MUST_CHECK;
/* Continues with sequences [begin + first, begin + first + n), then with those of begin + stride, and so on. A hub of
 * islands leases data in this way; `first` and `n` are relative to `stride` instead of a step. */
bt_code bt_loader_deal(bt_loader *l, int64_t begin, int stride, int first, int n, bt_err *err)
    BT_MUST_CHECK;
int64_t bt_loader_tokens(const bt_loader *l); /* tokens of the split; -1: unlimited */
/* Returns the number of sequences in one epoch of the split; -1: unlimited. */
int64_t bt_loader_sequences(const bt_loader *l);
/* bt_loader_sources returns the number of sources in a mixture; 0: no mixture. bt_loader_source describes one of them:
 * its word of the paths (borrowed), its sequences in the steps before `step`, and its sequences in one epoch. */
typedef struct bt_loader_share {
    const char *name;
    uint64_t sequences, epoch;
} bt_loader_share;
size_t bt_loader_sources(const bt_loader *l);
bt_loader_share bt_loader_source(const bt_loader *l, size_t k, int64_t step);
/* Returns true if the weights of the sources change with this step. */
bool bt_loader_mixture_changes_at(const bt_loader *l, int64_t step);
/* Returns the number of learned targets, or pairs, in a step of all ranks, which divides the loss. It depends only on
 * the data, so ranks compute it without communication. -1: all targets (a stream) */
int64_t bt_loader_counted(const bt_loader *l, int64_t step);
int64_t bt_loader_counted_in(const bt_loader *l, int64_t begin, int64_t n);
/* Returns statistics of the documents of a packed split; NULL: a stream. */
const bt_row_facts *bt_loader_row_facts(const bt_loader *l);
/* Returns source bytes per token of the split, for bits per byte; 1 for synthetic data. */
double bt_loader_bytes_per_token(const bt_loader *l);
/* Returns a hash of the sources. A resumed run compares it with that of the checkpoint. */
uint64_t bt_loader_hash(const bt_loader *l);
/* Returns the notes of bt_documents_notes on skipped or unused parts of the files; "": none. */
const char *bt_loader_notes(const bt_loader *l);
void bt_loader_close(bt_loader *l); /* accepts NULL */

#endif
