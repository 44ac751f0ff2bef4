/* params.c - makes the tensor table of a model from params.def. */
#include "engine/model/shape/params.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBAL, LAYER };
enum { NORMAL, RESID, ONE, UNIFORM, ZERO, ROWNORM };
/* fp32 represents every whole number up to WHOLE_NUMBERS exactly. */
enum { ALIGN_ELEMS = 16, WHOLE_NUMBERS = 1 << 24 };

typedef struct param_row {
    bt_param_id id;
    const char *name;
    int scope;
    int64_t rows, cols;
    int init;
    bool decay, tern;
    bt_shard_axis shard;
    bool when;
} param_row;

static void evaluate_rows(param_row rows[BT_P_COUNT], const bt_model_cfg *c) {
    size_t i = 0;
#define ROW BT_SHARD_ROW
#define KVROW BT_SHARD_KVROW
#define COL BT_SHARD_COL
#define NONE BT_SHARD_NONE
#define VOCAB BT_SHARD_VOCAB
#define BT_R c->lora.rank
#define BT_PARAM(id_, name_, scope_, rows_, cols_, init_, decay_, tern_, shard_, when_) \
    rows[i++] = (param_row){BT_P_##id_, name_,  scope_, rows_,  cols_, \
                            init_,      decay_, tern_,  shard_, when_};
#include "engine/model/shape/params.def"
#undef BT_PARAM
#undef ROW
#undef KVROW
#undef COL
#undef NONE
#undef VOCAB
#undef BT_R
}

/* The shape of the tensor for every row, and that of its block in this part. */
typedef struct table {
    const bt_model_cfg *c;
    bt_model_slice slice;
    const bool *own; /* (L) whether the layer belongs to this part */
    param_row whole[BT_P_COUNT], block[BT_P_COUNT];
} table;

/* Sets the position of the block and the number of its copies. */
static void set_block(bt_tensor *t, const table *b) {
    size_t n = (size_t)b->slice.tp_size, i = (size_t)b->slice.tp_rank, kv = (size_t)b->c->KV,
           shared = kv < n ? n / kv : 1;
    size_t group = (size_t)(b->c->H / b->c->KV), head = (size_t)b->c->H * i / n;
    t->copies = 1;
    switch (t->shard) {
    case BT_SHARD_ROW:
    case BT_SHARD_VOCAB: t->row0 = t->whole_rows * i / n; break;
    case BT_SHARD_COL: t->col0 = t->whole_cols * i / n; break;
    case BT_SHARD_KVROW: /* If there are fewer kv heads than parts, neighbours have the same head. */
        t->row0 = head / group * (size_t)b->c->D;
        t->copies = (int)shared;
        if (shared > 1)
            t->first_counted = i % shared == 0 ? 0 : t->count;
        else if (head % group)
            t->first_counted = (size_t)b->c->D * t->cols;
        break;
    case BT_SHARD_NONE:
        t->copies = (int)n;
        t->first_counted = i == 0 ? 0 : t->count;
        break;
    }
}

/* Writes the decimal digits, the last one first; returns their number. */
static size_t decimal_digits(size_t x, char out[24]) {
    size_t n = 0;
    do out[n++] = (char)('0' + x % 10);
    while ((x /= 10) > 0);
    return n;
}

static uint64_t hash_byte(uint64_t h, char c) { return (h ^ (unsigned char)c) * 0x100000001b3u; }

static uint64_t hash_number(uint64_t h, size_t x) {
    char digits[24];
    for (size_t n = decimal_digits(x, digits); n > 0; n--) h = hash_byte(h, digits[n - 1]);
    return h;
}

/* Adds "NAME ROWS COLS\n" to the hash. The planner makes tens of thousands of tables, and printf took four fifths of
 * their time, so neither this text nor the names are printed. */
static uint64_t hash_shape(uint64_t h, const bt_tensor *t) {
    for (const char *s = t->name; *s; s++) h = hash_byte(h, *s);
    h = hash_number(hash_byte(h, ' '), t->whole_rows);
    h = hash_number(hash_byte(h, ' '), t->whole_cols);
    return hash_byte(h, '\n');
}

