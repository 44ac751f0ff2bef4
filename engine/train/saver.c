/* saver.c - writes the state registry to checkpoints and reads it back, with the identity of model and data. */
#include "engine/train/saver.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/tables/metric.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/init_from.h"
#include "engine/kernels/table/kernels.h"
#include "engine/optim/optim.h"

#define BUILD_NAME __VERSION__ /* recorded, because another compiler may round differently */

/* ---- the row "progress" ----------------------------------------------------------------------- */

static void save_progress(void *ctx, bt_json *j) {
    const bt_progress *at = ((const bt_saver *)ctx)->at;
    bt_json_int(j, "updates", at->updates);
    bt_json_num(j, "lr_factor", at->lr_factor);
}

/* step and tokens are read from the manifest */
static void load_progress(void *ctx, const bt_state_values *v) {
    bt_progress *at = ((bt_saver *)ctx)->at;
    at->updates = bt_state_int(v, "updates", at->step);
    at->lr_factor = bt_state_real(v, "lr_factor", 1);
}

/* ---- the row "best" --------------------------------------------------------------------------- */

static void save_best(void *ctx, bt_json *j) {
    const bt_saver *s = ctx;
    if (isfinite(s->best)) bt_json_num(j, "val_loss", s->best);
}

static void load_best(void *ctx, const bt_state_values *v) {
    ((bt_saver *)ctx)->best = bt_state_real(v, "val_loss", INFINITY);
}

bool bt_saver_validated(bt_saver *s, double loss) {
    if (!(loss < s->best)) return false;
    s->best = loss;
    return s->cfg->ckpt.keep_best && s->cfg->run.out[0];
}

void bt_saver_init(bt_saver *s) {
    s->step = s->checked_step = -1;
    s->best = INFINITY;
    s->interval.most_s = 60 * s->cfg->ckpt.minutes;
    bt_state_add(&s->state,
                 &(bt_state_row){
                     .name = "progress", .ctx = s, .save = save_progress, .load = load_progress});
    bt_state_add(&s->state,
                 &(bt_state_row){.name = "best", .ctx = s, .save = save_best, .load = load_best});
    bt_ckpt_interval_add_state(&s->interval, &s->state);
}

/* ---- schedule ------------------------------------------------------------------------------------ */

static bool is_timed(const bt_saver *s) {
    return s->cfg->ckpt.every == 0 && s->interval.most_s > 0 && s->cfg->run.out[0];
}

static void report_interval(bt_saver *s) {
    const bt_sink *sink = &s->telemetry->sink;
    const double now_s = bt_ckpt_interval_s(&s->interval, bt_now_ns());
    char value[32];
    if (!is_timed(s) || !sink->fact ||
        fabs(now_s - s->reported_interval_s) < 0.1 * s->reported_interval_s)
        return;
    s->reported_interval_s = now_s;
    snprintf(value, sizeof value, "%.1f", now_s);
    sink->fact(sink->ctx, "ckpt.interval_s", value);
    snprintf(value, sizeof value, "%.6f", s->interval.cost_s);
    sink->fact(sink->ctx, "ckpt.cost_s", value);
    snprintf(value, sizeof value, "%.0f", bt_ckpt_interval_mtbf_s(&s->interval, bt_now_ns()));
    sink->fact(sink->ctx, "ckpt.mtbf_s", value);
}

void bt_saver_release(bt_saver *s) {
    bt_ckpt_async_destroy(s->async);
    bt_ckpt_reread_destroy(s->check);
    bt_text_release(&s->tokenizer);
    s->async = NULL;
    s->check = NULL;
}

static bt_code keep_tokenizer(bt_saver *s, bt_err *err) {
    bt_tokenizer *tok = NULL;
    BT_TRY(bt_tokenizer_load(&tok, s->cfg->data.tokenizer, err));
    bt_text_clear(&s->tokenizer);
    bt_tokenizer_save(tok, &s->tokenizer);
    s->vocab_hash = bt_tokenizer_hash(tok);
    bt_tokenizer_free(tok);
    return s->tokenizer.failed ? bt_fail(err, BT_NOMEM, "cannot take memory for the tokenizer")
                               : BT_OK;
}

