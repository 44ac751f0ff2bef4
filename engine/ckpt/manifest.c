/* manifest.c - reads and writes manifest.json, which lists everything that belongs to a checkpoint.
 *
 *     {"seal":"<XXH3-128 of BODY, hex>","manifest":BODY}\n
 *
 * The text around BODY must match literally, so a change of any byte in the file is detected. */
#include "engine/base/system/json_starved.h"
#include "engine/ckpt/format.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_HEAD "{\"seal\":\""
#define FRAME_MIDDLE "\",\"manifest\":"
#define FRAME_TAIL "}\n"
#define FORMAT_NAME "bitrain checkpoint"
enum { MANIFEST_LIMIT = 256 << 20 };

void bt_ckpt_meta_release(bt_ckpt_meta *m) {
    if (!m) return;
    bt_text_release(&m->config);
    bt_text_release(&m->tokenizer);
    bt_text_release(&m->state);
}

void ckpt_manifest_release(ckpt_manifest *m) {
    bt_ckpt_meta_release(&m->meta);
    free(m->files);
    memset(m, 0, sizeof *m);
}

static json_t *hex64(uint64_t v) {
    char buf[17];
    snprintf(buf, sizeof buf, "%016" PRIx64, v);
    return json_string(buf);
}

/* Parses a JSON object; empty text is an empty object. */
static json_t *object_of(const bt_text *t, const char *what, bt_err *err) {
    if (t->len == 0) return json_object();
    json_error_t e;
    json_t *j = json_loads(bt_text_str(t), JSON_REJECT_DUPLICATES, &e);
    if (!j && bt_json_starved(&e))
        bt_fail(err, BT_NOMEM, "cannot allocate memory for the %s of the checkpoint", what);
    else if (!j)
        bt_fail(err, BT_ARG, "%s of the checkpoint is not JSON: %s", what, e.text);
    return j;
}

bt_code ckpt_manifest_text(const bt_ckpt_meta *meta, uint64_t generation, int world_size,
                           const ckpt_file *files, size_t n_files, bt_text *out, char seal[33],
                           bt_err *err) {
    json_t *config = object_of(&meta->config, "config", err);
    json_t *state = config ? object_of(&meta->state, "state", err) : NULL;
    if (!config || !state) {
        json_decref(config);
        return err ? err->code : BT_ARG;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n_files; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:I, s:I, s:s}", "name", files[i].name, "rank",
                            files[i].rank, "bytes", (json_int_t)files[i].bytes, "sections",
                            (json_int_t)files[i].n_sections, "xxh3_128", files[i].hash));
    json_t *body = json_pack("{s:s, s:i, s:s, s:I, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:s, s:s, "
                             "s:o, s:o, s:s%, s:o}",
                             "format", FORMAT_NAME, "version", CKPT_VERSION, "run", meta->run,
                             "step", (json_int_t)meta->step, "tokens", (json_int_t)meta->tokens,
                             "attempt", meta->attempt, "world_size", world_size, "generation",
                             hex64(generation), "params_hash", hex64(meta->params_hash),
                             "data_hash", hex64(meta->data_hash), "vocab_hash",
                             hex64(meta->vocab_hash), "isa", meta->isa, "build", meta->build,
                             "files", list, "state", state, "tokenizer",
                             bt_text_str(&meta->tokenizer), meta->tokenizer.len, "config", config);
    char *text = body ? json_dumps(body,
                                   JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
                      : NULL;
    json_decref(body);
    if (!text)
        return bt_fail(
            err, BT_ARG,
            "cannot write the manifest: a text in it is not UTF-8, or there is not enough memory");
    ckpt_hash_hex(seal, text, strlen(text));
    bt_text_put(out, FRAME_HEAD);
    bt_text_put(out, seal);
    bt_text_put(out, FRAME_MIDDLE);
    bt_text_put(out, text);
    bt_text_put(out, FRAME_TAIL);
    free(text);
    return out->failed ? bt_fail(err, BT_NOMEM, "cannot allocate the manifest") : BT_OK;
}

