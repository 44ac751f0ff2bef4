/* state.c - a trainer's checkpoints: latent weights, moments and progress out and in, in any
 * layout. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/small.h"
#include "engine/ckpt/ckpt.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/train/parts.h"

#define BUILD_NAME __VERSION__ /* the compiler: other compilers may round otherwise */

/* ---- tensors as slices ----------------------------------------------------------------------- */

typedef struct slice_list {
    bt_ckpt_slice *at;
    size_t n;
} slice_list;

/* elements [from, to) of a tensor's block; data is the first of them */
static void append_run(slice_list *l, const bt_tensor *x, const char *state, float *data,
                       size_t from, size_t to, bool rows) {
    if (from >= to) return;
    l->at[l->n++] = (bt_ckpt_slice){.tensor = x->name,
                                    .state = state,
                                    .tensor_elems = x->whole_rows * x->whole_cols,
                                    .first = bt_tensor_place(x, from),
                                    .count = to - from,
                                    .data = data,
                                    .width = rows ? (uint32_t)x->cols : 0,
                                    .stride = rows ? (uint32_t)x->whole_cols : 0};
}

/* Appends the part of every tensor inside [begin, end) of the flat array whose element `base` is
 * flat[0]. `once`: of what several ranks of a tensor-parallel group hold, one writes. */
static void append(bt_trainer *t, slice_list *l, const char *state, float *flat, size_t base,
                   size_t begin, size_t end, bool once) {
    const bt_params *p = bt_model_params(t->model);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        size_t first = bt_max_size(x->offset + (once ? x->first_counted : 0), begin),
               last = bt_min_size(x->offset + x->count, end);
        if (first >= last) continue;
        float *data = flat + (first - base);
        size_t from = first - x->offset, to = last - x->offset;
        if (x->cols == x->whole_cols) {
            append_run(l, x, state, data, from, to, false);
            continue;
        }
        /* a block of columns: the whole rows between */
        size_t rows = bt_min_size((from + x->cols - 1) / x->cols * x->cols, to),
               rest = bt_max_size(to / x->cols * x->cols, rows);
        append_run(l, x, state, data, from, rows, false);
        append_run(l, x, state, data + (rows - from), rows, rest, true);
        append_run(l, x, state, data + (rest - from), rest, to, false);
    }
}

/* a stretch of n tensors can meet as many slices as it has tensors, and one more for each cut */
static bt_code room_for(const bt_trainer *t, slice_list *l, bt_err *err) {
    size_t kinds = 1 + bt_optim_states(t->optims[0]),
           most_slices = 3 * kinds * (bt_model_params(t->model)->n + 2 * t->n_pieces) + 1;
    l->n = 0;
    l->at = calloc(most_slices, sizeof *l->at);
    return l->at ? BT_OK
                 : bt_fail(err, BT_NOMEM, "cannot take memory for the list of %zu slices",
                           most_slices);
}

/* the moments of piece i inside [begin, end) */
static void append_states(bt_trainer *t, slice_list *l, size_t i, size_t begin, size_t end,
                          bool once) {
    for (size_t k = 0; k < bt_optim_states(t->optims[i]); k++) {
        append(t, l, bt_optim_state_name(t->optims[i], k), bt_optim_state(t->optims[i], k),
               t->pieces[i].begin, begin, end, once);
    }
}

/* what this rank writes: an equal part of each of its pieces, which the replicas hold too */
static bt_code slices_to_save(bt_trainer *t, slice_list *out, bt_err *err) {
    int replicas = bt_comm_size(t->mesh.dp) / t->shards.n,
        r = t->shards.n > 1 ? t->mesh.me.dp_replicate : t->mesh.me.dp;
    BT_TRY(room_for(t, out, err));
    for (size_t i = 0; i < t->n_pieces; i++) {
        size_t n = t->pieces[i].end - t->pieces[i].begin,
               begin = t->pieces[i].begin + n * (size_t)r / (size_t)replicas;
        size_t end = t->pieces[i].begin + n * (size_t)(r + 1) / (size_t)replicas;
        append(t, out, "weight", bt_model_weights(t->model), 0, begin, end, true);
        append_states(t, out, i, begin, end, true);
    }
    return BT_OK;
}

/* what this rank reads: the weights it holds, and the moments of its pieces */
static bt_code slices_to_load(bt_trainer *t, bool states, slice_list *out, bt_err *err) {
    BT_TRY(room_for(t, out, err));
    const bt_params *p = bt_model_params(t->model);
    float *weights = bt_model_weights(t->model);
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *x = &p->tensors[k];
        if (bt_weights_holds(t->weights, x))
            append(t, out, "weight", weights, 0, x->offset, x->offset + x->count, false);
    }
    for (size_t i = 0; i < t->n_pieces; i++) {
        for (size_t k = 0; k < p->n; k++) {
            const bt_tensor *x = &p->tensors[k];
            if (!bt_weights_holds(t->weights, x))
                append(t, out, "weight", weights, 0, bt_max_size(x->offset, t->pieces[i].begin),
                       bt_min_size(x->offset + x->count, t->pieces[i].end), false);
        }
        if (states) append_states(t, out, i, t->pieces[i].begin, t->pieces[i].end, false);
    }
    return BT_OK;
}

