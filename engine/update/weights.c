/* weights.c - ownership of weights, and the three ways in which their values reach the other ranks. */
#include "engine/update/weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_pages.h"
#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/ternary.h"
#include "engine/parallel/shard/flip_gather.h"

/* Forms in which weights are sent: as products read them; and, while layers change from full precision to ternary
 * (bt_model_lambda), mixtures of values and codes. */
enum { AS_READ, FADING, FORMS };

/* A contiguous part of a linear layer's tensor as ranks send it: elements first .. first+n, as codes or as values of a
 * dense layer. In each form it begins at byte `at` of the shard's data. */
typedef struct code_run {
    size_t tensor, first, n, at[FORMS];
    int shard;
} code_run;

typedef struct sent_form {
    /* (shards, layers + 1) first byte of each layer in a shard's data */
    size_t *at;
    unsigned char *own; /* this shard's bytes of all runs */
    bt_prefetch *feed;
} sent_form;

struct bt_weights {
    bt_layer_source source; /* must be first, because pointers to it are converted */
    bt_model *model;
    const bt_mesh *mesh;
    const bt_shards *shards;
    bool apart; /* ZeRO 3: only owners store latent weights */
    bt_prec prec;
    bt_weight_source weight_source;
    bt_shard_all_gather
        *pieces;    /* replicated tensors, and tables stored as bf16; NULL: one shard */
    bool gathering; /* an exchange of pieces is in flight */
    double *sums;   /* sums of |w| over blocks, which are exchanged */
    code_run *runs; /* runs of all shards, in the order of the flat array */
    size_t n_runs, n_layers;
    size_t *layer_run;      /* (layers + 1) index of each layer's first run */
    sent_form forms[FORMS]; /* FADING: empty unless the model fades */
    int form;               /* form in this pass */
    bool fades;
    bt_flip_gather *flips; /* NULL if codes are prefetched layer by layer */
    size_t *passes;        /* (shards) number of passes of each shard */
    int64_t busy_ns;       /* duration of transfers in flight since the value was last read */
    int64_t blocked_ns;    /* duration of waits for layers in this pass */
    int placed;            /* layer whose panels are filled; -1 if none */
    bt_code failed;        /* error in a pass, which has no return code */
    bt_err why;
};

/* ---- plan ------------------------------------------------------------------------------------ */

/* Calls `each` for the runs of all shards in the order of the flat array; r->at is not set yet. */
static void for_each_code_run(const bt_params *p, const bt_shards *s,
                              void (*each)(void *ctx, const bt_tensor *t, code_run *r), void *ctx) {
    size_t k = 0;
    for (size_t i = 0; i < s->n_stripes; i++) {
        for (int d = 0; d < s->n; d++) {
            bt_range r = bt_shards_piece(s, i, d);
            while (k < p->n && p->tensors[k].offset + p->tensors[k].count <= r.begin) k++;
            for (size_t x = k; x < p->n && p->tensors[x].offset < r.end; x++) {
                const bt_tensor *t = &p->tensors[x];
                size_t begin = bt_max_size(r.begin, t->offset),
                       end = bt_min_size(r.end, t->offset + t->count);
                if (t->linear && begin < end)
                    each(
                        ctx, t,
                        &(code_run){
                            .tensor = x, .first = begin - t->offset, .n = end - begin, .shard = d});
            }
        }
    }
}

static size_t form_bytes(const bt_tensor *t, int form, bt_prec prec, size_t n) {
    return bt_read_bytes(form == FADING ? bt_model_fade_read(prec) : bt_model_read(t, prec), n);
}

typedef struct measure {
    int shard, layer, form;
    bt_prec prec;
    size_t own, others, longest, all_others;
} measure;

static void measure_run(void *ctx, const bt_tensor *t, code_run *r) {
    measure *m = ctx;
    if (t->layer != m->layer) m->others = 0;
    m->layer = t->layer;
    size_t bytes = form_bytes(t, m->form, m->prec, r->n);
    if (r->shard == m->shard)
        m->own += bytes;
    else {
        m->others += bytes;
        m->all_others += bytes;
    }
    m->longest = bt_max_size(m->longest, m->others);
}

