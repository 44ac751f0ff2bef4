/* checkpoint_model.c - reads the configuration and the tokenizer of a checkpoint, loads its weights. */
#include "cli/model/checkpoint_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common/progress.h"
#include "cli/model/adapter_words.h"
#include "cli/model/checkpoint_folder.h"
#include "cli/model/members.h"
#include "cli/model/model_notes.h"
#include "engine/base/log.h"
#include "engine/base/small.h"
#include "engine/base/tables/metric.h"
#include "engine/base/threads.h"
#include "engine/config/tune_cfg.h"
#include "engine/data/chat/chat.h"
#include "engine/interop/hf_config.h"
#include "engine/interop/native.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/plan.h"
#include "engine/tune/adapters_read.h"
#include "engine/tune/base_weights.h"
#include "engine/tune/peft_config.h"

bt_code bt_trained_tokenizer(bt_model_file *s, const char *path, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    if (!path || !path[0]) return BT_OK;
    if (s->tokenizer)
        return bt_fail(err, BT_ARG, "--tokenizer: '%s' has a tokenizer of its own", s->path);
    if (bt_tokenizer_load(&s->tokenizer, path, &why) != BT_OK)
        BT_TRY(why.code == BT_FORMAT ? bt_hf_tokenizer_read(&s->tokenizer, path, &s->notes, err)
                                     : bt_fail(err, why.code, "%s", why.msg));
    if (bt_tokenizer_vocab(s->tokenizer) <= s->cfg.V) {
        bt_model_file_give_roles(s);
        return BT_OK;
    }
    return bt_fail(err, BT_ARG, "--tokenizer: '%s' has %d tokens, the model %d", path,
                   bt_tokenizer_vocab(s->tokenizer), s->cfg.V);
}

/* Fills the settings for a model of another program, as in a checkpoint converted from it. */
static bt_code fill_foreign_settings(bt_trained *t, bt_model_file *s, bt_err *err) {
    bt_model_cfg model = s->cfg;
    if (!s->tokenizer)
        return bt_fail(err, s->no_tokenizer.code,
                       "'%.200s' has no tokenizer that can be used (give one with "
                       "--tokenizer): %s",
                       s->path, s->no_tokenizer.msg);
    if (model.T > BT_CONTEXT_MOST) {
        bt_text_printf(&s->notes, "texts are read up to %d tokens here, by the model up to %d\n",
                       (int)BT_CONTEXT_MOST, model.T);
        model.T = BT_CONTEXT_MOST;
    }
    BT_TRY(bt_native_settings_of(&t->cfg, &model, "", err));
    bt_native_name(t->meta.run, s->path);
    const char *jinja = bt_tokenizer_chat_template(s->tokenizer), *how;
    const bt_chat_template *row = NULL;
    bt_err unknown = BT_ERR_INIT;
    if (!jinja || bt_chat_of_jinja(&row, jinja, &how, &unknown) != BT_OK)
        row = bt_chat_of_tokenizer(s->tokenizer);
    if (jinja || row->marks) /* otherwise the default of the setting remains */
        (void)snprintf(t->cfg.data.template, sizeof t->cfg.data.template, "%s", row->name);
    bt_text_init(&t->meta.tokenizer);
    bt_tokenizer_save(s->tokenizer, &t->meta.tokenizer);
    t->meta.vocab_hash = bt_tokenizer_hash(s->tokenizer);
    return BT_OK;
}

/* Opens the model in `folder` and reads everything except its weights. */
static bt_code open_model_source(bt_trained *t, bt_model_file **out, const char *folder,
                                 const bt_trained_how *how, bt_err *err) {
    BT_TRY(bt_model_file_open(out, folder, err));
    bt_model_file *s = *out;
    BT_TRY(bt_trained_tokenizer(s, how->tokenizer, err));
    snprintf(t->path, sizeof t->path, "%s", s->path);
    BT_TRY(bt_trained_check_newest(&s->passed_over, s->path, how->newest, err));
    bt_text_put(&t->passed_over, bt_text_str(&s->passed_over));
    if (s->container == BT_IN_NATIVE) {
        t->meta = s->meta; /* moves ownership of the texts */
        memset(&s->meta, 0, sizeof s->meta);
        BT_TRY(bt_native_settings(&t->cfg, &t->meta, t->path, err));
    } else
        BT_TRY(fill_foreign_settings(t, s, err));
    t->tokenizer = s->tokenizer;
    s->tokenizer = NULL;
    bt_notes_collect(&t->notes, &s->notes, t->path);
    return BT_OK;
}