/* ---- small state ----------------------------------------------------------------------------- */

static void put_config(const bt_run_cfg *cfg, bt_text *out) {
    bt_opts o = {.table = bt_run_opts, .n = bt_run_opts_n, .values = (void *)(uintptr_t)cfg};
    bt_json j;
    bt_text value;
    bt_text_init(&value);
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    for (size_t i = 0; i < o.n; i++) {
        bt_text_clear(&value);
        bt_opt_value(&o, i, &value);
        bt_json_str(&j, o.table[i].key, bt_text_str(&value));
    }
    bt_json_end(&j, '}');
    bt_text_release(&value);
}

static bt_code fill_meta(bt_trainer *t, bt_ckpt_meta *m, bt_err *err) {
    memset(m, 0, sizeof *m);
    bt_text_init(&m->config);
    bt_text_init(&m->tokenizer);
    bt_text_init(&m->extra);
    m->step = t->at.step;
    m->tokens = t->at.tokens;
    m->attempt = t->attempt;
    snprintf(m->run, sizeof m->run, "%s", t->cfg.name);
    put_config(&t->cfg, &m->config);

    bt_tokenizer *tok = NULL;
    BT_TRY(bt_tokenizer_load(&tok, t->cfg.tokenizer, err));
    bt_tokenizer_save(tok, &m->tokenizer);
    m->vocab_hash = bt_tokenizer_hash(tok);
    bt_tokenizer_free(tok);

    m->params_hash = bt_params_hash(bt_model_params(t->model));
    m->data_hash = bt_loader_hash(t->loader);
    m->lr_factor = t->at.lr_factor;
    m->loss_scale = t->loss_scale.value;
    snprintf(m->isa, sizeof m->isa, "%s", bt_kernels_isa());
    snprintf(m->build, sizeof m->build, "%s", BUILD_NAME);
    bt_text_printf(&m->extra, "{\"updates\":%" PRId64 ",\"bytes_per_token\":%.17g", t->at.updates,
                   t->bytes_per_token);
    if (t->loss_scale.on)
        bt_text_printf(&m->extra, ",\"loss_scale_good\":%" PRId64, t->loss_scale.good);
    bt_text_put(&m->extra, "}");
    if (m->config.failed || m->tokenizer.failed || m->extra.failed)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the checkpoint's metadata");
    return BT_OK;
}

static int64_t extra_of(const bt_ckpt_meta *m, const char *key, int64_t otherwise) {
    json_t *extra = json_loads(bt_text_str(&m->extra), 0, NULL),
           *value = json_object_get(extra, key);
    int64_t n = json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
    json_decref(extra);
    return n;
}

/* A checkpoint of another precision has no scale: then it begins anew. */
static void take_loss_scale(bt_loss_scale *s, const bt_ckpt_meta *m) {
    int64_t good = extra_of(m, "loss_scale_good", -1);
    if (!s->on || good < 0 || !bt_loss_scale_is(m->loss_scale)) return;
    s->value = m->loss_scale;
    s->good = good;
}

/* ---- out ------------------------------------------------------------------------------------- */