static bool stores_pieces_only(bt_weight_source source, const bt_shards *s) {
    return source != BT_WEIGHTS_LOCAL && s->n > 1;
}

size_t bt_weights_bytes(const bt_rank_setup *s) {
    measure m = {.shard = s->shard, .layer = -1, .prec = s->model.prec};
    if (!stores_pieces_only(s->model.weight_source, &s->shards)) return 0;
    for_each_code_run(&s->params, &s->shards, measure_run, &m);
    bool flips = s->cfg->parallel.gather == BT_GATHER_FLIPS && s->cfg->model.linear != BT_LIN_DENSE;
    size_t bytes = m.own + bt_prefetch_bytes(m.longest) +
                   (flips ? bt_flip_gather_bytes(m.own + m.all_others) : 0);
    if (!s->model.fades) return bytes;
    m = (measure){.shard = s->shard, .layer = -1, .form = FADING, .prec = s->model.prec};
    for_each_code_run(&s->params, &s->shards, measure_run, &m);
    return bytes + m.own + bt_prefetch_bytes(m.longest);
}

/* Returns the bytes of a tensor's latent weights in the pieces of this rank. */
static size_t latent_bytes_of_rank(const bt_rank_setup *s, const bt_tensor *t) {
    size_t elems = 0;
    const bt_range stripes = bt_shards_stripes(&s->shards,
                                               (bt_range){t->offset, t->offset + t->count});
    for (size_t i = stripes.begin; i < stripes.end; i++) {
        bt_range r = bt_shards_piece(&s->shards, i, s->shard);
        size_t begin = bt_max_size(r.begin, t->offset),
               end = bt_min_size(r.end, t->offset + t->count);
        if (begin < end) elems += end - begin;
    }
    return elems * bt_moment_bytes(bt_model_latent_form(&s->model, t));
}

size_t bt_weights_own_bytes(const bt_rank_setup *s) {
    size_t bytes = 0;
    for (size_t k = 0; k < s->params.n; k++)
        bytes += latent_bytes_of_rank(s, &s->params.tensors[k]);
    return bytes;
}

size_t bt_weights_latent_bytes(const bt_rank_setup *s) {
    const bool shared = stores_pieces_only(s->model.weight_source, &s->shards);
    size_t bytes = 0;
    for (size_t k = 0; k < s->params.n; k++) {
        const bt_tensor *t = &s->params.tensors[k];
        bytes += shared && bt_model_shares_out(t, s->model.prec)
                     ? latent_bytes_of_rank(s, t)
                     : t->count * bt_moment_bytes(bt_model_latent_form(&s->model, t));
    }
    return bytes;
}

static void count_run(void *ctx, const bt_tensor *t, code_run *r) {
    bt_weights *w = ctx;
    w->n_runs++;
    w->n_layers = bt_max_size(w->n_layers, (size_t)t->layer + 1);
    (void)r;
}

static void place_code_run(void *ctx, const bt_tensor *t, code_run *r) {
    bt_weights *w = ctx;
    size_t layer = (size_t)t->layer;
    for (int f = 0; f <= (w->fades ? FADING : AS_READ); f++) {
        size_t *at = w->forms[f].at + (size_t)r->shard * (w->n_layers + 1);
        r->at[f] = at[layer + 1];
        size_t end = r->at[f] + form_bytes(t, f, w->prec, r->n);
        for (size_t l = layer + 1; l <= w->n_layers; l++) at[l] = end;
    }
    w->runs[w->n_runs++] = *r;
    for (size_t l = layer + 1; l <= w->n_layers; l++) w->layer_run[l] = w->n_runs;
}

static bt_code plan_form(bt_weights *w, sent_form *f, bt_err *err) {
    const size_t me = (size_t)w->mesh->me.dp_shard,
                 bytes = f->at[me * (w->n_layers + 1) + w->n_layers];
    f->own = calloc(bytes + 1, 1);
    if (!f->own)
        return bt_fail(err, BT_NOMEM, "cannot take %.1f MiB for the weights that this shard sends",
                       (double)bytes / 1048576.0);
    return bt_prefetch_create(&f->feed, &(bt_prefetch_cfg){w->mesh, w->n_layers, f->at, f->own},
                              err);
}