/* Opens a folder of PEFT adapters; settings and tokenizer are those of the base. */
static bt_code open_peft_adapters(bt_trained *t, const bt_trained_how *how, const char *folder,
                                  bt_err *err) {
    char base[PATH_MAX];
    bt_model_file *b = NULL;
    BT_TRY(bt_peft_base_of(folder, how->base, how->store, base, err));
    bt_code code = open_model_source(t, &b, base, how, err);
    if (code == BT_OK && b->cfg.lora.rank)
        code = bt_fail(err, BT_ARG, "--base: '%.200s' holds adapters alone", base);
    if (code == BT_OK) code = bt_adapters_open_peft(&t->file, folder, &b->cfg, base, err);
    bt_model_file_close(b);
    BT_TRY(code);
    const bt_lora *l = &t->file->cfg.lora;
    t->cfg.tune.mode = BT_TUNE_LORA;
    t->cfg.tune.rank = l->rank;
    t->cfg.tune.alpha = l->scale * l->rank;
    t->cfg.tune.rslora = false;
    t->cfg.tune.dora = l->dora;
    bt_tune_targets_write(l->targets, t->cfg.tune.targets, sizeof t->cfg.tune.targets);
    if (strlen(base) >= sizeof t->cfg.tune.base)
        return bt_fail(err, BT_ARG, "--base: the path '%.100s...' is too long", base);
    memcpy(t->cfg.tune.base, base, strlen(base) + 1);
    (void)snprintf(t->path, sizeof t->path, "%s", folder);
    bt_native_name(t->meta.run, folder);
    bt_notes_collect(&t->notes, &t->file->notes, folder);
    return BT_OK;
}

static bt_code find_base_folder(const bt_trained *t, const bt_trained_how *how, char path[PATH_MAX],
                                bt_err *err) {
    struct stat st;
    if (how->base && how->base[0])
        return bt_trained_folder(how->base, how->store ? how->store : "", path, err);
    (void)snprintf(path, PATH_MAX, "%s", t->cfg.tune.base);
    if (stat(path, &st) == 0) return BT_OK;
    return bt_fail(err, BT_NOTFOUND,
                   "'%s' holds adapters, and the model that they were trained beside is not at "
                   "'%.200s' any more (give its path with --base)",
                   t->path, path);
}

static bt_code load_adapter_base(bt_trained *t, const bt_trained_how *how, const int64_t *hashes,
                                 size_t n, bt_err *err) {
    char path[PATH_MAX];
    bt_text notes = {0};
    bt_base_weights base = {.watch = t->file->watch};
    BT_TRY(find_base_folder(t, how, path, err));
    bt_code code = bt_base_weights_load(&base, t->model, path, &notes, err);
    if (code == BT_OK) bt_notes_collect(&t->notes, &notes, path);
    bt_text_release(&notes);
    for (size_t i = 0; code == BT_OK && i < n; i++) {
        base.trained_on = hashes[i];
        code = bt_base_weights_check(&base, path, err);
    }
    return code;
}

/* ---- several adapters at once ------------------------------------------------------------------ */

static bool has_adapter_sum(const bt_trained_how *how) {
    return (how->add && how->add[0]) || how->weight < 1 || how->weight > 1;
}

static void report_adapter_parts(const bt_adapter_part *parts, size_t n) {
    fprintf(stderr, "adapters   ");
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "%s%g of '%s'", i ? " + " : "", parts[i].weight, parts[i].adapters->path);
    fprintf(stderr, "\n");
}

