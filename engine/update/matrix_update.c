/* matrix_update.c - sends momentum to the owner of each matrix and its direction back, wave by wave. */
#include "engine/update/matrix_update.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/optim/muon.h"
#include "engine/parallel/mpi/mailbox.h"
#include "engine/update/matrix_map.h"

enum { CHUNK = 512 };

struct bt_matrix_update {
    bt_matrix_update_cfg cfg; /* the member `setup` is invalid after create */
    bt_matrix_map map;
    bt_mesh_coord me;
    int rank, replica, shard; /* position of this rank in its stage */
    float momentum;
    bt_comm *stage;
    bt_mailbox *mailbox;
    bt_muon *muon;
    bt_arena arena;
    size_t *at;          /* (tensors) offset of each tensor's stream in `direction` */
    uint16_t *direction; /* this rank's streams of all matrices: first momentum, then direction */
    uint16_t *matrix;    /* the matrix that this rank owns in the current wave */
    uint16_t *streams;   /* streams of that matrix, as received and as sent */
};

/* ---- create ---------------------------------------------------------------------------------- */

/* Reserves direction, matrix and streams in the arena. `at` may be NULL. */
static void plan_matrix_memory(bt_arena *a, const bt_matrix_map *m, bt_matrix_share own,
                               size_t offsets[3], size_t *at) {
    size_t elems = 0;
    for (own.k = 0; own.k < m->params[0].n; own.k++) {
        if (at) at[own.k] = elems;
        if (m->params[0].tensors[own.k].linear) elems += bt_matrix_map_elems(m, own);
    }
    bt_arena_plan(a, "whole matrices");
    offsets[0] = bt_arena_reserve(a, elems, sizeof(uint16_t));
    offsets[1] = bt_arena_reserve(a, m->max_short * m->max_long, sizeof(uint16_t));
    offsets[2] = bt_arena_reserve(a, bt_matrix_map_most(m), sizeof(uint16_t));
}

static bool needs_whole_matrices(const bt_optim_settings *optim) {
    const bt_optim_info *info = bt_optim_info_of((bt_optim_id)optim->name);
    return info->matrices->whole_matrix;
}

size_t bt_matrix_update_bytes(const bt_rank_setup *s) {
    if (!needs_whole_matrices(&s->cfg->optim)) return 0;
    bt_matrix_map map;
    bt_arena a = {0};
    size_t offsets[3], directions = 0;
    bt_err ignored;
    if (bt_matrix_map_init(&map, s, &ignored) == BT_OK) {
        plan_matrix_memory(&a, &map, (bt_matrix_share){.shard = s->shard, .tp_rank = s->me.tp},
                           offsets, NULL);
        directions = bt_muon_bytes(map.max_short, map.max_long);
    }
    bt_matrix_map_release(&map);
    return a.bytes + directions;
}

static bt_code allocate_matrix_update(bt_matrix_update *m, bt_err *err) {
    size_t offsets[3];
    m->at = calloc(m->map.params[0].n + 1, sizeof *m->at);
    if (!m->at) return bt_fail(err, BT_NOMEM, "cannot take memory for the list of matrices");
    plan_matrix_memory(&m->arena, &m->map,
                       (bt_matrix_share){.shard = m->shard, .tp_rank = m->me.tp}, offsets, m->at);
    BT_TRY(bt_arena_commit(&m->arena, err));
    m->direction = bt_arena_at(&m->arena, offsets[0]);
    m->matrix = bt_arena_at(&m->arena, offsets[1]);
    m->streams = bt_arena_at(&m->arena, offsets[2]);
    return bt_muon_create(&m->muon, m->map.max_short, m->map.max_long, err);
}

static bt_code create_matrix_update(bt_matrix_update *m, const bt_rank_setup *s, bt_err *err) {
    BT_TRY(bt_matrix_map_init(&m->map, s, err));
    m->rank = (s->replica * m->map.shards + s->shard) * m->map.tp + s->me.tp;
    return allocate_matrix_update(m, err);
}