/* Returns true if the row belongs to the stage: those before the layers to the first, those after them to the last. */
static bool is_in_stage(const table *b, const param_row *r, int layer) {
    if (layer >= 0) return b->own[layer];
    return r->id == BT_P_EMBED ? bt_slice_is_first_stage(b->slice)
                               : bt_slice_is_last_stage(b->slice);
}

static double initial_deviation(const param_row *r, const bt_model_cfg *c) {
    if ((r->id == BT_P_EMBED || r->id == BT_P_HEAD) && c->init_embed > 0) return c->init_embed;
    if (r->init != RESID || c->init_out == BT_INIT_OUT_PLAIN) return c->init_std;
    return c->init_out == BT_INIT_OUT_ZERO ? 0 : c->init_std / sqrt(2.0 * c->L);
}

/* "embed", "layers.3.attn_q" */
static void put_tensor_name(bt_tensor *t, int layer, const char *name) {
    char digits[24];
    size_t at = 0, left = strlen(name);
    if (layer >= 0) {
        memcpy(t->name, "layers.", 7);
        at = 7;
        for (size_t n = decimal_digits((size_t)layer, digits); n > 0; n--)
            t->name[at++] = digits[n - 1];
        t->name[at++] = '.';
    }
    if (left > sizeof t->name - 1 - at) left = sizeof t->name - 1 - at;
    memcpy(t->name + at, name, left);
    t->name[at + left] = '\0';
}

