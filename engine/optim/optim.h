/* optim.h - optimizers over slices of the flat parameter array. They do not know the model.
 *
 *     rule        how one tensor is updated: AdamW, Lion, Muon (one file each)
 *     optimizer   which rule the weight matrices of the layers take and which the rest
 *                 (embedding, norms, head): a row of optim.def
 *     bt_optim    the optimizer's state for one range of the flat array, which one rank owns
 *
 * A rule with `whole_matrix` needs all of a matrix at once: its step only updates the momentum, the
 * caller brings each matrix together (engine/update/matrix_update.h), makes the direction of the
 * whole matrix, and applies it range by range. All other rules update any range by itself.
 *
 * States are fp32, or kept in fewer bytes (moment.h), and so may be weights: a step reads them, computes
 * in fp32, and rounds them at random by a counter: (seed, update, tensor, state, element of the whole
 * tensor). No other element has a part in it, so layouts and threads do not change the bits.
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

enum { BT_OPTIM_STATES = 2 }; /* most that a rule keeps per element */

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
    uint64_t seed; /* of the noise that states and weights are rounded with */
    double beta1, beta2, eps, momentum;
} bt_optim_cfg;

typedef struct bt_optim_update { /* one update, the same for all tensors but the decay */
    int64_t t;                   /* 1-based: bias correction */
    int64_t held_at;  /* AdamW: the second moment stays that of this update; 0: it follows */
    float grad_scale; /* gradients are multiplied by it first */
    float lr, decay;  /* decay: decoupled, of tensors that decay */
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
    /* elementwise: the update. whole_matrix: the momentum alone, weights stay */
    void (*step)(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u);
    /* the same on one thread, with the same bits on every kernel set */
    void (*step_few)(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u);
    /* of the update just made: the change of each weight, and the weights before. At most
     * BT_OPTIM_UNDO elements. NULL: whole_matrix, whose caller measures while it applies */
    void (*undo)(float *change, float *before, const bt_optim_elems *e, const bt_optim_cfg *cfg,
                 const bt_optim_update *u);
} bt_optim_rule;

enum { BT_OPTIM_UNDO = 256 };

extern const bt_optim_rule bt_rule_adamw, bt_rule_lion, bt_rule_muon;

typedef struct bt_optim_info { /* a row of optim.def */
    const char *name, *help;
    const bt_optim_rule *matrices, *rest;
    double lr_factor; /* of the preset's learning rate, where none is given */
} bt_optim_info;

const bt_optim_info *bt_optim_info_of(bt_optim_id id);

/* of the flat array, ascending, not overlapping: one tensor each */
typedef struct bt_optim_span {
    size_t begin, end;
    /* where its weights are, that of `begin` first, and how they are kept: fp32 or bf16. NULL: in the
     * array given to bt_optim_step */
    void *weights;
    bt_moment_form form;
    bool decay;
    bool matrix;     /* a weight matrix of a layer */
    float lr_factor; /* of the learning rate, and with it of the decay; 0: one */
    /* where its elements lie in the whole tensor, for the noise of states: element i is element
     * first + i / cols * stride + i % cols; cols 0: first + i */
    uint64_t name; /* hash of the tensor's name */
    size_t first, cols, stride;
} bt_optim_span;

typedef struct bt_optim bt_optim;

/* allocates states for the parts of the spans in range; the spans are borrowed */
bt_code bt_optim_create(bt_optim **out, const bt_optim_cfg *cfg, const bt_optim_span *spans,
                        size_t n, bt_range range, bt_err *err) BT_MUST_CHECK;
void bt_optim_destroy(bt_optim *o); /* accepts NULL */
/* that create takes */
size_t bt_optim_bytes(bt_optim_id kind, bt_states_kind states, const bt_optim_span *spans, size_t n,
                      bt_range range);
const bt_optim_rule *bt_optim_rule_of(bt_optim_id kind, const bt_optim_span *span);
const char *bt_states_name(bt_states_kind states);
/* how state k of a rule is kept */
bt_moment_form bt_optim_form(const bt_optim_rule *rule, bt_states_kind states, size_t k);
/* the update as this tensor takes it: its own learning rate and decay */
bt_optim_update bt_optim_update_of(const bt_optim_span *span, const bt_optim_update *u);

/* makes the rules' step for every span clipped to the range; w and g are the beginnings of the flat arrays; w may
 * be NULL if every span has weights of its own */
void bt_optim_step(bt_optim *o, float *w, const float *g, const bt_optim_update *u);
/* weights of elements r of span i, which are kept as bf16, from fp32 values computed in update t: rounded
 * as bt_optim_step rounds. What updates whole matrices ends with it. Any thread */
void bt_optim_round_weights(const bt_optim *o, size_t i, bt_range r, const float *values,
                            int64_t t);
/* adds the squares of what the update just made changed in elements [r.begin, r.end) of span i,
 * which lie inside the range, and the squares of the weights before it. Nothing is kept for it: it
 * is made again from the states (as they were rounded: about, where they are not fp32). Elements of
 * whole-matrix rules add nothing */
void bt_optim_change(const bt_optim *o, size_t i, bt_range r, float *w, const float *g,
                     const bt_optim_update *u, double *change, double *before);
/* state k of element `at` of span i and what follows up to the range's or the span's end, in the form
 * of bt_optim_form; NULL where the span's rule keeps no such state */
void *bt_optim_state(const bt_optim *o, size_t i, size_t k, size_t at);
/* elements [r.begin, r.end) of it as fp32; false: no such state. Any thread */
bool bt_optim_read(const bt_optim *o, size_t i, size_t k, bt_range r, float *out);
/* raises elements [r.begin, r.end) of it to at least `share` of their mean; does nothing if there is no such
 * state. The training thread */
void bt_optim_raise(bt_optim *o, size_t i, size_t k, bt_range r, double share);

#endif