bt_code bt_matrix_update_create(bt_matrix_update **out, const bt_matrix_update_cfg *cfg,
                                bt_err *err) {
    const bt_rank_setup *s = cfg->setup;
    *out = NULL;
    if (!needs_whole_matrices(&s->cfg->optim)) return BT_OK;
    bt_matrix_update *m = calloc(1, sizeof *m);
    if (!m) return bt_fail(err, BT_NOMEM, "cannot take memory for the updates of matrices");
    *m = (bt_matrix_update){.cfg = *cfg,
                            .me = s->me,
                            .replica = s->replica,
                            .shard = s->shard,
                            .momentum = (float)s->cfg->optim.momentum};
    bt_code code = create_matrix_update(m, s, err);
    m->cfg.setup = NULL;
    if (code == BT_OK)
        *out = m;
    else
        bt_matrix_update_destroy(m);
    return code;
}

bt_code bt_matrix_update_synchronise(bt_matrix_update *m, bt_err *err) {
    if (!m) return BT_OK;
    bt_comm *world = m->cfg.mesh->world;
    BT_TRY(bt_comm_split(&m->stage, world, m->me.pp, m->rank, err));
    return bt_agree(world, bt_mailbox_create(&m->mailbox, m->stage, 2 * (size_t)m->map.ranks, err),
                    err);
}

void bt_matrix_update_destroy(bt_matrix_update *m) {
    if (!m) return;
    bt_muon_destroy(m->muon);
    bt_mailbox_destroy(m->mailbox);
    bt_comm_free(m->stage);
    bt_arena_release(&m->arena);
    bt_matrix_map_release(&m->map);
    free(m->at);
    free(m);
}

/* ---- elements of this rank ---------------------------------------------------------------------------- */

typedef struct stretch { /* contiguous part of one tensor in one piece, and its direction */
    size_t piece;
    bt_range r; /* its elements in the flat array */
    uint16_t *direction;
} stretch;

typedef void (*stretch_use)(bt_matrix_update *m, size_t k, const stretch *s, void *ctx);

static void for_each_stretch(bt_matrix_update *m, size_t k, stretch_use use, void *ctx) {
    const bt_optim_span *span = &m->cfg.spans[k];
    stretch s = {.direction = m->direction + m->at[k]};
    for (; s.piece < m->cfg.n_pieces; s.piece++) {
        const bt_range *piece = &m->cfg.pieces[s.piece];
        s.r = (bt_range){bt_max_size(piece->begin, span->begin),
                         bt_min_size(piece->end, span->end)};
        if (s.r.begin >= s.r.end) continue;
        use(m, k, &s, ctx);
        s.direction += s.r.end - s.r.begin;
    }
}

typedef struct momentum_job {
    const bt_matrix_update *m;
    const bt_optim_update *u;
    const stretch *s;
    size_t k;
} momentum_job;

static void momentum_part(void *ctx, int thread, size_t a, size_t b) {
    const momentum_job *j = ctx;
    float some[CHUNK];
    (void)thread;
    for (size_t i = a, n; i < b; i += n) {
        n = bt_min_size(CHUNK, b - i);
        const bt_range r = {j->s->r.begin + i, j->s->r.begin + i + n};
        if (bt_optim_read(j->m->cfg.optims[j->s->piece], j->k, 0, r, some))
            bt_muon_momentum(j->s->direction + i, bt_model_grads(j->m->cfg.model) + r.begin, some,
                             j->u->grad_scale, j->m->momentum, n);
    }
}

static void copy_momentum(bt_matrix_update *m, size_t k, const stretch *s, void *ctx) {
    momentum_job j = {m, ctx, s, k};
    bt_parallel_for(s->r.end - s->r.begin, 16384, momentum_part, &j);
}

/* ---- exchange -------------------------------------------------------------------------------- */

static bt_matrix_share matrix_share(const bt_matrix_map *map, size_t k, int rank, bool counted) {
    return (bt_matrix_share){.k = k,
                             .shard = rank / map->tp % map->shards,
                             .tp_rank = rank % map->tp,
                             .counted = counted};
}

static bt_code send_matrix_part(bt_matrix_update *m, int to, const uint16_t *x, size_t n,
                                bt_err *err) {
    if (n == 0) return BT_OK;
    return bt_mailbox_send(m->mailbox, to, x, n * sizeof *x, n * sizeof(float), err);
}

static bt_code receive_matrix_part(bt_matrix_update *m, int from, uint16_t *x, size_t n,
                                   bt_err *err) {
    return n == 0 ? BT_OK : bt_mailbox_recv(m->mailbox, from, x, n * sizeof *x, err);
}