static bool add_tensor(bt_params *p, const table *b, size_t row, int layer) {
    const param_row *r = &b->block[row];
    const bt_model_cfg *c = b->c;
    bool adapter = bt_adapter_layer(r->id) != BT_P_COUNT,
         trains = adapter || r->id == BT_P_SCORE; /* trained beside a frozen base */
    if (!r->when || (c->lora.rank > 0 ? !trains : adapter)) return true;
    bt_tensor *t = &p->tensors[p->n];
    t->id = r->id;
    t->layer = layer;
    put_tensor_name(t, layer, r->name);
    t->rows = (size_t)r->rows;
    t->cols = (size_t)r->cols;
    t->whole_rows = (size_t)b->whole[row].rows;
    t->whole_cols = (size_t)b->whole[row].cols;
    p->hash = hash_shape(p->hash, t);
    t->number = p->whole_n++;
    if (!is_in_stage(b, r, layer)) return true;
    t->offset = p->total;
    t->decay = r->decay;
    t->linear = r->tern;
    t->tern = r->tern && c->linear != BT_LIN_DENSE;
    t->shard = r->shard;
    t->adapter = adapter;
    t->row_norms = r->init == ROWNORM;
    t->spread = r->init == UNIFORM ? (float)(1 / sqrt((double)t->whole_cols)) : 0.0f;
    t->init_std = r->init == ONE || r->init == ZERO || adapter ? 0.0f
                                                               : (float)initial_deviation(r, c);
    t->zero = r->init == ZERO || (r->init == RESID && c->init_out == BT_INIT_OUT_ZERO);
    p->index[layer + 1][r->id] = p->n++;
    size_t end = 0, whole;
    if (__builtin_mul_overflow(t->whole_rows, t->whole_cols, &whole) ||
        __builtin_mul_overflow(t->rows, t->cols, &t->count) ||
        __builtin_add_overflow(p->total, t->count, &end) ||
        end > SIZE_MAX / sizeof(float) - ALIGN_ELEMS) {
        return false;
    }
    set_block(t, b);
    p->count += t->count;
    p->total = (end + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
    return true;
}

bool bt_slice_heads_fit(const bt_model_cfg *c, int n) {
    return c->H % n == 0 && (c->KV % n == 0 || n % c->KV == 0 || n < c->KV);
}

size_t bt_slice_shared_kv(const bt_model_cfg *c, bt_model_slice slice) {
    size_t joins = 0, n = (size_t)slice.tp_size;
    if (slice.tp_size <= 1 || slice.tp_size >= c->KV) return 0;
    for (size_t i = 1; i <= (size_t)slice.tp_rank && i < n; i++)
        joins += (size_t)c->H / n * i % (size_t)(c->H / c->KV) != 0;
    return joins;
}

bool bt_slice_is_first_stage(bt_model_slice slice) { return slice.pp_stage == 0; }
bool bt_slice_is_last_stage(bt_model_slice slice) {
    return slice.pp_size <= 1 || slice.pp_stage == slice.pp_size - 1;
}

int bt_slice_chunks(bt_model_slice slice) {
    return slice.pp_size > 1 && slice.virtual_stages > 1 ? slice.virtual_stages : 1;
}

/* Returns the work of the head's forward and backward pass, as a number of layers. */
static double head_work(const bt_model_cfg *c) {
    bt_model_counts n = bt_model_count(c);
    return n.flop_head * c->L / (n.flop_linear + n.flop_attention);
}

/* Returns the number of layers of the last stage, which also has the head, for which the slowest stage is fastest.
 * At least one for each of its chunks, and for each chunk of the other stages. */
static int last_stage_layers(const bt_model_cfg *c, int stages, int chunks, double head) {
    double best = INFINITY;
    int others = stages - 1, last = chunks;
    for (int k = chunks; k <= c->L - others * chunks; k++) {
        int most = (c->L - k + others - 1) / others;
        double slowest = fmax((double)most, (double)k + head);
        if (slowest < best) best = slowest, last = k;
    }
    return last;
}

static int first_layer_of_run(int n, int runs, int k) { return (int)((int64_t)n * k / runs); }

/* Returns the first of the last stage's layers in its chunk k. That with the head has as many as equal work permits. */
static int first_layer_of_last_stage_chunk(int n, int chunks, int k, double head) {
    const double even = (n + head) / chunks - head;
    const int with_head = chunks == 1 ? n : even > 1 ? (int)even : 1;
    return k == chunks ? n : chunks == 1 ? 0 : first_layer_of_run(n - with_head, chunks - 1, k);
}

/* Layers are assigned in turn to the chunks of the stages. */
bt_layer_run bt_slice_chunk(const bt_model_cfg *c, bt_model_slice slice, int chunk) {
    const int chunks = bt_slice_chunks(slice), others = slice.pp_size - 1;
    if (others < 1) return (bt_layer_run){0, c->L};
    const double head = head_work(c);
    const int last = last_stage_layers(c, slice.pp_size, chunks, head), rest = c->L - last,
              runs = chunks * others, at = chunk * others + slice.pp_stage,
              begun = first_layer_of_last_stage_chunk(last, chunks, chunk, head),
              ended = first_layer_of_last_stage_chunk(last, chunks, chunk + 1, head);
    if (slice.pp_stage == others)
        return (bt_layer_run){first_layer_of_run(rest, runs, (chunk + 1) * others) + begun,
                              ended - begun};
    const int first = first_layer_of_run(rest, runs, at);
    return (bt_layer_run){begun + first, first_layer_of_run(rest, runs, at + 1) - first};
}

int bt_slice_layers(const bt_model_cfg *c, bt_model_slice slice) {
    int n = 0;
    for (int k = 0; k < bt_slice_chunks(slice); k++) n += bt_slice_chunk(c, slice, k).n;
    return n;
}

static bt_code check_stages(const bt_model_cfg *c, bt_model_slice slice, bt_err *err) {
    const int chunks = bt_slice_chunks(slice);
    if (slice.pp_size <= c->L / chunks) return BT_OK;
    if (chunks > 1 && slice.pp_size <= c->L)
        return bt_fail(err, BT_ARG,
                       "--virtual-stages %d: %d pipeline stages times %d chunks are more than the "
                       "%d layers of the model (use --virtual-stages %d)",
                       chunks, slice.pp_size, chunks, c->L, c->L / slice.pp_size);
    return bt_fail(
        err, BT_ARG,
        "--pp %d: there are more pipeline stages than the %d layers of the model (use --pp %d)",
        slice.pp_size, c->L, c->L);
}

/* Returns the largest k <= most by which heads, feed-forward width and vocabulary can be divided. */
static int largest_possible_parts(const bt_model_cfg *c, int most) {
    for (int k = most; k > 1; k--)
        if (bt_slice_heads_fit(c, k) && c->F % k == 0 && k <= c->V) return k;
    return 1;
}

bt_code bt_slice_cfg(bt_model_cfg *out, const bt_model_cfg *c, bt_model_slice slice, bt_err *err) {
    int n = slice.tp_size;
    int64_t widest = (int64_t)c->H * c->D > c->F ? (int64_t)c->H * c->D : c->F;
    BT_TRY(check_stages(c, slice, err));
    *out = *c;
    out->L = bt_slice_layers(c, slice);
    out->chunk_L = 0;
    for (int k = 0; k < bt_slice_chunks(slice); k++) {
        const int here = bt_slice_chunk(c, slice, k).n;
        if (here > out->chunk_L) out->chunk_L = here;
    }
    if (n <= 1) return BT_OK;
    if (c->scale > BT_SCALE_ROW)
        return bt_fail(err, BT_ARG,
                       "--tp %d: tensor parallelism divides inputs, and a model with a scale for "
                       "each group of them (model.scale) does not divide products (use --tp 1; "
                       "--pp and --dp-shard divide such a model)",
                       n);
    if (c->linear != BT_LIN_DENSE && widest > WHOLE_NUMBERS / 127) {
        return bt_fail(err, BT_ARG,
                       "--tp %d: sums of %lld int8 products are no longer exact in fp32 (at most "
                       "%d; use --tp 1)",
                       n, (long long)widest, WHOLE_NUMBERS / 127);
    }
    const struct {
        const char *name;
        int value;
        bool fits;
    } rows[] = {
        {"model.heads", c->H, c->H % n == 0},
        {"model.kv_heads", c->KV, bt_slice_heads_fit(c, n)},
        {"model.d_ff", c->F, c->F % n == 0},
        {"model.vocab", c->V, c->V >= n},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].fits) continue;
        int below = largest_possible_parts(c, n - 1), above = n + 1;
        while (above <= c->H && largest_possible_parts(c, above) != above) above++;
        if (above <= c->H)
            return bt_fail(err, BT_ARG, "--tp %d does not divide %s = %d (use --tp %d or %d)", n,
                           rows[i].name, rows[i].value, below, above);
        return bt_fail(err, BT_ARG, "--tp %d does not divide %s = %d (use --tp %d)", n,
                       rows[i].name, rows[i].value, below);
    }
    out->H = c->H / n;
    out->group = c->H / c->KV;
    out->skip = out->H * slice.tp_rank % out->group;
    out->KV = (out->skip + out->H + out->group - 1) / out->group;
    out->F = c->F / n;
    out->V = (int)(bt_slice_vocab(c, (bt_model_slice){.tp_rank = slice.tp_rank + 1, .tp_size = n}) -
                   bt_slice_vocab(c, slice));
    return BT_OK;
}

