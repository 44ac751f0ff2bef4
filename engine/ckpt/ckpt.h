/* ckpt.h - the native checkpoint: independent of the layout that wrote it.
 *
 *     DIR/attempt                                    number of the newest attempt that began here (the fence)
 *     DIR/best -> step-000000000100                  the checkpoint with the least validation loss, if any
 *     DIR/step-000000000100/  manifest.json          the only commit point (renamed into place last)
 *                             data-00000-GENERATION.btck ...  one per writing rank: sections =
 *                             slices of named tensors
 *     a section: {tensor name, state name ("weight", "exp_avg", ...), first element, count,
 *     XXH3-64}, then the data; the file ends with an index and a footer; every byte is covered by a
 *     hash in the manifest or the file itself (drawn in format.h). GENERATION is a random number of the
 *     save: saving a step again does not change the older files before the new manifest replaces the
 *     old one.
 *
 * Commit:   each rank reserves the space, which detects a full disk, writes a temporary file, fsyncs and renames it,
 *           fsyncs the folder and reads the file back. Rank 0 gathers the hashes, then writes and renames the
 *           manifest. A commit by an older attempt than the newest one that began in DIR is refused (BT_BUSY). A
 *           failed save removes its files and leaves older checkpoints unchanged.
 * Load:     all ranks agree on the newest (attempt, step) that they can verify together. Every rank checks heads and
 *           indices of all files; rank i mod world size reads all of file i; and a rank verifies the hashes of the
 *           data that it loads. If the supervisor has verified the checkpoint, ranks verify only the data that they
 *           load. The caller receives the reasons why other checkpoints were skipped. Any rank can read any slice.
 * Versions: version 2 is written; version 1, without element types and state registry, can be read.
 * Keep:     the newest `keep` by (attempt, step) and the best are kept. Older ones are removed only after the new one
 *           was read back and committed. If rank 0's disk has no room for another, the oldest are removed before
 *           the save, but never the best or the newest, which is first read back completely.
 * Threads:  the training thread; collective over the communicator given. */
#ifndef BT_ENGINE_CKPT_CKPT_H
#define BT_ENGINE_CKPT_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/numbers/moment.h"
#include "engine/base/status.h"
#include "engine/base/text.h"
#include "engine/parallel/mpi/comm.h"

/* log8, ulog8: moment.h */
typedef enum {
    BT_CKPT_F32,
    BT_CKPT_BF16,
    BT_CKPT_U8,
    BT_CKPT_LOG8,
    BT_CKPT_ULOG8,
    BT_CKPT_TYPES
} bt_ckpt_type;

typedef struct bt_ckpt_slice { /* slice that this rank contributes (save) or requests (load) */
    const char *tensor;        /* "layers.3.attn_q" */
    const char *state;         /* "weight", "exp_avg", "exp_avg_sq", ... */
    uint64_t tensor_elems;
    uint64_t first, count; /* range of elements in the whole tensor */
    void *data;            /* (count) of `type` */
    /* Block of columns: `width` elements in every `stride`; 0, 0: contiguous. */
    uint32_t width, stride;
    /* On load, numbers of another type are converted and rounded to the nearest; bytes (U8) are not converted. */
    bt_ckpt_type type;
    bool optional; /* On load, data is zeroed if the checkpoint lacks this state of the tensor. */
} bt_ckpt_slice;

size_t bt_ckpt_type_bytes(bt_ckpt_type t);
bt_ckpt_type bt_ckpt_type_of(bt_moment_form form);

typedef struct bt_ckpt_meta { /* small values, stored as JSON in the manifest */
    int64_t step, tokens;     /* completed updates and their tokens */
    int attempt;
    char run[64];
    bt_text config;    /* every option, as the text of a JSON object */
    bt_text tokenizer; /* serialised tokenizer */
    uint64_t params_hash, data_hash, vocab_hash;
    char isa[32], build[64];
    /* values of the state registry's rows (state.h) by name, as the text of a JSON object */
    bt_text state;
} bt_ckpt_meta;

