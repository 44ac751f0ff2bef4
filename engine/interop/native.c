/* native.c - bitrain's checkpoints: their settings, reading one as a model, and writing one from any model. */
#include "engine/interop/native.h"
#include "engine/config/run_property.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/data/io/file_io.h"
#include "engine/data/io/unread_keys.h"

/* Handles a setting of another version. A model setting is refused unless its value disables it. */
static bt_code check_unknown(const char *key, const char *value, const char *path, bt_err *err) {
    static const char *const off[] = {"", "0", "false", "none", "off", NULL};
    if (strncmp(key, "model.", 6) != 0 || bt_key_in(off, value)) return BT_OK;
    return bt_fail(err, BT_UNSUPPORTED,
                   "the model in checkpoint '%s' has %.60s=%.60s, which this version does not "
                   "support (use the version that trained it)",
                   path, key, value);
}

typedef struct checkpoint_settings {
    bt_opts opts;
    const char *path; /* of the checkpoint */
} checkpoint_settings;

static bt_code apply_native_setting(void *ctx, const char *key, const char *value, bt_err *err) {
    checkpoint_settings *c = ctx;
    bool removed; /* a value that was removed, and is not a part of the model */
    if (bt_opt_find(c->opts.table, c->opts.n, key) == c->opts.n)
        return check_unknown(key, value, c->path, err);
    if (bt_opt_check_removed(bt_run_removed, bt_run_removed_n, key, value, &removed, NULL) != BT_OK)
        return BT_OK;
    return bt_opts_set(&c->opts, key, value, BT_FROM_FILE, "the checkpoint", err);
}

bt_code bt_native_settings(bt_run_cfg *out, const bt_ckpt_meta *meta, const char *path,
                           bt_err *err) {
    static checkpoint_settings c;
    bt_err why = BT_ERR_INIT;
    BT_TRY(bt_opts_init(&c.opts, bt_run_opts, bt_run_opts_n, out, err));
    c.path = path;
    const bt_code code = bt_run_cfg_each_text(bt_text_str(&meta->config), apply_native_setting, &c,
                                              &why);
    if (code == BT_FORMAT)
        return bt_fail(err, BT_FORMAT, "the settings in checkpoint '%s' cannot be read: %s", path,
                       why.msg);
    if (code != BT_OK && err) *err = why;
    if (code == BT_OK && bt_run_has(out, BT_RUN_DENSE, meta->step)) bt_run_cfg_make_dense(out);
    return code;
}

bt_code bt_native_settings_of(bt_run_cfg *out, const bt_model_cfg *m, const char *tokenizer,
                              bt_err *err) {
    static bt_opts o;
    BT_TRY(bt_opts_init(&o, bt_run_opts, bt_run_opts_n, out, err));
    BT_TRY(bt_run_cfg_preset(&o, out, err));
    out->model.layers = m->L;
    out->model.d_model = m->C;
    out->model.heads = m->H;
    out->model.kv_heads = m->KV;
    out->model.head_dim = m->D;
    out->model.d_ff = m->F;
    out->model.seq_len = m->T;
    out->model.vocab = m->V;
    out->model.norm = (int)m->norm;
    out->model.act = (int)m->act;
    out->model.linear = (int)m->linear;
    out->model.scale = (int)m->scale;
    out->model.tied = m->tied;
    out->model.qk_norm = m->qk_norm;
    out->model.qkv_bias = m->qkv_bias;
    out->model.rope_theta = m->rope_theta;
    out->model.no_rope_every = m->no_rope_every;
    out->model.window = m->window;
    out->model.window_every = m->window_every;
    out->model.rope_local_theta = m->rope_local_theta;
    out->model.post_norm = m->post_norm;
    out->model.embed_scale = m->embed_scale;
    out->model.query_scale = m->query_scale;
    out->model.attention_cap = m->attention_cap;
    out->model.rotary_dim = m->rotary_dim;
    if (m->rope.method != BT_ROPE_PLAIN) {
        out->model.rope_scaling = (int)m->rope.method;
        out->model.rope_factor = m->rope.factor;
        out->model.rope_context = m->rope.context;
        out->model.rope_low = m->rope.low;
        out->model.rope_high = m->rope.high;
        out->model.rope_attention = m->rope.attention;
        bt_rope_divisors_write(&m->rope.shorter, out->model.rope_short,
                               sizeof out->model.rope_short);
        bt_rope_divisors_write(&m->rope.longer, out->model.rope_long, sizeof out->model.rope_long);
    }
    out->model.norm_eps = m->norm_eps;
    out->model.init_std = m->init_std;
    out->model.init_embed = m->init_embed;
    out->model.init_out = (int)m->init_out;
    out->model.logit_cap = m->logit_cap;
    out->train.precision = BT_PREC_FP32;
    out->train.micro_batch = 1;
    out->train.batch_tokens = m->T;
    out->train.reproducible = false;
    if (strlen(tokenizer) >= sizeof out->data.tokenizer)
        return bt_fail(err, BT_ARG, "the path '%s' is too long", tokenizer);
    strcpy(out->data.tokenizer, tokenizer);
    BT_TRY(bt_run_cfg_resolve_opts(&o, out, 1, err));
    return BT_OK;
}

bt_code bt_model_file_open_native(bt_model_file *s, bt_err *err) {
    static bt_run_cfg cfg;
    char path[4096];
    BT_TRY(bt_ckpt_find(NULL, s->path, path, sizeof path, &s->meta, &s->passed_over, err));
    memcpy(s->path, path, sizeof s->path);
    BT_TRY(bt_native_settings(&cfg, &s->meta, s->path, err));
    bt_run_cfg_model(&cfg, &s->cfg);
    BT_TRY(bt_model_file_tables(s, err));
    if (s->meta.params_hash != bt_params_hash(&s->params))
        return bt_fail(err, BT_FORMAT,
                       "checkpoint '%s' does not contain the model that its settings describe",
                       s->path);
    BT_TRY(bt_tokenizer_parse(&s->tokenizer, bt_text_str(&s->meta.tokenizer), s->meta.tokenizer.len,
                              err));
    s->number = BT_NUM_F32;
    return bt_ckpt_reader_open(&s->ckpt, s->path, err);
}

