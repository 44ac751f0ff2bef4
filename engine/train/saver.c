/* saver.c - the state registry into checkpoints and back, with what identifies model and data. */
#include "engine/train/saver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/init_from.h"
#include "engine/kernels/table/kernels.h"

#define BUILD_NAME __VERSION__ /* the compiler: other compilers may round otherwise */

/* ---- the row "progress" ----------------------------------------------------------------------- */

static void save_progress(void *ctx, bt_json *j) {
    const bt_progress *at = ((const bt_saver *)ctx)->at;
    bt_json_int(j, "updates", at->updates);
    bt_json_num(j, "lr_factor", at->lr_factor);
}

/* step and tokens are the manifest's own */
static void load_progress(void *ctx, const bt_state_values *v) {
    bt_progress *at = ((bt_saver *)ctx)->at;
    at->updates = bt_state_int(v, "updates", at->step);
    at->lr_factor = bt_state_real(v, "lr_factor", 1);
}

void bt_saver_init(bt_saver *s) {
    s->step = -1;
    bt_state_add(&s->state,
                 &(bt_state_row){
                     .name = "progress", .ctx = s, .save = save_progress, .load = load_progress});
}

void bt_saver_start(bt_saver *s) { s->saved_ns = bt_now_ns(); }

bool bt_saver_due(const bt_saver *s) {
    double minutes = (double)(bt_now_ns() - s->saved_ns) / 60e9;
    return s->cfg->ckpt_minutes > 0 && s->cfg->ckpt_every == 0 && minutes >= s->cfg->ckpt_minutes;
}

/* ---- out ------------------------------------------------------------------------------------- */

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

void bt_saver_identify(const bt_saver *s, bt_ckpt_meta *m) {
    m->step = s->at->step;
    m->tokens = s->at->tokens;
    m->attempt = s->attempt;
    m->params_hash = s->params_hash;
    m->data_hash = s->data_hash;
    snprintf(m->run, sizeof m->run, "%s", s->cfg->name);
    snprintf(m->isa, sizeof m->isa, "%s", bt_kernels_isa());
    snprintf(m->build, sizeof m->build, "%s", BUILD_NAME);
}

static bt_code fill_meta(const bt_saver *s, bt_ckpt_meta *m, bt_err *err) {
    memset(m, 0, sizeof *m);
    bt_text_init(&m->config);
    bt_text_init(&m->tokenizer);
    bt_text_init(&m->state);
    bt_saver_identify(s, m);
    put_config(s->cfg, &m->config);

    bt_tokenizer *tok = NULL;
    BT_TRY(bt_tokenizer_load(&tok, s->cfg->tokenizer, err));
    bt_tokenizer_save(tok, &m->tokenizer);
    m->vocab_hash = bt_tokenizer_hash(tok);
    bt_tokenizer_free(tok);

    if (m->config.failed || m->tokenizer.failed)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the checkpoint's metadata");
    return bt_state_save_values(&s->state, &m->state, err);
}

static void told_failed(bt_saver *s, int64_t began_ns, const bt_err *err) {
    char body[48];
    snprintf(body, sizeof body, "{\"took_ms\":%.3f}", (double)(bt_now_ns() - began_ns) / 1e6);
    snprintf(s->trouble, sizeof s->trouble, "%.230s", err->msg);
    bt_saver_start(s); /* the next try is an interval away */
    bt_telemetry_event(s->telemetry, BT_EVENT_CHECKPOINT_FAILED, s->at->step - 1, body,
                       "checkpoint after step %" PRId64 " failed, training goes on: %s",
                       s->at->step, err->msg);
}

static void told_saved(bt_saver *s, int64_t began_ns, int64_t bytes, const char *hash) {
    const bt_sink *sink = &s->telemetry->sink;
    s->step = s->at->step;
    s->saved_ns = bt_now_ns();
    if (sink->checkpoint) {
        bt_ckpt_record record = {.step = s->at->step,
                                 .wall_us = bt_wall_us(),
                                 .path = s->path,
                                 .bytes = bytes,
                                 .took_us = (s->saved_ns - began_ns) / 1000,
                                 .hash = hash};
        sink->checkpoint(sink->ctx, &record);
    }
    bt_telemetry_event(s->telemetry, BT_EVENT_CHECKPOINT, s->at->step - 1, NULL,
                       "checkpoint after step %" PRId64 ": %.1f MiB in %.2f s", s->at->step,
                       (double)bytes / 1048576.0, (double)(s->saved_ns - began_ns) / 1e9);
}