static bt_code plan_runs(bt_weights *w, bt_err *err) {
    const bt_params *p = bt_model_params(w->model);
    size_t shards = (size_t)w->shards->n;
    for_each_code_run(p, w->shards, count_run, w);
    w->runs = calloc(w->n_runs + 1, sizeof *w->runs);
    w->layer_run = calloc(w->n_layers + 1, sizeof *w->layer_run);
    for (int f = 0; f < FORMS; f++)
        w->forms[f].at = calloc(shards * (w->n_layers + 1), sizeof *w->forms[f].at);
    w->passes = calloc(shards, sizeof *w->passes);
    w->sums = calloc(bt_model_quant_sums(w->model) + 1, sizeof *w->sums);
    if (!w->runs || !w->layer_run || !w->forms[AS_READ].at || !w->forms[FADING].at || !w->passes ||
        !w->sums)
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu runs of weights", w->n_runs);
    w->n_runs = 0;
    for_each_code_run(p, w->shards, place_code_run, w);
    BT_TRY(plan_form(w, &w->forms[AS_READ], err));
    return w->fades ? plan_form(w, &w->forms[FADING], err) : BT_OK;
}

/* ternary weights only, because values of dense layers change in every step */
static bt_code plan_flips(bt_weights *w, bt_err *err) {
    size_t shards = (size_t)w->shards->n, *bytes = calloc(shards, sizeof *bytes);
    if (!bytes) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu shards", shards);
    for (size_t s = 0; s < shards; s++)
        bytes[s] = w->forms[AS_READ].at[s * (w->n_layers + 1) + w->n_layers];
    bt_code code = bt_flip_gather_create(&w->flips, w->mesh, bytes, err);
    free(bytes);
    return code;
}

/* Plans the data that are sent once per step in pieces: all latent weights as stored, or replicated tensors and the
 * tables of embedding and head. */
static bt_code plan_pieces(bt_weights *w, bt_err *err) {
    const bt_params *p = bt_model_params(w->model);
    float *flat = bt_model_weights(w->model);
    bt_gathered *ranges = calloc(p->n + 1, sizeof *ranges);
    if (!ranges) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu tensors", p->n);
    size_t n = 0;
    const bool whole = !w->apart && flat;
    for (size_t k = 0; !whole && k < p->n; k++) {
        const bt_tensor *t = &p->tensors[k];
        const bt_latent latent = bt_model_latent(w->model, k);
        bt_range range = {t->offset, t->offset + t->count};
        uint16_t *table = w->apart ? bt_model_table(w->model, k) : NULL;
        if (table)
            ranges[n++] = (bt_gathered){range, table, sizeof *table};
        else if (!w->apart || !t->linear)
            ranges[n++] = (bt_gathered){range, latent.at, bt_moment_bytes(latent.form)};
    }
    if (whole) ranges[n++] = (bt_gathered){{0, p->total}, flat, sizeof *flat};
    bt_code code = bt_shard_all_gather_create(&w->pieces, w->mesh, w->shards, ranges, n, err);
    free(ranges);
    return code;
}

/* Pieces of latent weights alternate with replicated norms, so huge pages would allocate pieces of other ranks, too. */
static void use_small_pages(bt_weights *w) {
    bt_model *m = w->model;
    const bt_params *p = bt_model_params(m);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = UINTPTR_MAX, to = 0;
    for (size_t k = 0; k < p->n; k++) {
        const bt_latent latent = bt_model_latent(m, k);
        if (!bt_model_shares_out(&p->tensors[k], w->prec)) continue;
        from = bt_min_size(from, (uintptr_t)latent.at / page * page);
        to = bt_max_size(to, (uintptr_t)bt_latent_at(latent, p->tensors[k].count));
    }
    if (from < to) bt_pages_prefer_small((void *)from, (to - from + page - 1) / page * page);
}

static void need_prefetched_layer(bt_layer_source *source, int layer);
static void poll_prefetch(bt_layer_source *source);

