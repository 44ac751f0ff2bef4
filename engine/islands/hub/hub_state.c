/* hub_state.c - reads and writes the job of a hub, its checkpoints and its log of updates. */
#include "engine/islands/hub/hub_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <xxhash.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/ckpt/ckpt.h"
#include "engine/islands/hub/hub_internal.h"
#include "engine/islands/rules/job_settings.h"

static const uint64_t log_magic = 0x31474f4c42554842; /* "BHUBLOG1" */
enum { KEEP = 2, DUE_LEAST = 16 << 20 };

struct bt_hub_state {
    bt_hub *hub;
    char dir[1024];
    int attempt, log;
    /* passed_bytes: end of the damaged records that were skipped */
    int64_t log_bytes, passed_bytes;
    bool missing; /* a damaged record contained an update */
    bt_state rows;
    bt_code loaded; /* result of the row's load callback, which cannot return one */
    bt_err why;
};

typedef struct log_head {
    uint64_t magic, json_bytes, mean_bytes;
    int64_t kind, version, position;
    double factor;
    uint64_t checksum; /* XXH3-64 of the head without this field, the values and the mean */
} log_head;

bt_code bt_hub_begin_job(bt_hub *h, const char *text, size_t n, bt_err *err) {
    bt_run_cfg *cfg = calloc(1, sizeof *cfg);
    bt_code code = cfg ? bt_job_settings_read(cfg, text, n, err)
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for the job's settings");
    if (code == BT_OK) code = bt_hub_model_create(&h->model, cfg, err);
    free(cfg);
    char hash[32];
    if (code == BT_OK && (!bt_island_line(text, n, "model", hash, sizeof hash) ||
                          strtoull(hash, NULL, 16) != bt_params_hash(&h->model->setup.params))) {
        bt_hub_model_destroy(h->model);
        h->model = NULL;
        code = bt_fail(err, BT_ARG,
                       "the island's model differs from the one that its settings describe: do all "
                       "islands run the same version of this program?");
    }
    if (code != BT_OK) return code;
    bt_text_clear(&h->settings);
    bt_text_putn(&h->settings, text, n);
    if (h->cfg.sink && h->cfg.sink->fact)
        h->cfg.sink->fact(h->cfg.sink->ctx, "islands.settings", bt_text_str(&h->settings));
    return BT_OK;
}

typedef int64_t (*member_value)(const bt_member *m);
static int64_t member_clock(const bt_member *m) { return m->clock; }
static int64_t member_applied_seq(const bt_member *m) { return (int64_t)m->applied; }
static int64_t member_outcome(const bt_member *m) { return m->outcome; }
static int64_t member_n_updates(const bt_member *m) { return m->updates; }
static int64_t member_rejected(const bt_member *m) { return m->left_out; }
static int64_t member_incarnation(const bt_member *m) { return m->incarnation; }
static int64_t member_is_training(const bt_member *m) { return m->state == BT_MEMBER_TRAINS; }
static int64_t member_tokens(const bt_member *m) { return m->tokens; }

static void put_members(const bt_hub *h, bt_json *j, const char *key, member_value value) {
    bt_json_array(j, key);
    for (size_t i = 0; i < h->n; i++) bt_json_int(j, NULL, value(&h->members[i]));
    bt_json_end(j, ']');
}

static void put_member_names(const bt_hub *h, bt_json *j, const char *key, bool keys) {
    bt_text t;
    bt_text_init(&t);
    for (size_t i = 0; i < h->n; i++)
        bt_text_printf(&t, "%s\n", keys ? h->members[i].key : h->members[i].name);
    bt_json_str(j, key, bt_text_str(&t));
    bt_text_release(&t);
}