void bt_ckpt_meta_release(bt_ckpt_meta *m);

/* Creates the folder and checks that it can be written and has room for a block. fresh: BT_BUSY if it contains a
 * checkpoint. One process calls this before anything starts. */
bt_code bt_ckpt_prepare(const char *dir, bool fresh, bt_err *err) BT_MUST_CHECK;
/* Makes the same checks without creating anything. */
bt_code bt_ckpt_check(const char *dir, bool fresh, bt_err *err) BT_MUST_CHECK;
/* Returns the number of the next attempt in this folder: at least `at_least`, and greater than all that began here. */
int bt_ckpt_next_attempt(const char *dir, int at_least);
/* Announces an attempt, so that later commits by lower attempts fail. Rank 0 calls it before the first step. BT_IO: the
 * folder cannot be written now; a commit can announce the attempt instead (bt_ckpt_job.announce). */
bt_code bt_ckpt_begin(const char *dir, int attempt, bt_err *err) BT_MUST_CHECK;

typedef struct bt_ckpt_job { /* one save; everything is borrowed */
    const char *dir;
    const bt_ckpt_meta *meta;
    const bt_ckpt_slice *slices;
    size_t n;
    int keep;      /* number of newest checkpoints to keep in addition to the best, at least 1 */
    bool best;     /* this checkpoint becomes the best: DIR/best links to it after its commit */
    bool announce; /* bt_ckpt_begin failed for this attempt, so the commit announces it */
    /* Writes elements first .. first+count of a slice without data (contiguous, no width) when they are needed, one
     * section at a time. NULL: all slices have data. */
    bt_code (*produce)(void *ctx, const bt_ckpt_slice *slice, uint64_t first, uint64_t count,
                       void *out, bt_err *err);
    void *produce_ctx;
} bt_ckpt_job;

typedef struct bt_ckpt_saved {
    char path[4096]; /* folder of the checkpoint */
    int64_t bytes;
    int replaced;   /* number of older checkpoints removed for lack of disk space */
    char hash[33];  /* hash of the manifest */
    int64_t cpu_ns; /* processor time of this rank's threads in an asynchronous save */
} bt_ckpt_saved;

/* Collective over c; out may be NULL. */
bt_code bt_ckpt_save(bt_comm *c, const bt_ckpt_job *job, bt_ckpt_saved *out, bt_err *err)
    BT_MUST_CHECK;
/* Finds the newest checkpoint in dir (or dir itself, if it is a checkpoint) that all ranks can verify, and writes its
 * path. BT_NOTFOUND: none; BT_FORMAT: all are damaged. why (may be NULL): one line for each skipped checkpoint. c NULL:
 * a program without MPI. */
bt_code bt_ckpt_find(bt_comm *c, const char *dir, char *path, size_t path_size, bt_ckpt_meta *meta,
                     bt_text *why, bt_err *err) BT_MUST_CHECK;
/* Reads attempt and step of the newest checkpoint with a valid manifest, without its data. false: there is none. */
bool bt_ckpt_peek(const char *dir, int *attempt, int64_t *step);
/* Fails if the checkpoint lacks any requested element. */
bt_code bt_ckpt_load(const char *path, const bt_ckpt_slice *slices, size_t n, bt_err *err)
    BT_MUST_CHECK;
/* A checkpoint that is opened to read slice by slice; one owner. */
typedef struct bt_ckpt_reader bt_ckpt_reader;
bt_code bt_ckpt_reader_open(bt_ckpt_reader **out, const char *path, bt_err *err) BT_MUST_CHECK;
bt_code bt_ckpt_reader_read(bt_ckpt_reader *r, const bt_ckpt_slice *slice, bt_err *err)
    BT_MUST_CHECK;
void bt_ckpt_reader_close(bt_ckpt_reader *r); /* accepts NULL */

#endif