bt_code bt_weights_create(bt_weights **out, const bt_weights_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_weights *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "cannot take memory for the weights' owners");
    *w = (bt_weights){.source = {.need = need_prefetched_layer, .poll = poll_prefetch},
                      .model = cfg->model,
                      .mesh = cfg->mesh,
                      .shards = cfg->shards,
                      .apart = stores_pieces_only(cfg->weight_source, cfg->shards),
                      .prec = cfg->prec,
                      .fades = cfg->fades,
                      .weight_source = cfg->weight_source,
                      .placed = -1,
                      .why = BT_ERR_INIT};
    if (w->apart) use_small_pages(w);
    bt_code code = cfg->shards->n > 1 ? plan_pieces(w, err) : BT_OK;
    if (code == BT_OK && w->apart) code = plan_runs(w, err);
    if (code == BT_OK && w->apart && cfg->flips && cfg->weight_source == BT_WEIGHTS_GATHERED &&
        bt_model_config(cfg->model)->linear != BT_LIN_DENSE)
        code = plan_flips(w, err);
    if (code != BT_OK) {
        bt_weights_destroy(w);
        return code;
    }
    if (w->weight_source == BT_WEIGHTS_PREFETCHED) bt_model_source(w->model, &w->source);
    *out = w;
    return BT_OK;
}

void bt_weights_destroy(bt_weights *w) {
    if (!w) return;
    bt_shard_all_gather_destroy(w->pieces);
    for (int f = 0; f < FORMS; f++) {
        bt_prefetch_destroy(w->forms[f].feed);
        free(w->forms[f].at);
        free(w->forms[f].own);
    }
    bt_flip_gather_destroy(w->flips);
    free(w->runs);
    free(w->layer_run);
    free(w->passes);
    free(w->sums);
    free(w);
}

bool bt_weights_holds(const bt_weights *w, const bt_tensor *t) {
    return !w->apart || !bt_model_shares_out(t, w->prec);
}
bool bt_weights_counts(const bt_weights *w) {
    return w->apart ? w->mesh->me.dp_replicate == 0 : w->mesh->me.dp == 0;
}

const int8_t *bt_weights_codes(const bt_weights *w, size_t tensor, size_t first, size_t n,
                               int8_t *spare) {
    const int8_t *codes = bt_model_codes(w->model, tensor);
    if (codes) return codes + first;
    for (size_t k = w->layer_run[bt_model_params(w->model)->tensors[tensor].layer]; k < w->n_runs;
         k++) {
        const code_run *r = &w->runs[k];
        if (r->tensor != tensor || r->shard != w->mesh->me.dp_shard || first < r->first ||
            first + n > r->first + r->n)
            continue;
        bt_tern2_read(spare, w->forms[AS_READ].own + r->at[AS_READ], first - r->first, n);
        return spare;
    }
    return NULL;
}

/* ---- once a step ----------------------------------------------------------------------------- */

/* Converts own values of a stripe into the tables that all ranks read. */
static void fill_tables(bt_weights *w, size_t stripe) {
    const bt_params *p = bt_model_params(w->model);
    bt_range own = bt_shards_piece(w->shards, stripe, w->mesh->me.dp_shard);
    for (size_t k = 0; w->apart && k < p->n; k++) {
        const bt_tensor *t = &p->tensors[k];
        uint16_t *table = bt_model_table(w->model, k);
        size_t begin = bt_max_size(own.begin, t->offset),
               end = bt_min_size(own.end, t->offset + t->count);
        if (table && begin < end) /* embedding and head are stored as fp32 */
            bt_op_save_bf16(table + (begin - t->offset),
                            bt_latent_at(bt_model_latent(w->model, k), begin - t->offset),
                            end - begin);
    }
}

bt_code bt_weights_gather(bt_weights *w, size_t stripe, bt_err *err) {
    if (!w->pieces) return BT_OK;
    w->gathering = true;
    fill_tables(w, stripe);
    return bt_shard_all_gather_start(w->pieces, stripe, err);
}

/* Before the first update, all ranks already have the weights that they read, except the tables. */
static bt_code gather_all_stripes(bt_weights *w, bt_err *err) {
    for (size_t i = w->shards->n_stripes; i-- > 0;) BT_TRY(bt_weights_gather(w, i, err));
    return BT_OK;
}