static void save_values(void *ctx, bt_json *j) {
    const bt_hub *h = ((const bt_hub_state *)ctx)->hub;
    bt_json_str(j, "settings", bt_text_str(&h->settings));
    bt_json_int(j, "version", h->model->version);
    bt_json_int(j, "updates", h->model->updates);
    bt_json_int(j, "tokens", h->tokens);
    bt_json_int(j, "next", h->leases.next);
    bt_json_bool(j, "finished", h->finished);
    put_member_names(h, j, "names", false);
    put_member_names(h, j, "keys", true);
    put_members(h, j, "clocks", member_clock);
    put_members(h, j, "applied", member_applied_seq);
    put_members(h, j, "outcomes", member_outcome);
    put_members(h, j, "incarnations", member_incarnation);
    put_members(h, j, "member_updates", member_n_updates);
    put_members(h, j, "member_left_out", member_rejected);
    put_members(h, j, "member_tokens", member_tokens);
    put_members(h, j, "trained", member_is_training);
    bt_json_array(j, "leases");
    for (size_t i = 0; i < h->leases.n; i++) {
        bt_json_int(j, NULL, h->leases.at[i].begin);
        bt_json_int(j, NULL, h->leases.at[i].end);
    }
    bt_json_end(j, ']');
    bt_json_array(j, "staleness");
    for (size_t i = 0; i < BT_HUB_STALENESS; i++) bt_json_int(j, NULL, (int64_t)h->staleness[i]);
    bt_json_end(j, ']');
}

static void next_key_line(const char **at, char *out, size_t size) {
    const char *end = strchr(*at, '\n');
    snprintf(out, size, "%.*s", end ? (int)(end - *at) : 0, *at);
    if (end) *at = end + 1;
}

static void load_members(bt_hub *h, const bt_state_values *v) {
    enum { N = BT_HUB_ISLANDS };
    int64_t trained[N] = {0}, clocks[N] = {0}, applied[N] = {0}, incarnations[N] = {0},
            tokens[N] = {0}, outcomes[N] = {0}, updates[N] = {0}, left_out[N] = {0};
    const char *names = bt_state_text(v, "names"), *keys = bt_state_text(v, "keys");
    h->n = bt_state_ints(v, "clocks", clocks, N);
    bt_state_ints(v, "applied", applied, N);
    bt_state_ints(v, "incarnations", incarnations, N);
    bt_state_ints(v, "member_tokens", tokens, N);
    bt_state_ints(v, "trained", trained, N);
    bt_state_ints(v, "outcomes", outcomes, N);
    bt_state_ints(v, "member_updates", updates, N);
    bt_state_ints(v, "member_left_out", left_out, N);
    h->awaited = 0;
    for (size_t i = 0; i < h->n; i++) h->awaited += (int)trained[i];
    for (size_t i = 0; i < h->n && names && keys; i++) {
        bt_member *m = &h->members[i];
        *m = (bt_member){.state = BT_MEMBER_DEAD,
                         .clock = clocks[i],
                         .applied = (uint64_t)applied[i],
                         .outcome = outcomes[i],
                         .incarnation = (uint32_t)incarnations[i],
                         .tokens = tokens[i],
                         .updates = updates[i],
                         .left_out = left_out[i]};
        next_key_line(&names, m->name, sizeof m->name);
        next_key_line(&keys, m->key, sizeof m->key);
    }
}

/* All leased data become free; an island that rejoins receives a new lease. */
static bt_code load_leases(bt_hub *h, const bt_state_values *v, bt_err *err) {
    const size_t most = bt_state_count(v, "leases");
    int64_t *ends = calloc(most + 1, sizeof *ends); /* begin, end of each lease */
    if (!ends)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu leases of data", most / 2);
    const size_t n = bt_state_ints(v, "leases", ends, most);
    bt_code code = BT_OK;
    bt_leases_release(&h->leases);
    for (size_t i = 0; i + 1 < n && code == BT_OK; i += 2)
        code = bt_leases_return(&h->leases, ends[i], ends[i + 1], err);
    h->leases.next = h->round_begin = bt_state_int(v, "next", 0);
    free(ends);
    return code;
}

static void load_values(void *ctx, const bt_state_values *v) {
    bt_hub_state *s = ctx;
    bt_hub *h = s->hub;
    int64_t staleness[BT_HUB_STALENESS];
    const char *settings = bt_state_text(v, "settings");
    if (!settings) {
        s->loaded = bt_fail(&s->why, BT_FORMAT,
                            "the checkpoint '%s' does not contain the state of a hub", s->dir);
        return;
    }
    if (!h->model) s->loaded = bt_hub_begin_job(h, settings, strlen(settings), &s->why);
    if (s->loaded != BT_OK) return;
    h->model->version = bt_state_int(v, "version", 0);
    h->model->updates = bt_state_int(v, "updates", 0);
    h->tokens = bt_state_int(v, "tokens", 0);
    h->finished = bt_state_bool(v, "finished", false);
    if (bt_state_ints(v, "staleness", staleness, BT_HUB_STALENESS) == BT_HUB_STALENESS)
        for (size_t i = 0; i < BT_HUB_STALENESS; i++) h->staleness[i] = (uint64_t)staleness[i];
    load_members(h, v);
    s->loaded = load_leases(h, v, &s->why);
}