static bt_code make_async(bt_saver *s, size_t bytes, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    int64_t fails = bt_ckpt_async_create(&s->async, bytes, &why) != BT_OK;
    BT_TRY(bt_all_reduce_i64(s->world, &fails, 1, BT_MAX, err));
    if (!fails) return BT_OK;
    bt_ckpt_async_destroy(s->async);
    s->async = NULL;
    bt_telemetry_event(
        s->telemetry, BT_EVENT_WARNING, s->at->step - 1, NULL,
        "no memory for a copy of the state: training pauses while a checkpoint is written");
    return BT_OK;
}

static void warn_event(bt_saver *s, int64_t step, const char *fmt, ...) BT_PRINTF(3, 4);
static void warn_event(bt_saver *s, int64_t step, const char *fmt, ...) {
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    bt_telemetry_event(s->telemetry, BT_EVENT_WARNING, step, NULL, "%s", line);
}

static bt_code another_tokenizer(bt_saver *s, int64_t step, const char *of, bt_err *err) {
    if (!s->cfg->data.other_tokenizer)
        return bt_fail(err, BT_ARG,
                       "the tokenizer '%.200s' is not that of the %s: its ids have another meaning "
                       "(give the %s's, or allow it with --other-tokenizer)",
                       s->cfg->data.tokenizer, of, of);
    warn_event(s, step - 1, "resumed with another tokenizer than the %s's", of);
    return BT_OK;
}

/* A state in memory contains only the hash of its tokenizer, which is compared here. */
static bt_code check_memory_vocab(bt_saver *s, bt_err *err) {
    const bool same = !s->memory_vocab || s->memory_vocab == s->vocab_hash;
    if (same || strncmp(s->cfg->data.path, "synth:", 6) == 0) return BT_OK;
    return another_tokenizer(s, s->at->step, "state in memory", err);
}

bt_code bt_saver_start(bt_saver *s, bt_err *err) {
    bt_slices mine = {0};
    s->interval.began_ns = bt_now_ns();
    if (s->saved_ns == 0) s->saved_ns = s->interval.began_ns;
    if (!s->cfg->run.out[0]) return BT_OK;
    bt_code code = keep_tokenizer(s, err);
    if (code == BT_OK) code = check_memory_vocab(s, err);
    BT_TRY(bt_agree(s->world, code, err));
    BT_TRY(bt_agree(s->world, bt_state_slices(&s->state, BT_STATE_SAVE, &mine, err), err));
    const size_t bytes = bt_ckpt_copy_bytes(mine.at, mine.n);
    bt_slices_release(&mine);
    if (s->cfg->ckpt.async && !s->async) BT_TRY(make_async(s, bytes, err));
    bt_ckpt_interval_estimate(&s->interval, bytes, s->async != NULL);
    report_interval(s);
    return BT_OK;
}

bool bt_saver_due(const bt_saver *s) {
    const int64_t now = bt_now_ns();
    if (s->damaged && !bt_saver_pending(s)) return true;
    return is_timed(s) && !bt_saver_pending(s) &&
           (double)(now - s->saved_ns) / 1e9 >= bt_ckpt_interval_s(&s->interval, now);
}

/* ---- save ---------------------------------------------------------------------------------------- */

void bt_saver_identify(const bt_saver *s, bt_ckpt_meta *m) {
    m->step = s->at->step;
    m->tokens = s->at->tokens;
    m->attempt = s->attempt;
    m->params_hash = s->params_hash;
    m->data_hash = s->data_hash;
    m->vocab_hash = s->vocab_hash;
    snprintf(m->run, sizeof m->run, "%s", s->cfg->run.name);
    snprintf(m->isa, sizeof m->isa, "%s", bt_kernels_isa());
    snprintf(m->build, sizeof m->build, "%s", BUILD_NAME);
}