/* Begins blocked time, which is charged as exposed communication and counted as busy. */
static int64_t begin_blocked(void) {
    bt_span_begin(BT_MR_COMM_EXPOSED);
    return bt_now_ns();
}

static int64_t end_blocked(int64_t start) {
    bt_span_end();
    return bt_now_ns() - start;
}

static bt_code sum_of_all(bt_weights *w, bt_err *err) {
    size_t n = bt_model_quant_sums(w->model);
    if (n == 0) return BT_OK;
    memset(w->sums, 0, n * sizeof *w->sums);
    for (size_t i = 0; i < w->shards->n_stripes; i++) {
        bt_range r = bt_shards_piece(w->shards, i, w->mesh->me.dp_shard);
        bt_model_quant_fill(w->model, w->sums, r.begin, r.end);
    }
    int64_t start = begin_blocked();
    /* adding 0 changes no bit */
    BT_TRY(bt_all_reduce_f64(w->mesh->shard, w->sums, n, BT_SUM, err));
    w->busy_ns += end_blocked(start);
    bt_model_quant_scales(w->model, w->sums);
    return BT_OK;
}

/* Computes this rank's weights in the form that fading layers read, from the codes made of these weights. */
static void fill_fading(bt_weights *w) {
    for (size_t k = 0; k < w->n_runs; k++) {
        const code_run *r = &w->runs[k];
        if (r->shard == w->mesh->me.dp_shard)
            bt_model_fade_own(w->model,
                              &(bt_fade_run){r->tensor, r->first, r->n,
                                             w->forms[AS_READ].own + r->at[AS_READ]},
                              w->forms[FADING].own + r->at[FADING]);
    }
}

static bt_code start_walk(bt_weights *w, bt_passes walk, const int64_t *micros, int64_t each,
                          bt_err *err) {
    for (int s = 0; s < w->shards->n; s++)
        w->passes[s] = (size_t)(micros ? micros[w->mesh->me.dp_replicate * w->shards->n + s]
                                       : each);
    w->placed = -1;
    w->blocked_ns = 0;
    w->form = w->fades && bt_model_fading(w->model) ? FADING : AS_READ;
    if (w->form == FADING) fill_fading(w);
    return bt_prefetch_begin(w->forms[w->form].feed, walk, w->passes, err);
}

static bt_code end_layer_transfers(bt_weights *w, bt_err *err) {
    int64_t start = begin_blocked();
    bt_prefetch *feed = w->forms[w->form].feed;
    BT_TRY(bt_prefetch_end(feed, err));
    int64_t blocked_ns = w->blocked_ns + end_blocked(start), busy_ns = bt_prefetch_busy_ns(feed);
    if (busy_ns < blocked_ns) busy_ns = blocked_ns;
    bt_traffic_add(BT_COLL_ALL_GATHER, BT_AXIS_SHARD,
                   &(bt_traffic){.calls = 1, .busy_ns = busy_ns, .exposed_ns = blocked_ns});
    w->busy_ns += busy_ns;
    return BT_OK;
}

/* Fills the panels of a layer from the data of each shard. */
static bt_code fill_layer_panels(bt_weights *w, size_t layer, bt_err *err) {
    const sent_form *f = &w->forms[w->form];
    for (size_t k = w->layer_run[layer]; k < w->layer_run[layer + 1]; k++) {
        const code_run *r = &w->runs[k];
        size_t begin = f->at[(size_t)r->shard * (w->n_layers + 1) + layer];
        const unsigned char *bytes = (w->flips ? bt_flip_gather_from(w->flips, r->shard) + begin
                                               : bt_prefetch_from(f->feed, r->shard)) +
                                     (r->at[w->form] - begin);
        if (w->form == FADING) {
            bt_model_fade_take(w->model, r->tensor, r->first, r->n, bytes);
            continue;
        }
        BT_TRY(bt_model_quant_take(w->model, r->tensor, r->first, r->n, bytes, err));
        if (k + 1 == w->layer_run[layer + 1] || w->runs[k + 1].tensor != r->tensor)
            bt_model_quant_place(w->model, r->tensor);
    }
    return BT_OK;
}