static void model_slices(void *ctx, bt_state_use use, bt_slices *out) {
    (void)use;
    bt_hub_model_slices(((bt_hub_state *)ctx)->hub->model, out);
}

static bt_code fill_hub_meta(bt_hub_state *s, bt_ckpt_meta *m, bt_err *err) {
    const bt_hub_model *model = s->hub->model;
    memset(m, 0, sizeof *m);
    bt_text_init(&m->config);
    bt_text_init(&m->tokenizer);
    bt_text_init(&m->state);
    m->step = model->version;
    m->tokens = s->hub->tokens;
    m->attempt = s->attempt;
    m->params_hash = bt_params_hash(&model->setup.params);
    snprintf(m->run, sizeof m->run, "hub");
    snprintf(m->isa, sizeof m->isa, "%s", bt_kernels_isa());
    snprintf(m->build, sizeof m->build, "%s", BITRAIN_VERSION);
    bt_run_cfg_texts(&model->cfg, &m->config);
    return bt_state_save_values(&s->rows, &m->state, err);
}

static bt_code clear_log(bt_hub_state *s, bt_err *err) {
    s->log_bytes = 0;
    if (ftruncate(s->log, 0) == 0 && lseek(s->log, 0, SEEK_SET) == 0) return BT_OK;
    return bt_fail_errno(err, BT_IO, errno, "cannot clear the log of updates in '%s'", s->dir);
}

bt_code bt_hub_state_save(bt_hub_state *s, bt_err *err) {
    bt_ckpt_meta meta;
    bt_slices slices = {.n = 0};
    if (!s || !s->hub->model || !s->hub->model->has_weights) return BT_OK;
    bt_code code = bt_state_slices(&s->rows, BT_STATE_SAVE, &slices, err);
    if (code == BT_OK) {
        code = fill_hub_meta(s, &meta, err);
        const bt_ckpt_job job = {
            .dir = s->dir, .meta = &meta, .slices = slices.at, .n = slices.n, .keep = KEEP};
        if (code == BT_OK) code = bt_ckpt_save(bt_comm_world(), &job, NULL, err);
        bt_ckpt_meta_release(&meta);
    }
    bt_slices_release(&slices);
    /* if the process dies here, the log has a record older than the checkpoint, which is skipped */
    return code == BT_OK ? clear_log(s, err) : code;
}

/* Returns the log size above which a checkpoint is due. */
static int64_t max_log_bytes(const bt_hub_model *m) {
    const int64_t models = BT_HUB_LOG_MODELS * (int64_t)(m->n * sizeof(float));
    return models > DUE_LEAST ? models : DUE_LEAST;
}

static int64_t hub_checkpoint_bytes(const bt_hub_model *m) {
    return (int64_t)(m->n * sizeof(float)) * (1 + BT_OPTIM_STATES);
}

/* A checkpoint frees the log but needs room itself, so on a small disk it is written early. */
static bool room_is_short(const bt_hub_state *s) {
    const bt_hub_model *m = s->hub->model;
    const int64_t checkpoint = hub_checkpoint_bytes(m), update = (int64_t)(m->n * sizeof(float));
    struct statvfs v;
    if (s->log_bytes < checkpoint || fstatvfs(s->log, &v) != 0) return false;
    return (double)v.f_bavail * (double)v.f_frsize < 2 * (double)(checkpoint + update);
}

bool bt_hub_state_due(const bt_hub_state *s) {
    if (!s || !s->hub->model) return false;
    return s->log_bytes > max_log_bytes(s->hub->model) || room_is_short(s);
}

int64_t bt_hub_state_need(const bt_hub_model *m) {
    /* stored checkpoints and the one that is being written */
    return (KEEP + 1) * hub_checkpoint_bytes(m) + max_log_bytes(m) +
           (int64_t)(m->n * sizeof(float));
}

