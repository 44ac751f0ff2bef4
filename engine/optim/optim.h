/* optim.h - optimizers over slices of the flat parameter array, independent of the model.
 *
 *     rule        update of one tensor: AdamW, Lion, Muon (one file each)
 *     optimizer   a rule for the weight matrices of the layers, and a rule for all other tensors
 *                 (embedding, norms, head): a row of optim.def
 *     bt_optim    the optimizer's state for one range of the flat array, which one rank owns
 *
 * A rule with `whole_matrix` needs all of a matrix at once: its step only updates the momentum; the caller
 * collects each matrix (engine/update/matrix_update.h), computes the direction of the whole matrix, and applies it
 * range by range. All other rules update ranges independently.
 *
 * States are fp32, or stored in fewer bytes (moment.h), and so may be weights: a step reads them, computes in
 * fp32, and rounds them stochastically by a counter: (seed, update, tensor, state, element of the whole tensor).
 * This does not depend on any other element, so layouts and threads do not change the bits.
 *
 * Order:    create (plans and commits the states of [begin, end)) -> step* -> destroy.
 * Threads:  the training thread; kernels split over the pool. No allocation in step. */
#ifndef BT_ENGINE_OPTIM_OPTIM_H
#define BT_ENGINE_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/numbers/moment.h"
#include "engine/base/range.h"
#include "engine/base/status.h"

enum { BT_OPTIM_STATES = 2 }; /* maximum number of states per element */

typedef enum {
#define BT_OPTIM(id, name, matrices, rest, lr_factor, help) BT_OPTIM_##id,
#include "engine/optim/optim.def"
#undef BT_OPTIM
    BT_OPTIM_COUNT
} bt_optim_id;

/* In the order of the words of optim.states; the first two are those of optim.weights. */
typedef enum { BT_STATES_FP32, BT_STATES_BF16, BT_STATES_LOG8 } bt_states_kind;

typedef struct bt_optim_cfg { /* settings of all rules; each reads its own */
    bt_optim_id kind;
    bt_states_kind states;
    uint64_t seed; /* seed of the noise for rounding states and weights */
    double beta1, beta2, eps, momentum;
} bt_optim_cfg;

typedef struct
    bt_optim_update { /* parameters of one update, equal for all tensors except for the decay */
    int64_t t;        /* 1-based: bias correction */
    int64_t held_at;  /* AdamW: the second moment is frozen at this update; 0: it is updated */
    float grad_scale; /* factor on the gradients */
    float lr, decay;  /* decay: decoupled weight decay */
} bt_optim_update;

/* n elements of one tensor: weights, gradients and states begin at the same element */
typedef struct bt_optim_elems {
    float *w;
    const float *g;
    float *state[BT_OPTIM_STATES];
    size_t n;
} bt_optim_elems;

typedef struct bt_optim_rule {
    const char *name;
    size_t n_states;
    const char *state_names[BT_OPTIM_STATES]; /* in checkpoints */
    bool never_negative[BT_OPTIM_STATES];
    bool whole_matrix;
    /* elementwise rules: updates the weights; whole_matrix rules: updates only the momentum */
    void (*step)(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u);
    /* updates on one thread, with the same bits on every kernel set */
    void (*step_few)(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u);
    /* Computes the change of each weight by the last update, and the weights before it, for at most BT_OPTIM_UNDO
     * elements. NULL for whole_matrix, whose caller measures while it applies. */
    void (*undo)(float *change, float *before, const bt_optim_elems *e, const bt_optim_cfg *cfg,
                 const bt_optim_update *u);
} bt_optim_rule;

enum { BT_OPTIM_UNDO = 256 };

extern const bt_optim_rule bt_rule_adamw, bt_rule_lion, bt_rule_muon;

typedef struct bt_optim_info { /* a row of optim.def */
    const char *name, *help;
    const bt_optim_rule *matrices, *rest;
    double lr_factor; /* factor of the preset's learning rate, if none is given */
} bt_optim_info;

const bt_optim_info *bt_optim_info_of(bt_optim_id id);

/* ascending ranges of the flat array without overlap, each of one tensor */
typedef struct bt_optim_span {
    size_t begin, end;
    /* its weights from element `begin` on, and their storage type: fp32 or bf16. NULL: in the array given to
     * bt_optim_step */
    void *weights;
    bt_moment_form form;
    bool decay;
    bool matrix;     /* a weight matrix of a layer */
    float lr_factor; /* factor of the learning rate, and so of the decay; 0 means 1 */
    /* position of its elements in the whole tensor, for the noise of states: element i is element
     * first + i / cols * stride + i % cols; cols 0: first + i */
    uint64_t name; /* hash of the tensor's name */
    size_t first, cols, stride;
} bt_optim_span;

typedef struct bt_optim bt_optim;

/* Allocates states for the parts of the spans in range; borrows the spans. */
bt_code bt_optim_create(bt_optim **out, const bt_optim_cfg *cfg, const bt_optim_span *spans,
                        size_t n, bt_range range, bt_err *err) BT_MUST_CHECK;
void bt_optim_destroy(bt_optim *o); /* accepts NULL */
/* Returns the memory used by create. */
size_t bt_optim_bytes(bt_optim_id kind, bt_states_kind states, const bt_optim_span *spans, size_t n,
                      bt_range range);
const bt_optim_rule *bt_optim_rule_of(bt_optim_id kind, const bt_optim_span *span);
const char *bt_states_name(bt_states_kind states);
/* Returns the storage type of state k of a rule. */
bt_moment_form bt_optim_form(const bt_optim_rule *rule, bt_states_kind states, size_t k);
/* Returns the update for this tensor, with its learning rate and decay. */
bt_optim_update bt_optim_update_of(const bt_optim_span *span, const bt_optim_update *u);

/* Applies the rules to every span clipped to the range. w and g: beginnings of the flat arrays; w may be NULL if
 * every span has separate weights. */
void bt_optim_step(bt_optim *o, float *w, const float *g, const bt_optim_update *u);
/* Rounds fp32 values computed in update t to the weights of elements r of span i, which are stored as bf16, like
 * bt_optim_step. The last operation of an update of a whole matrix. Any thread. */
void bt_optim_round_weights(const bt_optim *o, size_t i, bt_range r, const float *values,
                            int64_t t);
/* Adds the squares of the changes made by the last update in elements [r.begin, r.end) of span i, which are inside
 * the range, and the squares of the weights before it. They are recomputed from the states (approximately, if
 * these are rounded). Elements of whole-matrix rules add nothing. */
void bt_optim_change(const bt_optim *o, size_t i, bt_range r, float *w, const float *g,
                     const bt_optim_update *u, double *change, double *before);
/* Returns state k of element `at` of span i and the following ones up to the end of the range or the span, in the
 * form of bt_optim_form; NULL if the span's rule has no such state */
void *bt_optim_state(const bt_optim *o, size_t i, size_t k, size_t at);
/* Reads elements [r.begin, r.end) of it as fp32; returns false if there is no such state. Any thread. */
bool bt_optim_read(const bt_optim *o, size_t i, size_t k, bt_range r, float *out);
/* Raises elements [r.begin, r.end) of it to at least `share` of their mean; does nothing without such a state. The
 * training thread. */
void bt_optim_raise(bt_optim *o, size_t i, size_t k, bt_range r, double share);

#endif