static bt_code fill_train_meta(const bt_saver *s, bt_ckpt_meta *m, bt_err *err) {
    memset(m, 0, sizeof *m);
    bt_saver_identify(s, m);
    bt_run_cfg_texts(s->cfg, &m->config);
    bt_text_put(&m->tokenizer, bt_text_str(&s->tokenizer));
    if (m->config.failed || m->tokenizer.failed)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the checkpoint's metadata");
    return bt_state_save_values(&s->state, &m->state, err);
}

static void report_failed_save(bt_saver *s, const bt_err *err) {
    char body[48];
    snprintf(body, sizeof body, "{\"took_ms\":%.3f}", (double)s->stall_ns / 1e6);
    snprintf(s->trouble, sizeof s->trouble, "%.230s", err->msg);
    s->saved_ns = bt_now_ns(); /* try again after one interval */
    bt_telemetry_event(s->telemetry, BT_EVENT_CHECKPOINT_FAILED, s->pending_step - 1, body,
                       "checkpoint after step %" PRId64 " failed, training continues: %s",
                       s->pending_step, err->msg);
}

static void report_saved(bt_saver *s, const bt_ckpt_saved *saved) {
    const bt_sink *sink = &s->telemetry->sink;
    const double took_s = (double)(bt_now_ns() - s->began_ns) / 1e9,
                 stall_ms = (double)s->stall_ns / 1e6;
    char body[96], size[32], stood[64] = "", replaced[64] = "";
    bt_ckpt_interval_measured(&s->interval, 1e-3 * stall_ms + (double)saved->cpu_ns / 1e9, took_s);
    report_interval(s);
    s->step = s->pending_step;
    s->saved_ns = bt_now_ns();
    s->trouble[0] = '\0';
    s->unannounced = false;
    snprintf(s->path, sizeof s->path, "%.1023s", saved->path);
    if (sink->checkpoint) {
        bt_ckpt_record record = {.step = s->step,
                                 .wall_us = bt_wall_us(),
                                 .path = s->path,
                                 .bytes = saved->bytes,
                                 .took_us = s->stall_ns / 1000,
                                 .hash = saved->hash};
        sink->checkpoint(sink->ctx, &record);
    }
    snprintf(body, sizeof body, "{\"written_ms\":%.3f,\"took_ms\":%.3f}", took_s * 1e3, stall_ms);
    if (1e3 * took_s > 1.5 * stall_ms)
        snprintf(stood, sizeof stood, ", training paused for %.1f ms", stall_ms);
    if (saved->replaced)
        snprintf(replaced, sizeof replaced, "; the disk is full: %d older one%s removed for it",
                 saved->replaced, saved->replaced == 1 ? " was" : "s were");
    bt_telemetry_event(s->telemetry, BT_EVENT_CHECKPOINT, s->step - 1, body,
                       "checkpoint after step %" PRId64 ": %s in %.2f s%s%s%s", s->step,
                       bt_metric_format(size, sizeof size, (double)saved->bytes, BT_UNIT_BYTES),
                       took_s, stood, s->pending_best ? ", the best by validation so far" : "",
                       replaced);
}

/* Handles the code that all ranks agreed on. A failing file system costs the checkpoint, not the run. */
static bt_code settle_save(bt_saver *s, bt_code code, bt_err *err) {
    if (code != BT_IO || !err) return code;
    report_failed_save(s, err);
    return BT_OK;
}

/* Collects one rank's part of a save: metadata and slices of the state. */
static bt_code collect_save_part(bt_saver *s, bt_ckpt_meta *meta, bt_slices *mine, bt_err *err) {
    bt_code code = fill_train_meta(s, meta, err);
    if (code == BT_OK) code = bt_state_slices(&s->state, BT_STATE_SAVE, mine, err);
    return bt_agree(s->world, code, err);
}