static uint64_t log_checksum(const log_head *h, const void *json, const void *mean) {
    const uint64_t parts[] = {XXH3_64bits(h, offsetof(log_head, checksum)),
                              XXH3_64bits(json, h->json_bytes), XXH3_64bits(mean, h->mean_bytes)};
    return XXH3_64bits(parts, sizeof parts);
}

static bt_code write_vectors(int fd, struct iovec *v, int n, const char *dir, bt_err *err) {
    while (n > 0) {
        ssize_t k = writev(fd, v, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0)
            return bt_fail_errno(err, BT_IO, errno, "cannot write the log of updates in '%s'", dir);
        while (n > 0 && (size_t)k >= v->iov_len) {
            k -= (ssize_t)v->iov_len;
            v++;
            n--;
        }
        if (n > 0) {
            v->iov_base = (char *)v->iov_base + k;
            v->iov_len -= (size_t)k;
        }
    }
    return BT_OK;
}

static size_t mean_bytes(const bt_hub_model *m) { return m->n * sizeof *m->mean; }

bt_code bt_hub_state_log(bt_hub_state *s, const bt_hub_applied *a, int64_t version_before,
                         bt_err *err) {
    bt_text json;
    if (!s) return BT_OK;
    bt_text_init(&json);
    bt_code code = bt_state_save_values(&s->rows, &json, err);
    if (code == BT_OK) {
        const bt_hub_model *m = s->hub->model;
        const float *mean = m->mean;
        log_head head = {.magic = log_magic,
                         .json_bytes = json.len,
                         .mean_bytes = a->kind >= 0 ? mean_bytes(m) : 0,
                         .kind = a->kind,
                         .version = version_before,
                         .position = a->position,
                         .factor = a->factor};
        head.checksum = log_checksum(&head, json.data, mean);
        struct iovec v[] = {{&head, sizeof head},
                            {json.data, json.len},
                            {(void *)(uintptr_t)mean, head.mean_bytes}};
        code = write_vectors(s->log, v, 3, s->dir, err);
        if (code == BT_OK && fdatasync(s->log) != 0)
            code = bt_fail_errno(err, BT_IO, errno,
                                 "cannot sync the log of updates in '%s' to the disk", s->dir);
        if (code == BT_OK)
            s->log_bytes += (int64_t)(sizeof head + json.len + head.mean_bytes);
        else if (ftruncate(s->log, s->log_bytes) != 0 || lseek(s->log, s->log_bytes, SEEK_SET) < 0)
            code = BT_FORMAT; /* part of a record remains at the end, so nothing may be appended */
    }
    bt_text_release(&json);
    return code;
}

static bt_code replay_record(bt_hub_state *s, const log_head *head, char *json, bt_err *err) {
    bt_hub_model *m = s->hub->model;
    bt_hub_step step;
    const bt_text values = {.data = json, .len = head->json_bytes, .cap = head->json_bytes + 1};
    if (head->kind == BT_PUSH_DELTA && m->fragments > 1 &&
        (head->position < 0 || head->position >= m->fragments))
        return bt_fail(err, BT_FORMAT,
                       "the log of updates in '%s' names fragment %" PRId64 " of %" PRId64, s->dir,
                       head->position, m->fragments);
    bt_hub_model_use(m, head->kind == BT_PUSH_DELTA ? head->position : -1);
    if (head->kind == BT_PUSH_GRADIENT)
        BT_TRY(bt_hub_model_gradient_step(m, head->position, head->factor, &step, err));
    if (head->kind == BT_PUSH_DELTA) bt_hub_model_outer_step(m, head->factor);
    if (head->kind == BT_APPLIED_AVERAGE) bt_hub_model_average(m, head->factor);
    if (head->kind >= 0) bt_hub_model_publish(m);
    BT_TRY(bt_state_load_values(&s->rows, &values, err));
    if (s->loaded == BT_OK) return BT_OK;
    *err = s->why;
    return s->loaded;
}