static bt_code fill_flipped_panels(bt_weights *w, bt_err *err) {
    int64_t start = begin_blocked();
    BT_TRY(bt_flip_gather_run(w->flips, w->forms[AS_READ].own, err));
    w->busy_ns += end_blocked(start);
    for (size_t l = 0; l < w->n_layers; l++) BT_TRY(fill_layer_panels(w, l, err));
    return BT_OK;
}

static bt_code fill_all_panels(bt_weights *w, bt_err *err) {
    if (w->flips) return fill_flipped_panels(w, err);
    BT_TRY(start_walk(w, BT_PASSES_FORWARD, NULL, 1, err));
    for (size_t l = 0; l < w->n_layers; l++) need_prefetched_layer(&w->source, (int)l);
    BT_TRY(bt_weights_check(w, err));
    return end_layer_transfers(w, err);
}

/* Quantises this rank's latent weights into the form that is sent; data of other ranks are received when needed. */
static bt_code quantise_shards(bt_weights *w, bt_err *err) {
    BT_TRY(sum_of_all(w, err));
    for (size_t k = 0; k < w->n_runs; k++) {
        const code_run *r = &w->runs[k];
        if (r->shard == w->mesh->me.dp_shard)
            BT_TRY(bt_model_quant_own(w->model, r->tensor, r->first, r->n,
                                      w->forms[AS_READ].own + r->at[AS_READ], err));
    }
    bt_model_quant_done(w->model);
    return w->weight_source == BT_WEIGHTS_GATHERED ? fill_all_panels(w, err) : BT_OK;
}

bt_code bt_weights_quantise(bt_weights *w, bt_err *err) {
    if (w->apart && !w->gathering) BT_TRY(gather_all_stripes(w, err));
    w->gathering = false;
    if (w->pieces) {
        int64_t start = begin_blocked();
        BT_TRY(bt_shard_all_gather_finish(w->pieces, err));
        w->busy_ns += end_blocked(start);
    }
    if (w->apart) return quantise_shards(w, err);
    bt_model_quantise(w->model);
    return BT_OK;
}

/* ---- prefetch --------------------------------------------------------------------------- */

static bt_code fetch_layer(bt_weights *w, size_t layer, bt_err *err) {
    int64_t start = begin_blocked();
    bt_prefetch *feed = w->forms[w->form].feed;
    BT_TRY(bt_prefetch_wait(feed, layer, err));
    w->blocked_ns += end_blocked(start);
    BT_TRY(fill_layer_panels(w, layer, err));
    return bt_prefetch_next(feed, err);
}

static void need_prefetched_layer(bt_layer_source *source, int layer) {
    bt_weights *w = (bt_weights *)source;
    if (w->placed == layer || w->failed != BT_OK) return;
    w->failed = fetch_layer(w, (size_t)layer, &w->why);
    w->placed = layer;
}

static void poll_prefetch(bt_layer_source *source) {
    const bt_weights *w = (const bt_weights *)source;
    bt_prefetch_poll(w->forms[w->form].feed);
}

bt_code bt_weights_check(const bt_weights *w, bt_err *err) {
    if (w->failed != BT_OK && err) *err = w->why;
    return w->failed;
}

static bool prefetches_layers(const bt_weights *w) {
    return w->weight_source == BT_WEIGHTS_PREFETCHED;
}

bt_code bt_weights_begin(bt_weights *w, bt_passes walk, const int64_t *micros, int64_t each,
                         bt_err *err) {
    return prefetches_layers(w) ? start_walk(w, walk, micros, each, err) : BT_OK;
}

bt_code bt_weights_drain_sends(bt_weights *w, bt_err *err) {
    if (!prefetches_layers(w)) return BT_OK;
    bt_span_begin(BT_MR_WAIT);
    BT_TRY(bt_prefetch_drain_sends(w->forms[w->form].feed, err));
    bt_span_end();
    return BT_OK;
}

bt_code bt_weights_end(bt_weights *w, bt_err *err) {
    return prefetches_layers(w) ? end_layer_transfers(w, err) : BT_OK;
}

int64_t bt_weights_take_busy_ns(bt_weights *w) {
    int64_t ns = w->busy_ns;
    w->busy_ns = 0;
    return ns;
}