static bt_code produce_native_slice(void *ctx, const bt_ckpt_slice *slice, uint64_t first,
                                    uint64_t count, void *out, bt_err *err) {
    bt_model_file *s = ctx;
    const bt_tensor *t = bt_params_named(&s->params, slice->tensor);
    BT_TRY(bt_model_file_read(s, (size_t)(t - s->params.tensors), first, count, out, err));
    bt_model_file_passed(s, count);
    return BT_OK;
}

/* Writes DEST/tokenizer.json and returns its absolute path, because training reads it from there. */
static bt_code write_tokenizer(const bt_model_file *s, const char *dest, char path[1024],
                               bt_text *tokenizer, bt_err *err) {
    char whole[PATH_MAX];
    if (!realpath(dest, whole)) return bt_fail_errno(err, BT_IO, errno, "cannot find '%s'", dest);
    bt_tokenizer_save(s->tokenizer, tokenizer);
    if (tokenizer->failed)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the tokenizer");
    if (strcmp(bt_tokenizer_kind(s->tokenizer), "bytes") == 0) {
        strcpy(path, "bytes");
        return BT_OK;
    }
    if (snprintf(path, 1024, "%s/tokenizer.json", whole) >= 1024)
        return bt_fail(err, BT_ARG, "the path '%s' is too long", whole);
    return bt_file_replace(path, tokenizer->data, tokenizer->len, err);
}

void bt_native_name(char out[64], const char *path) {
    char copy[PATH_MAX];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", path);
    for (size_t k = strlen(copy); k > 1 && copy[k - 1] == '/'; k--) copy[k - 1] = '\0';
    const char *base = strrchr(copy, '/');
    for (const char *p = base ? base + 1 : copy; *p && n < 63; p++) {
        const char c = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
        const bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (ok || (n > 0 && (c == '.' || c == '_' || c == '-')))
            out[n++] = c;
        else if (n > 0)
            out[n++] = '-';
    }
    out[n] = '\0';
    if (!n) strcpy(out, "converted");
}

static bt_code write_checkpoint(bt_model_file *s, const char *dest, int64_t *bytes, bt_err *err) {
    static bt_run_cfg cfg;
    char tokenizer[1024];
    bt_ckpt_meta meta = {.params_hash = bt_params_hash(&s->params),
                         .vocab_hash = bt_tokenizer_hash(s->tokenizer)};
    bt_ckpt_saved saved;
    bt_ckpt_slice *slices = calloc(s->params.n, sizeof *slices);
    bt_code code = slices ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory");
    bt_native_name(meta.run, dest);
    if (code == BT_OK) code = write_tokenizer(s, dest, tokenizer, &meta.tokenizer, err);
    if (code == BT_OK) code = bt_native_settings_of(&cfg, &s->cfg, tokenizer, err);
    if (code == BT_OK) {
        snprintf(cfg.run.name, sizeof cfg.run.name, "%.63s", meta.run);
        snprintf(cfg.run.out, sizeof cfg.run.out, "%.1023s", dest);
        bt_run_cfg_texts(&cfg, &meta.config);
    }
    for (size_t i = 0; code == BT_OK && i < s->params.n; i++) {
        const bt_tensor *t = &s->params.tensors[i];
        slices[i] = (bt_ckpt_slice){
            .tensor = t->name, .state = "weight", .tensor_elems = t->count, .count = t->count};
    }
    const bt_ckpt_job job = {.dir = dest,
                             .meta = &meta,
                             .slices = slices,
                             .n = s->params.n,
                             .keep = 1,
                             .produce = produce_native_slice,
                             .produce_ctx = s};
    if (code == BT_OK) code = bt_ckpt_save(bt_comm_world(), &job, &saved, err);
    if (code == BT_OK && bytes) *bytes = saved.bytes;
    bt_ckpt_meta_release(&meta);
    free(slices);
    return code;
}

bt_code bt_native_write(bt_model_file *s, const char *dest, int64_t *bytes, bt_err *err) {
    char path[PATH_MAX];
    if (s->cfg.classes)
        return bt_fail(err, BT_UNSUPPORTED,
                       s->cfg.classes > 1 ? "it is a classifier of %d labels, which needs no "
                                            "conversion: use its checkpoint ('%.200s')"
                                          : "it is a reward model of %d score, which needs no "
                                            "conversion: use its checkpoint ('%.200s')",
                       s->cfg.classes, s->path);
    if (!s->tokenizer)
        return bt_fail(
            err, s->no_tokenizer.code,
            "'%.200s' has no tokenizer that can be used (give one with --tokenizer FILE): %s",
            s->path, s->no_tokenizer.msg);
    if (mkdir(dest, 0777) != 0)
        return errno == EEXIST
                   ? bt_fail(err, BT_BUSY, "'%s' exists already (give another path, or remove it)",
                             dest)
                   : bt_fail_errno(err, BT_IO, errno, "cannot create the folder '%s'", dest);
    bt_code code = write_checkpoint(s, dest, bytes, err);
    if (code == BT_OK) return BT_OK;
    static const char *const made[] = {"tokenizer.json", "attempt.lock"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%.4000s/%s", dest, made[i]);
        unlink(path);
    }
    rmdir(dest);
    return code;
}