/* *whole is false if the log ends before n bytes. */
static bt_code read_log_bytes(const bt_hub_state *s, void *to, size_t n, bool *whole, bt_err *err) {
    *whole = true;
    for (size_t at = 0; at < n;) {
        const ssize_t k = read(s->log, (char *)to + at, n - at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0)
            return bt_fail_errno(err, BT_IO, errno, "cannot read the log of updates in '%s'",
                                 s->dir);
        *whole = k > 0;
        if (k == 0) return BT_OK;
        at += (size_t)k;
    }
    return BT_OK;
}

/* NONE: no record, or its end is missing. DAMAGED: it is complete but wrong; the next can be read. */
typedef enum { RECORD_NONE, RECORD_DAMAGED, RECORD_WHOLE } record_kind;

/* Reads the mean into that of the model. */
static bt_code read_log_record(bt_hub_state *s, log_head *head, char **json, record_kind *kind,
                               bt_err *err) {
    bt_hub_model *m = s->hub->model;
    float *mean = m->mean;
    bool ok;
    *kind = RECORD_NONE;
    BT_TRY(read_log_bytes(s, head, sizeof *head, &ok, err));
    if (!ok || head->magic != log_magic || head->json_bytes > 1 << 24 ||
        head->mean_bytes > m->n * sizeof *mean)
        return BT_OK;
    if (head->mean_bytes && head->mean_bytes != mean_bytes(m))
        return bt_fail(err, BT_ARG,
                       "the log of updates in '%s' was written by a hub of several processes, "
                       "which this version does not support: end that hub with the version that "
                       "wrote the log; it then writes a checkpoint that this version can continue",
                       s->dir);
    *json = malloc(head->json_bytes + 1);
    if (!*json) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the log of updates");
    BT_TRY(read_log_bytes(s, *json, head->json_bytes, &ok, err));
    if (ok) BT_TRY(read_log_bytes(s, mean, head->mean_bytes, &ok, err));
    if (ok)
        *kind = head->checksum == log_checksum(head, *json, mean) ? RECORD_WHOLE : RECORD_DAMAGED;
    (*json)[head->json_bytes] = 0;
    return BT_OK;
}

/* Applies one record. A damaged record is skipped: if it contained an applied update, the next record reports the gap,
 * and everything else is repeated in the next record. *more: false if no further record can be applied. */
static bt_code replay_next_record(bt_hub_state *s, bool *more, int64_t *replayed, bt_err *err) {
    log_head head = {.version = -1};
    char *json = NULL;
    record_kind kind = RECORD_NONE;
    bt_code code = read_log_record(s, &head, &json, &kind, err);
    const bool whole = kind == RECORD_WHOLE;
    const int64_t version = s->hub->model->version;
    *more = code == BT_OK && (kind == RECORD_DAMAGED || (whole && head.version <= version));
    if (*more) s->passed_bytes += (int64_t)(sizeof head + head.json_bytes + head.mean_bytes);
    if (*more && whole) {
        s->log_bytes += s->passed_bytes;
        s->passed_bytes = 0;
        if (head.version == version) { /* the checkpoint contains older ones */
            code = replay_record(s, &head, json, err);
            ++*replayed;
        }
    }
    s->missing |= whole && head.version > version;
    free(json);
    return code;
}

/* A record that was cut when the hub died was never acknowledged. A longer damaged end has another cause, the disk. */
static void warn_of_dropped_log_end(const bt_hub_state *s) {
    struct stat info;
    if (fstat(s->log, &info) != 0 || info.st_size <= s->log_bytes) return;
    bt_log(BT_LOG_WARN, "the last %" PRId64 " bytes of the log of updates in '%s' %s",
           (int64_t)info.st_size - s->log_bytes, s->dir,
           s->missing ? "begin with a damaged update, without which those after it cannot be "
                        "applied: they are dropped, and the job continues from the update before"
                      : "are not a whole record: they are dropped");
}

static bt_code open_log(bt_hub_state *s, bt_err *err) {
    char path[1100];
    snprintf(path, sizeof path, "%s/updates.log", s->dir);
    s->log = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (s->log < 0) return bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
    /* a process of a hub that was killed may need a moment to end */
    int tries = 20;
    while (flock(s->log, LOCK_EX | LOCK_NB) != 0 && --tries > 0) bt_sleep_ns(100000000);
    if (tries == 0)
        return bt_fail(err, BT_BUSY,
                       "another hub uses the folder '%s': end it, or use another folder", s->dir);
    return BT_OK;
}