size_t bt_slice_vocab(const bt_model_cfg *c, bt_model_slice slice) {
    return slice.tp_size <= 1 ? 0 : (size_t)c->V * (size_t)slice.tp_rank / (size_t)slice.tp_size;
}

bt_code bt_params_init(bt_params *p, const bt_model_cfg *c, bt_model_slice slice, bt_err *err) {
    memset(p, 0, sizeof *p);
    BT_TRY(bt_model_cfg_check(c, err));
    bt_model_cfg local;
    if (slice.tp_size < 1) slice.tp_rank = 0, slice.tp_size = 1;
    BT_TRY(bt_slice_cfg(&local, c, slice, err));
    bool *own = calloc((size_t)c->L, sizeof *own);
    table b = {.c = c, .slice = slice, .own = own};
    for (int k = 0; own && k < bt_slice_chunks(slice); k++) {
        const bt_layer_run run = bt_slice_chunk(c, slice, k);
        for (int l = run.first; l < run.first + run.n; l++) own[l] = true;
    }
    evaluate_rows(b.whole, c);
    evaluate_rows(b.block, &local);
    const param_row *rows = b.whole;
    size_t L = (size_t)c->L;
    p->tensors = calloc((L + 1) * BT_P_COUNT, sizeof *p->tensors);
    p->index = malloc((L + 1) * sizeof *p->index);
    if (!p->tensors || !p->index || !own) {
        free(own);
        bt_params_release(p);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the tensor table of %d layers",
                       c->L);
    }
    for (size_t l = 0; l <= L; l++) {
        for (size_t i = 0; i < BT_P_COUNT; i++) p->index[l][i] = SIZE_MAX;
    }
    bool fits = true;
    size_t i = 0;
    p->hash = 0xcbf29ce484222325u;
    for (; i < BT_P_COUNT && rows[i].scope == GLOBAL; i++) fits = fits && add_tensor(p, &b, i, -1);
    size_t first = i;
    while (i < BT_P_COUNT && rows[i].scope == LAYER) i++;
    for (int l = 0; l < c->L; l++) {
        for (size_t j = first; j < i; j++) fits = fits && add_tensor(p, &b, j, l);
    }
    for (; i < BT_P_COUNT; i++) fits = fits && add_tensor(p, &b, i, -1);
    free(own);
    if (!fits) {
        bt_params_release(p);
        return bt_fail(err, BT_NOMEM,
                       "a model of %d layers, width %d and vocabulary %d is too large for the "
                       "addresses of this machine: choose smaller values",
                       c->L, c->C, c->V);
    }
    return BT_OK;
}