bt_code bt_saver_save(bt_saver *s, bool best, bool wait, bt_err *err) {
    if (!s->cfg->run.out[0]) return BT_OK;
    BT_TRY(bt_saver_finish(s, err));
    bt_ckpt_meta meta;
    bt_slices mine = {0};
    bt_ckpt_saved saved = {0};
    s->began_ns = bt_now_ns();
    s->pending_step = s->at->step;
    s->pending_best = best;
    s->damaged = false;
    s->interval.closing = wait;
    bt_code code = collect_save_part(s, &meta, &mine, err);
    if (code == BT_OK) {
        bt_ckpt_job job = {.dir = s->cfg->run.out,
                           .meta = &meta,
                           .slices = mine.at,
                           .n = mine.n,
                           .keep = (int)s->cfg->ckpt.keep,
                           .best = best,
                           .announce = s->unannounced};
        if (s->async && !wait)
            code = bt_ckpt_async_start(s->async, s->world, &job, &meta, err);
        else
            code = bt_ckpt_save(s->world, &job, &saved, err);
    }
    bt_ckpt_meta_release(&meta);
    bt_slices_release(&mine);
    s->stall_ns = bt_now_ns() - s->began_ns;
    if (code == BT_OK && saved.path[0]) report_saved(s, &saved);
    return settle_save(s, code, err);
}

bool bt_saver_pending(const bt_saver *s) { return bt_ckpt_async_pending(s->async); }
bool bt_saver_busy(const bt_saver *s) { return bt_ckpt_async_busy(s->async); }

bt_code bt_saver_advance(bt_saver *s, bt_err *err) {
    bt_ckpt_saved saved = {0};
    bool finished = false;
    const int64_t began = bt_now_ns();
    if (!bt_saver_pending(s)) return BT_OK;
    const bt_code code = bt_ckpt_async_advance(s->async, &finished, &saved, err);
    s->stall_ns += bt_now_ns() - began;
    if (finished) report_saved(s, &saved);
    return settle_save(s, code, err);
}

bt_code bt_saver_finish(bt_saver *s, bt_err *err) {
    while (bt_saver_pending(s)) BT_TRY(bt_saver_advance(s, err));
    return BT_OK;
}

/* ---- verification -------------------------------------------------------------------------------- */

/* SETTLED_S: minimum age of a checkpoint before it is read. CHECK_SHARE: maximum share of the time. */
static const double SETTLED_S = 2, CHECK_SHARE = 0.01;

static void begin_check(bt_saver *s, bool idle) {
    bt_err why = BT_ERR_INIT;
    const int64_t now = bt_now_ns();
    if (!s->cfg->ckpt.verify || s->step < 0 || s->step == s->checked_step || bt_saver_pending(s) ||
        !s->path[0])
        return;
    if (!idle && (now < s->next_check_ns || (double)(now - s->saved_ns) / 1e9 < SETTLED_S)) return;
    s->check_step = s->checked_step = s->step;
    if (bt_ckpt_reread_start(&s->check, s->path, &why) != BT_OK) bt_log(BT_LOG_INFO, "%s", why.msg);
}

static void report_checked(bt_saver *s, const bt_ckpt_checked *found) {
    char body[80], size[32];
    snprintf(body, sizeof body, "{\"step\":%" PRId64 ",\"read_ms\":%.3f}", s->check_step,
             1e3 * found->took_s);
    if (found->code == BT_OK)
        bt_telemetry_event(s->telemetry, BT_EVENT_CKPT_VERIFIED, s->at->step - 1, body,
                           "checkpoint after step %" PRId64 " verified on disk (%s in %.2f s)",
                           s->check_step,
                           bt_metric_format(size, sizeof size, (double)found->bytes, BT_UNIT_BYTES),
                           found->took_s);
    else if (found->code == BT_NOMEM) { /* the checkpoint is not at fault and is read again later */
        s->checked_step = -1;
        bt_log(BT_LOG_INFO, "%s", found->err.msg);
    } else if (s->step == s->check_step) { /* otherwise a newer checkpoint has replaced it */
        s->damaged = true;
        bt_telemetry_event(
            s->telemetry, BT_EVENT_CKPT_DAMAGED, s->at->step - 1, body,
            "checkpoint after step %" PRId64 " %s, another one is written: %s", s->check_step,
            found->code == BT_FORMAT ? "is damaged on disk" : "cannot be read back from disk",
            found->err.msg);
    }
}