/* Returns the part of the stream whose elements this rank counts in sums over ranks. */
static uint16_t *counted_directions(const bt_matrix_update *m, size_t k, size_t *n) {
    size_t all = bt_matrix_map_elems(&m->map, matrix_share(&m->map, k, m->rank, false));
    *n = bt_matrix_map_elems(&m->map, matrix_share(&m->map, k, m->rank, true));
    return m->direction + m->at[k] + (all - *n);
}

typedef struct wave {
    const size_t *k; /* (n) the matrices of this wave; rank j owns the j-th */
    int n;
} wave;

/* Returns the first rank of the owner's replica. */
static int first_source(const bt_matrix_update *m, int owner) {
    int ranks = m->map.shards * m->map.tp;
    return owner / ranks * ranks;
}

static bt_code receive_momentum(bt_matrix_update *m, size_t k, bt_err *err) {
    uint16_t *at = m->streams;
    int first = first_source(m, m->rank);
    for (int g = first; g < first + m->map.shards * m->map.tp; g++) {
        size_t n = bt_matrix_map_elems(&m->map, matrix_share(&m->map, k, g, true));
        if (g != m->rank) BT_TRY(receive_matrix_part(m, g, at, n, err));
        at += n;
    }
    return BT_OK;
}

static void unpack_momentum(bt_matrix_update *m, size_t k) {
    const uint16_t *at = m->streams;
    int first = first_source(m, m->rank);
    size_t mine;
    const uint16_t *own = counted_directions(m, k, &mine);
    for (int g = first; g < first + m->map.shards * m->map.tp; g++) {
        bt_matrix_share who = matrix_share(&m->map, k, g, true);
        bt_matrix_map_unpack(&m->map, who, g == m->rank ? own : at, m->matrix);
        at += bt_matrix_map_elems(&m->map, who);
    }
}

static bt_code gather_matrix(bt_matrix_update *m, const wave *w, bt_optim_update *u, bt_err *err) {
    bool owner = m->rank < w->n;
    bt_mailbox_begin(m->mailbox);
    if (owner) BT_TRY(receive_momentum(m, w->k[m->rank], err));
    for (int j = 0; j < w->n; j++) {
        if (first_source(m, j) != first_source(m, m->rank)) continue;
        for_each_stretch(m, w->k[j], copy_momentum, u);
        size_t n;
        const uint16_t *own = counted_directions(m, w->k[j], &n);
        if (j != m->rank) BT_TRY(send_matrix_part(m, j, own, n, err));
    }
    BT_TRY(bt_mailbox_wait(m->mailbox, err));
    if (owner) unpack_momentum(m, w->k[m->rank]);
    return BT_OK;
}

static bt_code send_direction(bt_matrix_update *m, size_t k, bt_err *err) {
    int sources = m->map.shards * m->map.tp;
    uint16_t *at = m->streams;
    for (int i = 0; i < sources; i++) {
        bt_matrix_share who = matrix_share(&m->map, k, i, false);
        size_t n = bt_matrix_map_elems(&m->map, who);
        bt_matrix_map_pack(&m->map, who, at, m->matrix);
        for (int g = i; g < m->map.ranks; g += sources) {
            if (g == m->rank)
                memcpy(m->direction + m->at[k], at, n * sizeof *at);
            else
                BT_TRY(send_matrix_part(m, g, at, n, err));
        }
        at += n;
    }
    return BT_OK;
}

static bt_code scatter_directions(bt_matrix_update *m, const wave *w, bt_err *err) {
    bt_mailbox_begin(m->mailbox);
    for (int j = 0; j < w->n; j++) {
        size_t n = bt_matrix_map_elems(&m->map, matrix_share(&m->map, w->k[j], m->rank, false));
        if (j != m->rank) BT_TRY(receive_matrix_part(m, j, m->direction + m->at[w->k[j]], n, err));
    }
    if (m->rank < w->n) BT_TRY(send_direction(m, w->k[m->rank], err));
    return bt_mailbox_wait(m->mailbox, err);
}

/* ---- update ---------------------------------------------------------------------------------- */

typedef struct rates {
    float keep, step; /* w = keep w - step direction */
} rates;