bt_code bt_saver_save(bt_saver *s, bt_err *err) {
    if (!s->cfg->out[0]) return BT_OK;
    bt_ckpt_meta meta;
    bt_slices mine = {0};
    bt_ckpt_saved saved = {0};
    int64_t start = bt_now_ns();
    bt_code code = fill_meta(s, &meta, err);
    if (code == BT_OK) code = bt_state_slices(&s->state, BT_STATE_SAVE, &mine, err);
    code = bt_agree(s->world, code, err);
    if (code == BT_OK) {
        bt_ckpt_job job = {.dir = s->cfg->out,
                           .meta = &meta,
                           .slices = mine.at,
                           .n = mine.n,
                           .keep = (int)s->cfg->ckpt_keep};
        code = bt_ckpt_save(s->world, &job, &saved, err);
    }
    bt_ckpt_meta_release(&meta);
    bt_slices_release(&mine);
    s->trouble[0] = '\0';
    if (code == BT_IO && err) { /* agreed by all ranks */
        told_failed(s, start, err);
        return BT_OK;
    }
    if (code != BT_OK) return code;
    snprintf(s->path, sizeof s->path, "%.1023s", saved.path);
    told_saved(s, start, saved.bytes, saved.hash);
    return BT_OK;
}

/* ---- in -------------------------------------------------------------------------------------- */

static void warn_event(bt_saver *s, int64_t step, const char *fmt, ...) BT_PRINTF(3, 4);
static void warn_event(bt_saver *s, int64_t step, const char *fmt, ...) {
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    bt_telemetry_event(s->telemetry, BT_EVENT_WARNING, step, NULL, "%s", line);
}

/* newest checkpoint that all ranks can read; what was passed over becomes warnings */
static bt_code find(bt_saver *s, const char *dir, char *path, size_t size, bt_ckpt_meta *meta,
                    bt_err *err) {
    bt_text why;
    bt_text_init(&why);
    memset(meta, 0, sizeof *meta);
    bt_code code = bt_ckpt_find(s->world, dir, path, size, meta, &why, err);
    for (char *line = why.data, *next; bt_comm_rank(s->world) == 0 && line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        bt_log(BT_LOG_WARN, "%s", line);
        warn_event(s, -1, "%s", line);
    }
    bt_text_release(&why);
    return code;
}

static bt_code load(bt_saver *s, const char *path, const bt_ckpt_meta *meta, bt_state_use use,
                    bt_err *err) {
    if (meta->params_hash != s->params_hash)
        return bt_fail(err, BT_ARG,
                       "checkpoint '%s' is of another model: its tensors differ in name or shape "
                       "(same preset and model.* settings needed)",
                       path);
    bt_slices all;
    BT_TRY(bt_state_slices(&s->state, use, &all, err));
    bt_code code = bt_ckpt_load(path, all.at, all.n, err);
    bt_slices_release(&all);
    return code;
}

/* what may differ without being wrong, but costs the equality of bits */
static void warn_of_differences(bt_saver *s, const bt_ckpt_meta *m) {
    if (strcmp(m->isa, bt_kernels_isa()) != 0)
        warn_event(
            s, m->step - 1,
            "the checkpoint was written with %s kernels, this run uses %s: losses may differ in "
            "the last bits",
            m->isa, bt_kernels_isa());
    if (strcmp(m->build, BUILD_NAME) != 0)
        warn_event(
            s, m->step - 1,
            "the checkpoint was written by a build with another compiler (%s): losses may differ "
            "in the last bits",
            m->build);
}

static bt_code same_data(bt_saver *s, const bt_ckpt_meta *m, bt_err *err) {
    if (m->data_hash == s->data_hash) return BT_OK;
    if (!s->cfg->other_data)
        return bt_fail(err, BT_ARG,
                       "the data are not those of the checkpoint: a resumed run would see other "
                       "tokens (give the same --data, or allow it with --other-data)");
    warn_event(s, m->step - 1, "resumed on other data than the checkpoint's");
    return BT_OK;
}

bt_code bt_saver_resume(bt_saver *s, const char *dir, bt_err *err) {
    char path[1024];
    bt_ckpt_meta meta;
    BT_TRY(find(s, dir, path, sizeof path, &meta, err));
    bt_code code = same_data(s, &meta, err);
    /* values first: they may decide which slices are wanted */
    if (code == BT_OK) {
        *s->at = (bt_progress){.step = meta.step, .tokens = meta.tokens};
        code = bt_state_load_values(&s->state, &meta.state, err);
    }
    if (code == BT_OK) code = load(s, path, &meta, BT_STATE_RESUME, err);
    code = bt_agree(s->world, code, err);
    if (code == BT_OK) {
        warn_of_differences(s, &meta);
        snprintf(s->path, sizeof s->path, "%s", path);
        s->step = meta.step;
    }
    bt_ckpt_meta_release(&meta);
    return code;
}