/* Returns the offset of the first tensor in or after the chunk's layers. */
static size_t offset_of_chunk(const bt_params *p, const bt_model_cfg *c, bt_model_slice slice,
                              int chunk) {
    const int first = bt_slice_chunk(c, slice, chunk).first;
    for (size_t i = 0; i < p->n; i++)
        if (p->tensors[i].layer >= first) return p->tensors[i].offset;
    return p->total;
}

bt_range bt_params_chunk(const bt_params *p, const bt_model_cfg *c, bt_model_slice slice,
                         int chunk) {
    return (bt_range){
        chunk == 0 ? 0 : offset_of_chunk(p, c, slice, chunk),
        chunk + 1 == bt_slice_chunks(slice) ? p->total : offset_of_chunk(p, c, slice, chunk + 1)};
}

bt_model_cfg bt_params_base(const bt_model_cfg *whole) {
    bt_model_cfg base = *whole;
    base.lora = (bt_lora){0};
    if (whole->lora.rank) base.classes = 0;
    return base;
}

void bt_params_release(bt_params *p) {
    free(p->tensors);
    free(p->index);
    memset(p, 0, sizeof *p);
}

const bt_tensor *bt_params_get(const bt_params *p, int layer, bt_param_id id) {
    if (id == BT_P_COUNT) return NULL;
    size_t i = p->index[layer + 1][id];
    return i == SIZE_MAX ? NULL : &p->tensors[i];
}

const bt_tensor *bt_params_named(const bt_params *p, const char *name) {
    for (size_t i = 0; i < p->n; i++) {
        if (strcmp(p->tensors[i].name, name) == 0) return &p->tensors[i];
    }
    return NULL;
}

/* the linear layers in the order of the rows of their adapters */
static const bt_param_id adapted[] = {BT_P_ATTN_Q,   BT_P_ATTN_K, BT_P_ATTN_V,  BT_P_ATTN_O,
                                      BT_P_FFN_GATE, BT_P_FFN_UP, BT_P_FFN_DOWN};
enum { N_ADAPTED = sizeof adapted / sizeof *adapted, ADAPTER_ROWS = 3 };

bt_param_id bt_adapter_a(bt_param_id layer) {
    for (int k = 0; k < N_ADAPTED; k++)
        if (adapted[k] == layer) return (bt_param_id)(BT_P_ATTN_Q_A + ADAPTER_ROWS * k);
    return BT_P_COUNT;
}

bt_param_id bt_adapter_b(bt_param_id layer) {
    const bt_param_id a = bt_adapter_a(layer);
    return a == BT_P_COUNT ? BT_P_COUNT : (bt_param_id)(a + 1);
}

bt_param_id bt_adapter_m(bt_param_id layer) {
    const bt_param_id a = bt_adapter_a(layer);
    return a == BT_P_COUNT ? BT_P_COUNT : (bt_param_id)(a + 2);
}

bt_param_id bt_adapter_layer(bt_param_id adapter) {
    const int k = (int)adapter - BT_P_ATTN_Q_A;
    return k < 0 || k >= ADAPTER_ROWS * N_ADAPTED ? BT_P_COUNT : adapted[k / ADAPTER_ROWS];
}

size_t bt_tensor_place(const bt_tensor *t, size_t i) {
    return (t->row0 + i / t->cols) * t->whole_cols + t->col0 + i % t->cols;
}

uint64_t bt_params_hash(const bt_params *p) { return p->hash; }