bt_code bt_state_save(bt_trainer *t, bt_err *err) {
    if (!t->cfg.out[0]) return BT_OK;
    int64_t start = bt_now_ns(), bytes = 0;
    char hash[33] = "";
    slice_list mine = {0};
    bt_ckpt_meta meta;
    bt_code code = fill_meta(t, &meta, err);
    if (code == BT_OK) code = slices_to_save(t, &mine, err);
    code = bt_agree(t->mesh.world, code, err);
    if (code == BT_OK) {
        code = bt_ckpt_save(t->mesh.world, t->cfg.out, &meta, mine.at, mine.n,
                            (int)t->cfg.ckpt_keep, t->ckpt_path, sizeof t->ckpt_path, &bytes, hash,
                            err);
    }
    bt_ckpt_meta_release(&meta);
    free(mine.at);
    t->ckpt_trouble[0] = '\0';
    /* agreed by all ranks: a full disk costs this checkpoint, not the run */
    if (code == BT_IO && err) {
        snprintf(t->ckpt_trouble, sizeof t->ckpt_trouble, "%.230s", err->msg);
        t->ckpt_at_ns = bt_now_ns(); /* the next try is an interval away */
        bt_telemetry_event(&t->telemetry, "checkpoint", BT_EV_ERROR, t->at.step - 1, NULL,
                           "checkpoint after step %" PRId64 " failed, training goes on: %s",
                           t->at.step, err->msg);
        return BT_OK;
    }
    if (code != BT_OK) return code;

    t->ckpt_step = t->at.step;
    t->ckpt_at_ns = bt_now_ns();
    if (t->telemetry.sink.checkpoint) {
        bt_ckpt_record record = {.step = t->at.step,
                                 .path = t->ckpt_path,
                                 .bytes = bytes,
                                 .took_us = (t->ckpt_at_ns - start) / 1000,
                                 .hash = hash};
        t->telemetry.sink.checkpoint(t->telemetry.sink.ctx, &record);
    }
    bt_telemetry_event(&t->telemetry, "checkpoint", BT_EV_INFO, t->at.step - 1, NULL,
                       "checkpoint after step %" PRId64 ": %.1f MiB in %.2f s", t->at.step,
                       (double)bytes / 1048576.0, (double)(t->ckpt_at_ns - start) / 1e9);
    return BT_OK;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* newest checkpoint that all ranks can read; what was passed over becomes warnings */
static bt_code find(bt_trainer *t, const char *dir, char *path, size_t size, bt_ckpt_meta *meta,
                    bt_err *err) {
    bt_text why;
    bt_text_init(&why);
    memset(meta, 0, sizeof *meta);
    bt_code code = bt_ckpt_find(t->mesh.world, dir, path, size, meta, &why, err);
    for (char *line = why.data, *next; t->rank == 0 && line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        bt_log(BT_LOG_WARN, "%s", line);
        bt_telemetry_event(&t->telemetry, "warning", BT_EV_WARN, -1, NULL, "%s", line);
    }
    bt_text_release(&why);
    return code;
}

static bt_code load(bt_trainer *t, const char *path, const bt_ckpt_meta *meta, bool states,
                    bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    if (meta->params_hash != bt_params_hash(p)) {
        return bt_fail(err, BT_ARG,
                       "checkpoint '%s' is of another model: its tensors differ in name or shape "
                       "(same preset and model.* settings needed)",
                       path);
    }
    slice_list all = {0};
    bt_code code = slices_to_load(t, states, &all, err);
    if (code == BT_OK) code = bt_ckpt_load(path, all.at, all.n, err);
    free(all.at);
    return code;
}

/* what may differ without being wrong, but costs the equality of bits */
static void warn_of_differences(bt_trainer *t, const bt_ckpt_meta *m) {
    if (strcmp(m->isa, bt_kernels_isa()) != 0) {
        bt_telemetry_event(&t->telemetry, "warning", BT_EV_WARN, m->step - 1, NULL,
                           "the checkpoint was written with %s kernels, this run uses %s: losses "
                           "may differ in the last bits",
                           m->isa, bt_kernels_isa());
    }
    if (strcmp(m->build, BUILD_NAME) != 0) {
        bt_telemetry_event(&t->telemetry, "warning", BT_EV_WARN, m->step - 1, NULL,
                           "the checkpoint was written by a build with another compiler (%s): "
                           "losses may differ in the last bits",
                           m->build);
    }
}

static bt_code same_data(bt_trainer *t, const bt_ckpt_meta *m, bt_err *err) {
    if (m->data_hash == bt_loader_hash(t->loader)) return BT_OK;
    if (!t->cfg.other_data) {
        return bt_fail(err, BT_ARG,
                       "the data are not those of the checkpoint: a resumed run would see other "
                       "tokens (give the same --data, or allow it with --other-data)");
    }
    bt_telemetry_event(&t->telemetry, "warning", BT_EV_WARN, m->step - 1, NULL,
                       "resumed on other data than the checkpoint's");
    return BT_OK;
}

bt_code bt_state_resume(bt_trainer *t, const char *dir, bt_err *err) {
    char path[1024];
    bt_ckpt_meta meta;
    BT_TRY(find(t, dir, path, sizeof path, &meta, err));
    bt_code code = same_data(t, &meta, err);
    if (code == BT_OK) code = load(t, path, &meta, true, err);
    code = bt_agree(t->mesh.world, code, err);
    if (code == BT_OK) {
        t->at = (bt_progress){.step = meta.step,
                              .updates = extra_of(&meta, "updates", meta.step),
                              .tokens = meta.tokens,
                              .lr_factor = meta.lr_factor};
        take_loss_scale(&t->loss_scale, &meta);
        warn_of_differences(t, &meta);
        snprintf(t->ckpt_path, sizeof t->ckpt_path, "%s", path);
        t->ckpt_step = meta.step;
    }
    bt_ckpt_meta_release(&meta);
    return code;
}

bt_code bt_state_init_from(bt_trainer *t, const char *dir, bt_err *err) {
    char path[1024];
    bt_ckpt_meta meta;
    BT_TRY(find(t, dir, path, sizeof path, &meta, err));
    bt_code code = load(t, path, &meta, false, err);
    bt_ckpt_meta_release(&meta);
    return bt_agree(t->mesh.world, code, err);
}