/* All ranks look, and must find the same. */
static bt_code find_in_memory(bt_saver *s, const char *dir, bt_memory_id *id, bt_ckpt_meta *meta,
                              bt_err *err) {
    const bool found = bt_memory_state_find(dir, id, meta);
    bt_code code = found ? BT_OK
                         : bt_fail(err, BT_FORMAT, "there is no whole state in memory ('%s')", dir);
    bt_memory_id first = *id;
    BT_TRY(bt_agree(s->world, code, err));
    BT_TRY(bt_broadcast(s->world, &first, sizeof first, 0, err));
    if (memcmp(&first, id, sizeof first) != 0)
        code = bt_fail(err, BT_FORMAT, "the ranks find different states in memory ('%s')", dir);
    return bt_agree(s->world, code, err);
}

bt_code bt_saver_resume_memory(bt_saver *s, const char *dir, bt_memory_id *id, bt_err *err) {
    bt_ckpt_meta meta;
    bt_slices all = {0};
    memset(id, 0, sizeof *id);
    bt_code code = find_in_memory(s, dir, id, &meta, err);
    if (code == BT_OK) {
        code = same_data(s, &meta, err);
        if (code == BT_OK && meta.params_hash != s->params_hash)
            code = bt_fail(err, BT_ARG, "the state in memory is of another model");
        if (code == BT_OK) { /* values first, as above */
            *s->at = (bt_progress){.step = meta.step, .tokens = meta.tokens};
            code = bt_state_load_values(&s->state, &meta.state, err);
        }
        if (code == BT_OK) code = bt_state_slices(&s->state, BT_STATE_RESUME, &all, err);
        if (code == BT_OK) code = bt_memory_state_load(dir, id, all.at, all.n, err);
        bt_slices_release(&all);
        code = bt_agree(s->world, code, err);
    }
    if (code == BT_OK) {
        warn_of_differences(s, &meta);
        s->saved_ns = id->disk_ns; /* checkpoints on disk come as if nothing had happened */
    } else if (bt_comm_rank(s->world) == 0)
        bt_memory_state_drop(dir); /* the next attempt begins from the disk */
    bt_ckpt_meta_release(&meta);
    return code;
}

/* a model of another program, or a checkpoint of another shape: every rank reads what it holds */
static bt_code fill_from(bt_saver *s, const char *path, bt_text *told, bt_err *err) {
    bt_model_file *file = NULL;
    bt_model_cfg model;
    bt_slices all = {0};
    bt_run_cfg_model(s->cfg, &model);
    bt_code code = bt_model_file_open(&file, path, err);
    if (code == BT_OK) code = bt_init_from_check(file, &model, told, err);
    if (code == BT_OK) code = bt_state_slices(&s->state, BT_STATE_WEIGHTS, &all, err);
    if (code == BT_OK) code = bt_init_from_fill(file, all.at, all.n, err);
    bt_slices_release(&all);
    bt_model_file_close(file);
    return code;
}

static bt_code init_from_other(bt_saver *s, const char *path, bt_err *err) {
    bt_text told = {0};
    bt_code code = bt_agree(s->world, fill_from(s, path, &told, err), err);
    for (char *line = told.data, *end; code == BT_OK && line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        if (bt_comm_rank(s->world) == 0) bt_log(BT_LOG_WARN, "%s", line);
        warn_event(s, -1, "%s", line);
    }
    bt_text_release(&told);
    return code;
}

bt_code bt_saver_init_from(bt_saver *s, const char *dir, bt_err *err) {
    char path[1024];
    bt_ckpt_meta meta;
    if (bt_model_file_kind(dir) != BT_IN_NATIVE) return init_from_other(s, dir, err);
    BT_TRY(find(s, dir, path, sizeof path, &meta, err));
    const bool same = meta.params_hash == s->params_hash;
    bt_code code = same ? load(s, path, &meta, BT_STATE_WEIGHTS, err) : BT_OK;
    bt_ckpt_meta_release(&meta);
    return same ? bt_agree(s->world, code, err) : init_from_other(s, path, err);
}
