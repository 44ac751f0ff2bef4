/* average_part.c - an exponential average of the weights (optim.average), which each update moves towards them, and
 * which all uses of the model read. */
#include <math.h>
#include <stdlib.h>

#include "engine/train/parts/average/average_loops.h"
#include "engine/train/trainer_impl.h"

typedef struct average {
    double keep;    /* share of the average that one update keeps */
    float **pieces; /* (n) averages of the pieces that this rank updates */
    size_t n;
} average;

static void release_average(average *a) {
    for (size_t i = 0; i < a->n; i++) free(a->pieces[i]);
    free(a->pieces);
    a->pieces = NULL;
    a->n = 0;
}

static bt_code average_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (s->cfg->average.average == 0) return BT_OK;
    BT_TRY(bt_part_new(self, sizeof(average), "the average of the weights", err));
    ((average *)*self)->keep = exp2(-1 / s->cfg->average.average);
    return BT_OK;
}

static void average_release(void *self) {
    release_average(self);
    free(self);
}

static bt_code average_model_made(void *self, bt_trainer *t, bt_err *err) {
    average *a = self;
    const bt_update *u = &t->update;
    release_average(a);
    a->pieces = calloc(u->n_pieces + 1, sizeof *a->pieces);
    for (; a->pieces && a->n < u->n_pieces; a->n++) {
        const size_t n = u->pieces[a->n].end - u->pieces[a->n].begin;
        a->pieces[a->n] = calloc(n + 1, sizeof **a->pieces);
        if (!a->pieces[a->n]) break;
    }
    return a->n == u->n_pieces
               ? BT_OK
               : bt_fail(err, BT_NOMEM, "cannot take memory for the average of the weights");
}

static float *const *average_for_use(void *self, const bt_trainer *t) {
    (void)t;
    return ((average *)self)->pieces;
}

static void move_pieces(const average *a, const bt_trainer *t, double keep) {
    const float *w = bt_model_weights(t->model);
    for (size_t i = 0; i < a->n; i++) {
        const bt_range piece = t->update.pieces[i];
        bt_average_move(a->pieces[i], w + piece.begin, piece.end - piece.begin, (float)(1 - keep));
    }
}

static bt_code average_load(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    (void)err;
    if (stage == BT_LOAD_FRESH) move_pieces(self, t, 0);
    return BT_OK;
}

/* At the start the average follows more quickly: it forgets the initial weights within a tenth of the updates done. */
static bt_code average_after_update(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    const average *a = self;
    const double n = (double)t->at.updates, most = (1 + n) / (10 + n);
    (void)err;
    if (o->applied) move_pieces(a, t, a->keep < most ? a->keep : most);
    return BT_OK;
}

static size_t average_bytes(const bt_rank_setup *s, size_t saved) {
    (void)saved;
    size_t elements = 0;
    if (s->cfg->average.average == 0) return 0;
    for (size_t i = 0; i < s->shards.n_stripes; i++) {
        const bt_range piece = bt_shards_piece(&s->shards, i, s->shard);
        elements += piece.end - piece.begin;
    }
    return elements * sizeof(float);
}

const bt_part bt_part_average = {.name = "average",
                                 .memory = {"average", "average of the weights (optim.average)",
                                            average_bytes, true},
                                 .create = average_create,
                                 .release = average_release,
                                 .model_made = average_model_made,
                                 .weights_for_use = average_for_use,
                                 .load = average_load,
                                 .after_update = average_after_update};
