/* state.h - the registry of all state that must survive a restart.
 *
 * The owner of such state adds a row, and the saver uses only the rows. A row has tensors (slices of arrays that belong
 * to named tensors, which any layout can read), values (a JSON object in the manifest, equal on all ranks), or both.
 *
 *     tensors   "weight", "exp_avg", ...; a name for each state, as in bt_ckpt_slice
 *     values    {"progress": {"updates": 120, ...}, "loss_scale": {...}}
 *
 * Threads: the training thread. */
#ifndef BT_ENGINE_CKPT_STATE_H
#define BT_ENGINE_CKPT_STATE_H

#include "engine/ckpt/ckpt.h"

enum { BT_STATE_ROWS = 24 };

typedef struct bt_slices {
    bt_ckpt_slice *at;
    size_t n, cap;
    bool failed; /* out of memory; bt_slices_done returns the error */
} bt_slices;
void bt_slices_add(bt_slices *l, const bt_ckpt_slice *s);
bt_code bt_slices_done(const bt_slices *l, bt_err *err) BT_MUST_CHECK;
void bt_slices_release(bt_slices *l);

/* Values of one row in a manifest. */
typedef struct bt_state_values bt_state_values;
int64_t bt_state_int(const bt_state_values *v, const char *key, int64_t otherwise);
double bt_state_real(const bt_state_values *v, const char *key, double otherwise);
bool bt_state_bool(const bt_state_values *v, const char *key, bool otherwise);
/* Reads the last `most` elements of an array in order, and returns their number; 0: there is no array of numbers. */
size_t bt_state_ints(const bt_state_values *v, const char *key, int64_t *out, size_t most);
/* number of elements of an array */
size_t bt_state_count(const bt_state_values *v, const char *key);
/* Returns NULL if there is no such text. The values own the result. */
const char *bt_state_text(const bt_state_values *v, const char *key);

typedef enum {
    BT_STATE_SAVE, /* slices that this rank writes; exactly one rank writes every element of a tensor */
    /* Like SAVE, but ranks of rank 0's host write everything that they have. */
    BT_STATE_SAVE_HOST,
    BT_STATE_RESUME, /* state that this rank needs to resume */
    BT_STATE_WEIGHTS /* weights that this rank needs for a new training */
} bt_state_use;
static inline bool bt_state_saves(bt_state_use use) {
    return use == BT_STATE_SAVE || use == BT_STATE_SAVE_HOST;
}

typedef struct bt_state_row {
    const char *name; /* unique; key of the values */
    void *ctx;        /* argument of the functions; must exist until the registry's last use */
    /* Each function may be NULL. */
    void (*slices)(void *ctx, bt_state_use use, bt_slices *out);
    void (*save)(void *ctx, bt_json *j); /* writes the members of the row's JSON object */
    /* Reads the values before the slices are read, only for RESUME. Empty if the checkpoint lacks them. */
    void (*load)(void *ctx, const bt_state_values *v);
} bt_state_row;

typedef struct bt_state {
    bt_state_row rows[BT_STATE_ROWS];
    size_t n;
} bt_state;

void bt_state_add(bt_state *s, const bt_state_row *row);
/* Collects the slices of all rows. The caller releases them after BT_OK. */
bt_code bt_state_slices(const bt_state *s, bt_state_use use, bt_slices *out, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_state_save_values(const bt_state *s, bt_text *out, bt_err *err) BT_MUST_CHECK;
bt_code bt_state_load_values(const bt_state *s, const bt_text *values, bt_err *err) BT_MUST_CHECK;

/* Read one value of a manifest without a registry. */
void bt_ckpt_state_text(const bt_ckpt_meta *m, const char *row, const char *key,
                        const char *otherwise, char *out, size_t size);
double bt_ckpt_state_real(const bt_ckpt_meta *m, const char *row, const char *key,
                          double otherwise);

#endif