/* Replaces t->file by the sum of its adapters and the added ones. hashes: receives those of all *n bases. */
static bt_code add_adapters(bt_trained *t, const bt_trained_how *how,
                            int64_t hashes[BT_ADAPTER_PARTS], size_t *n, bt_err *err) {
    bt_adapter_part parts[BT_ADAPTER_PARTS] = {{t->file, how->weight}};
    hashes[0] = bt_base_weights_of(&t->meta);
    *n = 1;
    if (!has_adapter_sum(how)) return BT_OK;
    if (!t->file->cfg.lora.rank)
        return bt_fail(err, BT_ARG,
                       "%s: '%.200s' holds no adapters (name a run that trained some, then the "
                       "others with --add)",
                       how->add && how->add[0] ? "--add" : "--weight", t->path);
    bt_code code = bt_adapter_words_open(parts, n, how->add ? how->add : "",
                                         how->store ? how->store : "", err);
    if (code != BT_OK) {
        bt_adapter_parts_close(parts + 1, *n - 1);
        return code;
    }
    for (size_t i = 1; i < *n; i++) hashes[i] = bt_base_weights_of(&parts[i].adapters->meta);
    report_adapter_parts(parts, *n);
    return bt_adapter_sum_open(&t->file, parts, *n, 1, err);
}

static void show_loaded(void *ctx, double done) { bt_progress_show(ctx, "loading", done, ""); }

/* Loads the weights, and those of the base of adapters, into the model created for them. */
static bt_code load_weights(bt_trained *t, const bt_trained_how *how, const int64_t *hashes,
                            size_t n_hashes, bt_err *err) {
    bt_progress bar;
    bt_progress_begin(&bar, how->quiet);
    t->file->watch = (bt_model_watch){.progress = show_loaded, .ctx = &bar};
    bt_code code = bt_model_file_weights(t->file, bt_model_weights(t->model), err);
    t->file->watch.elems = 0; /* the beginning of the text identifies the base */
    if (code == BT_OK && bt_model_base(t->model))
        code = load_adapter_base(t, how, hashes, n_hashes, err);
    else if (code == BT_OK)
        bt_model_quantise(t->model);
    t->file->watch.progress = NULL;
    bt_progress_end(&bar);
    return code;
}

/* Returns the setup of the model of t. first: first member of its ensemble, or t itself. */
static bt_model_setup setup_of_member(const bt_trained *t, const bt_trained *first,
                                      const bt_trained_how *how) {
    bt_model_setup setup = {.B = how->B ? how->B : (int)first->cfg.train.micro_batch,
                            .prec = (bt_prec)how->precision,
                            .train = false,
                            .documents = first->cfg.data.packing > BT_PACKED_STREAM,
                            .pairs = first->cfg.data.form == BT_FORMED_PREFERENCE,
                            .n_threads = bt_threads_count()};
    bt_run_cfg_model(&t->cfg, &setup.cfg);
    if (how->T && how->T < setup.cfg.T) setup.cfg.T = how->T;
    return setup;
}

static bt_code create_trained_model(bt_trained *t, const bt_trained *first,
                                    const bt_trained_how *how, bt_err *err) {
    int64_t hashes[BT_ADAPTER_PARTS];
    size_t n_hashes;
    bt_model_setup setup = setup_of_member(t, first, how);
    BT_TRY(add_adapters(t, how, hashes, &n_hashes, err));
    if (setup.cfg.lora.rank) setup.cfg.lora = t->file->cfg.lora;
    t->prec = setup.prec;
    BT_TRY(bt_model_create(&t->model, &setup, err));
    bt_model_dpo(t->model, bt_tune_dpo(&t->cfg));
    BT_TRY(load_weights(t, how, hashes, n_hashes, err));
    bt_notes_collect(&t->notes, &t->file->notes,
                     t->path); /* reading the weights may have added notes */
    bt_model_file_close(t->file);
    t->file = NULL;
    return BT_OK;
}

/* ---- an ensemble ------------------------------------------------------------------------------- */

static const bt_trained *ensemble_member(const bt_trained *t, size_t i) {
    return i ? &t->others[i - 1] : t;
}