static rates update_rates(const bt_matrix_update *m, size_t k, const bt_optim_update *u) {
    const bt_tensor *x = &m->map.params[0].tensors[k];
    const bt_optim_update own = bt_optim_update_of(&m->cfg.spans[k], u);
    return (rates){1 - own.lr * own.decay, own.lr * bt_muon_scale(x->whole_rows, x->whole_cols)};
}

typedef struct apply_job {
    const bt_matrix_update *m;
    const stretch *s;
    size_t k, first; /* tensor, and its first element in the range */
    bt_latent w;
    rates by;
    int64_t t;
} apply_job;

static void apply_part(void *ctx, int thread, size_t a, size_t b) {
    const apply_job *j = ctx;
    float d[CHUNK], spare[CHUNK];
    (void)thread;
    for (size_t i = a, n; i < b; i += n) {
        n = bt_min_size(CHUNK, b - i);
        bt_active_kernels()->from_bf16(d, j->s->direction + i, n);
        const float *old = bt_latent_read(j->w, j->first + i, n, spare);
        float *now = j->w.form == BT_MOMENT_F32 ? bt_latent_at(j->w, j->first + i) : spare;
        for (size_t e = 0; e < n; e++) now[e] = j->by.keep * old[e] - j->by.step * d[e];
        if (now == spare)
            bt_optim_round_weights(j->m->cfg.optims[j->s->piece], j->k,
                                   (bt_range){j->s->r.begin + i, j->s->r.begin + i + n}, now, j->t);
    }
}

static void apply_stretch(bt_matrix_update *m, size_t k, const stretch *s, void *ctx) {
    const bt_optim_update *u = ctx;
    apply_job j = {.m = m,
                   .s = s,
                   .k = k,
                   .first = s->r.begin - m->cfg.spans[k].begin,
                   .w = bt_model_latent(m->cfg.model, k),
                   .by = update_rates(m, k, u),
                   .t = u->t};
    bt_parallel_for(s->r.end - s->r.begin, 16384, apply_part, &j);
}

bt_code bt_matrix_update_apply(bt_matrix_update *m, const bt_optim_update *u, bt_err *err) {
    bt_optim_update how = *u;
    size_t ranks = (size_t)m->map.ranks;
    for (size_t i = 0; i < m->map.n; i += ranks) {
        wave w = {m->map.order + i, (int)bt_min_size(ranks, m->map.n - i)};
        BT_TRY(gather_matrix(m, &w, &how, err));
        if (m->rank < w.n) {
            const bt_tensor *x = &m->map.params[0].tensors[w.k[m->rank]];
            bt_muon_direction(m->muon, m->matrix, x->whole_rows, x->whole_cols);
        }
        BT_TRY(scatter_directions(m, &w, err));
        for (int j = 0; j < w.n; j++) for_each_stretch(m, w.k[j], apply_stretch, &how);
    }
    return BT_OK;
}

/* ---- change made by an update ------------------------------------------------------------------------- */

typedef struct change_job {
    bt_range r;
    rates by;
    double change, before;
} change_job;

static void change_of_stretch(bt_matrix_update *m, size_t k, const stretch *s, void *ctx) {
    change_job *j = ctx;
    const bt_latent latent = bt_model_latent(m->cfg.model, k);
    size_t begin = bt_max_size(j->r.begin, s->r.begin), end = bt_min_size(j->r.end, s->r.end);
    float d[CHUNK], spare[CHUNK];
    for (size_t i = begin, n; i < end; i += n) {
        n = bt_min_size(CHUNK, end - i);
        bt_active_kernels()->from_bf16(d, s->direction + (i - s->r.begin), n);
        const float *w = bt_latent_read(latent, i - m->cfg.spans[k].begin, n, spare);
        for (size_t e = 0; e < n; e++) {
            double old = ((double)w[e] + (double)j->by.step * (double)d[e]) / (double)j->by.keep,
                   change = (double)w[e] - old;
            j->change += change * change;
            j->before += old * old;
        }
    }
}

void bt_matrix_update_change(bt_matrix_update *m, size_t k, bt_range r, const bt_optim_update *u,
                             double *change, double *before) {
    change_job j = {.r = r, .by = update_rates(m, k, u)};
    for_each_stretch(m, k, change_of_stretch, &j);
    *change += j.change;
    *before += j.before;
}

int64_t bt_matrix_update_take_busy_ns(bt_matrix_update *m) {
    return m ? bt_mailbox_take_busy_ns(m->mailbox) : 0;
}