void bt_saver_check(bt_saver *s, bool idle) {
    bt_ckpt_checked found;
    if (!s->check) begin_check(s, idle);
    if (!s->check || !bt_ckpt_reread_done(s->check, &found)) return;
    bt_ckpt_reread_destroy(s->check);
    s->check = NULL;
    s->next_check_ns = bt_now_ns() + (int64_t)(found.took_s / CHECK_SHARE * 1e9);
    report_checked(s, &found);
}

/* ---- load ---------------------------------------------------------------------------------------- */

/* Finds the newest checkpoint that all ranks can read. Emits an event for each unreadable one. */
static bt_code find_common_checkpoint(bt_saver *s, const char *dir, char *path, size_t size,
                                      bt_ckpt_meta *meta, bt_err *err) {
    bt_text why;
    bt_text_init(&why);
    bt_code code = bt_ckpt_find(s->world, dir, path, size, meta, &why, err);
    for (char *line = why.data, *next; bt_comm_rank(s->world) == 0 && line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        bt_log(BT_LOG_WARN, "%s", line);
        bt_telemetry_event(s->telemetry, BT_EVENT_CKPT_DAMAGED, -1, NULL, "%s", line);
    }
    bt_text_release(&why);
    return code;
}

static bt_code load_state(bt_saver *s, const char *path, const bt_ckpt_meta *meta, bt_state_use use,
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

/* Warns if optim.KEY differs from the checkpoint's row "optimizer". */
static void warn_of_kind(bt_saver *s, const bt_ckpt_meta *m, const char *key, const char *what,
                         int64_t kind) {
    const char *now = bt_states_name((bt_states_kind)kind);
    char had[16];
    bt_ckpt_state_text(m, "optimizer", key, "fp32", had, sizeof had);
    if (strcmp(had, now) != 0)
        warn_event(s, m->step - 1,
                   "the checkpoint's %s are %s and become %s (optim.%s): each is rounded to the "
                   "nearest once",
                   what, had, now, key);
}

/* Warns about differences that are valid but change the bits. */
static void warn_of_differences(bt_saver *s, const bt_ckpt_meta *m) {
    warn_of_kind(s, m, "states", "optimizer states", s->cfg->optim.states);
    warn_of_kind(s, m, "weights", "weights of ternary layers", s->cfg->optim.weights);
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

/* Compares this rank's tokenizer file; the command has compared that of its own host with a longer message. */
static bt_code same_tokenizer(bt_saver *s, const bt_ckpt_meta *m, bt_err *err) {
    bool same = true;
    if (!m->tokenizer.len || strncmp(s->cfg->data.path, "synth:", 6) == 0) return BT_OK;
    BT_TRY(bt_tokenizer_compare(s->cfg->data.tokenizer, bt_text_str(&m->tokenizer),
                                m->tokenizer.len, &same, err));
    return same ? BT_OK : another_tokenizer(s, m->step, "checkpoint", err);
}

static bt_code same_data(bt_saver *s, const bt_ckpt_meta *m, bt_err *err) {
    if (m->data_hash == s->data_hash) return BT_OK;
    if (!s->cfg->data.other)
        return bt_fail(err, BT_ARG,
                       "the data are not those of the checkpoint: a resumed run would see other "
                       "tokens (give the same --data, or allow it with --other-data)");
    warn_event(s, m->step - 1, "resumed on other data than the checkpoint's");
    return BT_OK;
}

bt_code bt_saver_resume(bt_saver *s, const char *dir, bt_err *err) {
    char path[1024];
    bt_ckpt_meta meta;
    BT_TRY(find_common_checkpoint(s, dir, path, sizeof path, &meta, err));
    bt_code code = same_tokenizer(s, &meta, err);
    if (code == BT_OK) code = same_data(s, &meta, err);
    /* values first, because they may determine the slices */
    if (code == BT_OK) {
        *s->at = (bt_progress){.step = meta.step, .tokens = meta.tokens};
        code = bt_state_load_values(&s->state, &meta.state, err);
    }
    if (code == BT_OK) code = load_state(s, path, &meta, BT_STATE_RESUME, err);
    code = bt_agree(s->world, code, err);
    if (code == BT_OK) {
        warn_of_differences(s, &meta);
        snprintf(s->path, sizeof s->path, "%s", path);
        s->step = meta.step;
    }
    bt_ckpt_meta_release(&meta);
    return code;
}

bt_code bt_saver_resume_memory(bt_saver *s, const char *dir, bt_memory_id *id, bt_err *err) {
    bt_ckpt_meta meta;
    bt_slices all = {0};
    bt_memory_found *found = NULL;
    memset(id, 0, sizeof *id);
    bt_code code = bt_memory_found_open(&found, dir, s->world, id, &meta, err);
    if (code == BT_OK) {
        code = same_data(s, &meta, err);
        if (code == BT_OK && meta.params_hash != s->params_hash)
            code = bt_fail(err, BT_ARG, "the state in memory is of another model");
        if (code == BT_OK) {
            *s->at = (bt_progress){.step = meta.step, .tokens = meta.tokens};
            code = bt_state_load_values(&s->state, &meta.state, err);
        }
        if (code == BT_OK) code = bt_state_slices(&s->state, BT_STATE_RESUME, &all, err);
        code = bt_agree(s->world, code, err);
        if (code == BT_OK) code = bt_memory_found_load(found, all.at, all.n, err);
        bt_slices_release(&all);
        bt_memory_found_close(found);
    }
    if (code == BT_IO ||
        code == BT_NOMEM) /* without memory to read it, continue as if there were no state */
        code = err->code = BT_FORMAT;
    if (code == BT_OK) {
        warn_of_differences(s, &meta);
        s->memory_vocab = meta.vocab_hash;
        s->saved_ns = id->disk_ns; /* keep the interval of checkpoints on disk */
    } else if (bt_comm_rank(s->world) == 0)
        bt_memory_state_drop(dir); /* the next attempt resumes from disk */
    bt_ckpt_meta_release(&meta);
    return code;
}

/* Reads another program's model, or a checkpoint of another shape. Every rank reads its own part. */
static bt_code fill_from(bt_saver *s, const char *path, bt_text *notes, bt_err *err) {
    bt_model_file *file = NULL;
    bt_model_cfg model;
    bt_slices all = {0};
    bt_run_cfg_model(s->cfg, &model);
    bt_code code = bt_model_file_open(&file, path, err);
    if (code == BT_OK) code = bt_init_from_check(file, &model, notes, err);
    if (code == BT_OK) code = bt_state_slices(&s->state, BT_STATE_WEIGHTS, &all, err);
    if (code == BT_OK) code = bt_init_from_fill(file, all.at, all.n, err);
    if (code == BT_OK) bt_text_put(notes, bt_text_str(&file->notes));
    bt_slices_release(&all);
    bt_model_file_close(file);
    return code;
}

static bt_code init_from_path(bt_saver *s, const char *path, bt_err *err) {
    bt_text notes = {0};
    bt_code code = bt_agree(s->world, fill_from(s, path, &notes, err), err);
    for (char *line = notes.data, *end; code == BT_OK && line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        if (bt_comm_rank(s->world) == 0) bt_log(BT_LOG_WARN, "%s", line);
        warn_event(s, -1, "%s", line);
    }
    bt_text_release(&notes);
    return code;
}

bt_code bt_saver_init_from(bt_saver *s, const char *dir, bt_err *err) {
    char path[1024];
    bt_ckpt_meta meta;
    if (bt_model_file_kind(dir) != BT_IN_NATIVE) return init_from_path(s, dir, err);
    BT_TRY(find_common_checkpoint(s, dir, path, sizeof path, &meta, err));
    const bool same = meta.params_hash == s->params_hash;
    bt_code code = same ? load_state(s, path, &meta, BT_STATE_WEIGHTS, err) : BT_OK;
    bt_ckpt_meta_release(&meta);
    return same ? bt_agree(s->world, code, err) : init_from_path(s, path, err);
}