/* Members must have equal tokens and sequence lengths, because the ensemble averages their probabilities. */
static bt_code check_ensemble_member(const bt_trained *t, const bt_trained *o, bt_err *err) {
    const bt_model_settings *a = &t->cfg.model, *b = &o->cfg.model;
    if (o->cfg.data.labels[0] || t->cfg.data.labels[0])
        return bt_fail(err, BT_ARG,
                       "an ensemble predicts tokens, and '%.100s' is a classifier (name one model)",
                       o->cfg.data.labels[0] ? o->member : t->member);
    if (t->meta.vocab_hash != o->meta.vocab_hash || a->vocab != b->vocab)
        return bt_fail(err, BT_ARG,
                       "the members of an ensemble need the same tokenizer: '%.60s' has %d tokens "
                       "(tokenizer %08llx), '%.60s' has %d (tokenizer %08llx)",
                       t->member, (int)a->vocab, (unsigned long long)(t->meta.vocab_hash >> 32),
                       o->member, (int)b->vocab, (unsigned long long)(o->meta.vocab_hash >> 32));
    if (a->seq_len != b->seq_len)
        return bt_fail(err, BT_ARG,
                       "the members of an ensemble need sequences of the same length: '%.60s' has "
                       "model.seq_len=%lld, '%.60s' has %lld",
                       t->member, (long long)a->seq_len, o->member, (long long)b->seq_len);
    return BT_OK;
}

/* Prints the memory of all members before it is allocated. */
static void print_ensemble_memory(const bt_trained *t, const bt_trained_how *how) {
    bt_arena_row rows[BT_PLAN_MAX];
    char buf[32];
    size_t bytes = 0;
    for (size_t i = 0; i <= t->n_others; i++) {
        const bt_model_setup setup = setup_of_member(ensemble_member(t, i), t, how);
        const size_t n = bt_model_plan(&setup, rows, BT_PLAN_MAX);
        for (size_t k = 0; k < n; k++) bytes += rows[k].bytes;
    }
    fprintf(stderr, "ensemble   mean of %zu models, %s of memory:", t->n_others + 1,
            bt_metric_format(buf, sizeof buf, (double)bytes, BT_UNIT_BYTES));
    for (size_t i = 0; i <= t->n_others; i++) fprintf(stderr, " %s", ensemble_member(t, i)->member);
    fprintf(stderr, "\n");
}

static bt_code open_ensemble_members(bt_trained *t, const bt_trained_how *how, bt_err *err) {
    if (t->cfg.data.form == BT_FORMED_PREFERENCE)
        return bt_fail(err, BT_UNSUPPORTED,
                       "an ensemble cannot judge preferences (name one of its models)");
    for (size_t i = 0; i < t->n_others; i++) {
        BT_TRY(create_trained_model(&t->others[i], t, how, err));
        bt_model_add_member(t->model, t->others[i].model);
        t->others[i].model = NULL;
        bt_text_put(&t->notes, bt_text_str(&t->others[i].notes));
    }
    return BT_OK;
}

bt_code bt_trained_model(bt_trained *t, const bt_trained_how *how, bt_err *err) {
    BT_TRY(bt_kernels_select(how->isa[0] ? how->isa : "auto", err));
    BT_TRY(bt_threads_init(how->threads ? (int)how->threads : bt_cpu_get()->cores, err));
    if (t->n_others && !how->quiet) print_ensemble_memory(t, how);
    BT_TRY(create_trained_model(t, t, how, err));
    return t->n_others ? open_ensemble_members(t, how, err) : BT_OK;
}

bt_trained_how bt_trained_how_of(const bt_trained_opts *o, const char *which, const char *store) {
    return (bt_trained_how){.which = which,
                            .store = store,
                            .isa = o->isa,
                            .base = o->base,
                            .weight = o->weight,
                            .add = o->add,
                            .tokenizer = o->tokenizer,
                            .threads = o->threads,
                            .precision = o->precision};
}