static bt_code load_checkpoint(bt_hub_state *s, const char *path, const bt_ckpt_meta *meta,
                               bt_err *err) {
    bt_slices slices = {.n = 0};
    bt_code code = bt_state_load_values(&s->rows, &meta->state, err);
    if (code == BT_OK && s->loaded != BT_OK) {
        *err = s->why;
        return s->loaded;
    }
    if (code == BT_OK) code = bt_state_slices(&s->rows, BT_STATE_RESUME, &slices, err);
    if (code == BT_OK) code = bt_ckpt_load(path, slices.at, slices.n, err);
    bt_slices_release(&slices);
    if (code == BT_OK) s->hub->model->has_weights = true;
    return code;
}

static bt_code resume_from_log(bt_hub_state *s, int64_t *replayed, bt_err *err) {
    char path[PATH_MAX];
    bt_ckpt_meta meta;
    bt_err why = BT_ERR_INIT;
    memset(&meta, 0, sizeof meta);
    bt_code code = bt_ckpt_find(bt_comm_world(), s->dir, path, sizeof path, &meta, NULL, &why);
    if (code == BT_NOTFOUND) return BT_OK; /* a new hub */
    if (code != BT_OK) {
        *err = why;
        return code;
    }
    code = load_checkpoint(s, path, &meta, err);
    bt_ckpt_meta_release(&meta);
    for (bool more = true; code == BT_OK && more;)
        code = replay_next_record(s, &more, replayed, err);
    if (code == BT_OK) warn_of_dropped_log_end(s);
    return code;
}

/* A folder with checkpoints belongs to a restarted hub, which waits for the disk like a running one. */
static bt_code prepare_folder(bt_hub_state *s, bt_err *err) {
    for (bool first = true;; first = false) {
        bt_err why = BT_ERR_INIT;
        const bt_code code = bt_ckpt_prepare(s->dir, false, &why);
        if (code == BT_OK) return BT_OK;
        if (bt_ckpt_check(s->dir, true, NULL) != BT_BUSY) {
            *err = why;
            return code;
        }
        BT_TRY(bt_hub_wait_for_disk(s->hub, first, &why, err));
    }
}

static bt_code begin_attempt(bt_hub_state *s, bt_err *err) {
    for (bool first = true;; first = false) {
        bt_err why = BT_ERR_INIT;
        s->attempt = bt_ckpt_next_attempt(s->dir, 0);
        if (bt_ckpt_begin(s->dir, s->attempt, &why) == BT_OK) return BT_OK;
        BT_TRY(bt_hub_wait_for_disk(s->hub, first, &why, err));
    }
}

static bt_code save_when_possible(bt_hub_state *s, bt_err *err) {
    for (bool first = true;; first = false) {
        bt_err why = BT_ERR_INIT;
        if (bt_hub_state_save(s, &why) == BT_OK) return BT_OK;
        BT_TRY(bt_hub_wait_for_disk(s->hub, first, &why, err));
    }
}

bt_code bt_hub_state_open(bt_hub_state **out, bt_hub *h, const char *dir, int64_t *replayed,
                          bt_err *err) {
    *out = NULL;
    *replayed = 0;
    bt_hub_state *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the hub's state");
    s->hub = h;
    s->log = -1;
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    bt_state_add(&s->rows, &(bt_state_row){.name = "hub",
                                           .ctx = s,
                                           .slices = model_slices,
                                           .save = save_values,
                                           .load = load_values});
    bt_code code = prepare_folder(s, err);
    if (code == BT_OK) code = open_log(s, err);
    if (code == BT_OK) code = resume_from_log(s, replayed, err);
    if (code == BT_OK) code = begin_attempt(s, err);
    /* the new checkpoint contains the replayed records, and replaces an incomplete one */
    if (code == BT_OK && h->model) code = save_when_possible(s, err);
    if (code != BT_OK) {
        bt_hub_state_close(s);
        return code;
    }
    *out = s;
    return BT_OK;
}

void bt_hub_state_close(bt_hub_state *s) {
    if (!s) return;
    if (s->log >= 0) close(s->log);
    free(s);
}