static bool get_hex64(const json_t *o, const char *key, uint64_t *out) {
    const char *s = json_string_value(json_object_get(o, key));
    if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16) return false;
    *out = strtoull(s, NULL, 16);
    return true;
}

static bool get_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v)) return false;
    *out = json_integer_value(v);
    return *out >= min && *out <= max;
}

static bool get_json_text(const json_t *o, const char *key, char *out, size_t size) {
    const json_t *v = json_object_get(o, key);
    const char *s = json_string_value(v);
    if (!s || json_string_length(v) >= size) return false;
    memcpy(out, s, strlen(s) + 1);
    return true;
}

static bool get_object(const json_t *o, const char *key, bt_text *out) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_object(v)) return false;
    char *s = json_dumps(v, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
    if (s)
        bt_text_put(out, s);
    else
        out->failed = true;
    free(s);
    return !out->failed;
}

/* Converts the fields of version 1 to values of the state registry's rows. */
static bool convert_version_1_state(const json_t *body, bt_text *out) {
    const json_t *extra = json_object_get(body, "extra"),
                 *factor = json_object_get(body, "lr_factor"),
                 *scale = json_object_get(body, "loss_scale");
    if (!json_is_object(extra) || !factor || !scale) return false;
    json_t *state = json_pack("{s:{s:O*, s:O}, s:{s:O, s:O*}, s:{s:O*}}", "progress", "updates",
                              json_object_get(extra, "updates"), "lr_factor", factor, "loss_scale",
                              "value", scale, "good", json_object_get(extra, "loss_scale_good"),
                              "data", "bytes_per_token", json_object_get(extra, "bytes_per_token"));
    char *text = state ? json_dumps(state,
                                    JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
                       : NULL;
    if (text) bt_text_put(out, text);
    if (!text && state) out->failed = true;
    free(text);
    json_decref(state);
    return text && !out->failed;
}

static bt_code read_manifest_files(const json_t *body, const char *path, ckpt_manifest *m,
                                   bt_err *err) {
    const json_t *list = json_object_get(body, "files");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return bt_fail(err, BT_FORMAT, "'%s' names no data files", path);
    m->n_files = json_array_size(list);
    m->files = calloc(m->n_files, sizeof *m->files);
    if (!m->files) return bt_fail(err, BT_NOMEM, "cannot allocate %zu file rows", m->n_files);
    for (size_t i = 0; i < m->n_files; i++) {
        const json_t *row = json_array_get(list, i);
        ckpt_file *f = &m->files[i];
        int64_t rank, bytes, sections;
        const char *name = json_string_value(json_object_get(row, "name"));
        if (!name || !ckpt_file_name_ok(name))
            return bt_fail(err, BT_FORMAT, "'%s': file name '%.80s' is not allowed", path,
                           name ? name : "");
        if (!get_json_text(row, "name", f->name, sizeof f->name) ||
            !get_int(row, "rank", 0, INT_MAX, &rank) ||
            !get_int(row, "bytes", 0, INT64_MAX, &bytes) ||
            !get_int(row, "sections", 0, INT64_MAX / 4096, &sections) ||
            !get_json_text(row, "xxh3_128", f->hash, sizeof f->hash) || strlen(f->hash) != 32)
            return bt_fail(err, BT_FORMAT, "'%s': row %zu of 'files' is not valid", path, i);
        f->rank = (int)rank;
        f->bytes = (uint64_t)bytes;
        f->n_sections = (uint64_t)sections;
        for (size_t k = 0; k < i; k++)
            if (strcmp(m->files[k].name, f->name) == 0)
                return bt_fail(err, BT_FORMAT, "'%s' names '%s' twice", path, f->name);
    }
    return BT_OK;
}

static bt_code read_body(const json_t *body, const char *path, ckpt_manifest *m, bt_err *err) {
    bt_ckpt_meta *t = &m->meta;
    int64_t version = 0, attempt = 0, world = 0;
    char format[32];
    if (!get_json_text(body, "format", format, sizeof format) || strcmp(format, FORMAT_NAME) != 0)
        return bt_fail(err, BT_FORMAT, "'%s' is not a checkpoint manifest", path);
    if (!get_int(body, "version", 1, INT_MAX, &version) || version > CKPT_VERSION)
        return bt_fail(err, BT_FORMAT,
                       "'%s' has version %lld, but this program reads only versions 1 to %d", path,
                       (long long)version, CKPT_VERSION);
    const json_t *tok = json_object_get(body, "tokenizer");
    const char *bad = NULL;
    if (!get_json_text(body, "run", t->run, sizeof t->run))
        bad = "run";
    else if (!get_int(body, "step", 0, INT64_MAX, &t->step))
        bad = "step";
    else if (!get_int(body, "tokens", 0, INT64_MAX, &t->tokens))
        bad = "tokens";
    else if (!get_int(body, "attempt", 0, INT_MAX, &attempt))
        bad = "attempt";
    else if (!get_int(body, "world_size", 1, INT_MAX, &world))
        bad = "world_size";
    else if (!get_hex64(body, "generation", &m->generation))
        bad = "generation";
    else if (!get_hex64(body, "params_hash", &t->params_hash))
        bad = "params_hash";
    else if (!get_hex64(body, "data_hash", &t->data_hash))
        bad = "data_hash";
    else if (!get_hex64(body, "vocab_hash", &t->vocab_hash))
        bad = "vocab_hash";
    else if (!get_json_text(body, "isa", t->isa, sizeof t->isa))
        bad = "isa";
    else if (!get_json_text(body, "build", t->build, sizeof t->build))
        bad = "build";
    else if (!json_is_string(tok))
        bad = "tokenizer";
    else if (!get_object(body, "config", &t->config))
        bad = "config";
    else if (version == 1 ? !convert_version_1_state(body, &t->state)
                          : !get_object(body, "state", &t->state))
        bad = "state";
    if (!bad) bt_text_putn(&t->tokenizer, json_string_value(tok), json_string_length(tok));
    if (t->config.failed || t->state.failed || t->tokenizer.failed)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the texts of '%s'", path);
    if (bad) return bt_fail(err, BT_FORMAT, "'%s': field '%s' is missing or not valid", path, bad);
    t->attempt = (int)attempt;
    m->world_size = (int)world;
    return read_manifest_files(body, path, m, err);
}

bt_code ckpt_manifest_read(const char *folder, ckpt_manifest *m, bt_err *err) {
    memset(m, 0, sizeof *m);
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/manifest.json", folder) >= (int)sizeof path)
        return bt_fail(err, BT_ARG, "path '%s' is too long", folder);
    char *text = NULL;
    size_t n = 0;
    BT_TRY(ckpt_slurp(path, MANIFEST_LIMIT, &text, &n, err));
    const size_t head = strlen(FRAME_HEAD), middle = strlen(FRAME_MIDDLE),
                 tail = strlen(FRAME_TAIL), frame = head + 32 + middle + tail;
    bt_code code = BT_OK;
    json_t *body = NULL;
    if (n <= frame || memcmp(text, FRAME_HEAD, head) != 0 ||
        memcmp(text + head + 32, FRAME_MIDDLE, middle) != 0 ||
        memcmp(text + n - tail, FRAME_TAIL, tail) != 0) {
        code = bt_fail(err, BT_FORMAT,
                       "'%s' (%zu bytes) is truncated, damaged or not a checkpoint manifest", path,
                       n);
        goto done;
    }
    const char *from = text + head + 32 + middle;
    ckpt_hash_hex(m->seal, from, n - frame);
    if (memcmp(m->seal, text + head, 32) != 0) {
        code = bt_fail(err, BT_FORMAT, "'%s' is damaged: its hash is %s, but its seal is %.32s",
                       path, m->seal, text + head);
        goto done;
    }
    json_error_t e;
    body = json_loadb(from, n - frame, JSON_REJECT_DUPLICATES, &e);
    if (!body && bt_json_starved(&e))
        code = bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    else if (!body)
        code = bt_fail(err, BT_FORMAT, "'%s' is not JSON at byte %d: %s", path, e.position, e.text);
    else
        code = read_body(body, path, m, err);
done:
    json_decref(body);
    free(text);
    if (code != BT_OK) ckpt_manifest_release(m);
    return code;
}