static bt_code open_single_model(bt_trained *t, const bt_trained_how *how, bt_err *err) {
    char folder[PATH_MAX];
    BT_TRY(bt_trained_folder(how->which, how->store, folder, err));
    return bt_peft_is(folder) ? open_peft_adapters(t, how, folder, err)
                              : open_model_source(t, &t->file, folder, how, err);
}

static bt_code open_member(bt_trained *t, const char *word, const bt_trained_how *how,
                           bt_err *err) {
    bt_trained_how one = *how;
    bt_err why = BT_ERR_INIT;
    one.which = word;
    (void)snprintf(t->member, sizeof t->member, "%s", word);
    if (open_single_model(t, &one, &why) == BT_OK) return BT_OK;
    return bt_fail(err, why.code, "member '%.60s' of the ensemble: %.400s", word, why.msg);
}

static bt_code open_ensemble(bt_trained *t, const bt_members *m, const bt_trained_how *how,
                             bt_err *err) {
    if (has_adapter_sum(how))
        return bt_fail(err, BT_ARG,
                       "--add and --weight are for the adapters of one model, and "
                       "these are %zu",
                       m->n);
    t->others = calloc(m->n - 1, sizeof *t->others);
    if (!t->others) return bt_fail(err, BT_NOMEM, "no memory for an ensemble of %zu", m->n);
    t->n_others = m->n - 1;
    BT_TRY(open_member(t, m->words[0], how, err));
    for (size_t i = 0; i < t->n_others; i++) {
        BT_TRY(open_member(&t->others[i], m->words[i + 1], how, err));
        BT_TRY(check_ensemble_member(t, &t->others[i], err));
        bt_text_put(&t->passed_over, bt_text_str(&t->others[i].passed_over));
    }
    (void)snprintf(t->meta.run, sizeof t->meta.run, "%.*s", (int)sizeof t->meta.run - 1, m->name);
    return BT_OK;
}

bt_code bt_trained_open(bt_trained *t, const bt_trained_how *how, bt_err *err) {
    bt_members m;
    bt_trained_how one = *how;
    memset(t, 0, sizeof *t);
    bt_code code = bt_members_find(&m, how->which, how->store ? how->store : "", err);
    one.which = m.n ? m.words[0] : "";
    if (code == BT_OK)
        code = m.n > 1 ? open_ensemble(t, &m, how, err) : open_single_model(t, &one, err);
    bt_members_release(&m);
    return code;
}

void bt_trained_report_affixes(const bt_trained *t) {
    bt_text around = {0};
    bt_tokenizer_describe_affixes(t->tokenizer, &around);
    if (around.len)
        fprintf(stderr, "tokenizer  each text %s, as its post-processor puts them\n",
                bt_text_str(&around));
    bt_text_release(&around);
}

bt_code bt_trained_load(bt_trained *t, const bt_trained_how *how, bt_err *err) {
    BT_TRY(bt_trained_open(t, how, err));
    return bt_trained_model(t, how, err);
}

void bt_trained_put_members(const bt_trained *t, bt_json *j) {
    if (!t->n_others) return;
    bt_json_array(j, "members");
    for (size_t i = 0; i <= t->n_others; i++) bt_json_str(j, NULL, ensemble_member(t, i)->member);
    bt_json_end(j, ']');
}

static void release_trained_model(bt_trained *t) {
    bt_model_destroy(t->model);
    bt_model_file_close(t->file);
    bt_tokenizer_free(t->tokenizer);
    bt_ckpt_meta_release(&t->meta);
    bt_text_release(&t->notes);
    bt_text_release(&t->passed_over);
}

void bt_trained_release(bt_trained *t) {
    release_trained_model(t);
    for (size_t i = 0; i < t->n_others; i++) release_trained_model(&t->others[i]);
    free(t->others);
    bt_threads_release();
    memset(t, 0, sizeof *t);
}

const char *bt_trained_precision(const bt_trained *t) {
    switch (t->prec) {
    case BT_PREC_BF16: return bt_kernels_multiply_bf16() ? "bf16" : "fp32";
    case BT_PREC_FP16: return "fp16";
    default: return "fp32";
    }
}
