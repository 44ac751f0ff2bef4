/* safetensors.c - reads the header of a safetensors file as strictly as the format's own description: one JSON object
 * of tensors, whose data cover the rest of the file without holes or overlaps.
 *
 *     u64 length of the header | {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...} | data
 *
 * Refused: a header that has more than 16 MiB, is longer than the file, or does not begin with '{'; numbers that are
 * not plain digits; names that occur twice; unknown types; shapes that do not match their bytes; holes, overlaps, and
 * bytes after the last tensor. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/data/io/file_io.h"
#include "engine/data/io/json.h"
#include "engine/interop/formats/stored.h"

enum { HEADER_MAX = 16 << 20, INDEX_MAX = 64 << 20 };

/* Outside of its strings the header contains only brackets, commas, colons, blanks and digits: readers interpret "1e3",
 * "-0", "1.0" and words differently. */
static bool is_plain_header(const char *s, size_t n) {
    bool text = false;
    for (size_t i = 0; i < n; i++) {
        if (text) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                text = false;
        } else if (s[i] == '"')
            text = true;
        else if (!strchr("{}[]:, \t\r\n0123456789", s[i]) || !s[i])
            return false;
    }
    return !text;
}

static bt_code read_json_count(json_t *v, uint64_t *out, const char *name, const char *what,
                               bt_err *err) {
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return bt_fail(err, BT_FORMAT, "%s of tensor '%.90s' is not a whole number", what, name);
    *out = (uint64_t)json_integer_value(v);
    return BT_OK;
}

static bt_code read_shape(json_t *shape, bt_stored *t, bt_err *err) {
    const size_t n = json_array_size(shape);
    uint64_t dims[2] = {1, 1};
    if (!json_is_array(shape) || n < 1 || n > 2)
        return bt_fail(
            err, BT_FORMAT,
            "tensor '%s' has %zu dimensions, but only vectors and matrices are supported", t->name,
            n);
    for (size_t i = 0; i < n; i++)
        BT_TRY(read_json_count(json_array_get(shape, i), &dims[2 - n + i], t->name, "a size", err));
    if (dims[0] == 0 || dims[1] == 0)
        return bt_fail(err, BT_FORMAT, "tensor '%s' has no elements", t->name);
    t->n_dims = (int)n;
    t->rows = dims[0];
    t->cols = dims[1];
    return BT_OK;
}

static bt_code read_entry(const char *name, json_t *o, uint64_t data_at, uint64_t data_bytes,
                          bt_stored *t, bt_err *err) {
    const char *dtype = json_string_value(json_object_get(o, "dtype"));
    json_t *offsets = json_object_get(o, "data_offsets");
    uint64_t begin = 0, end = 0, bytes;
    if (strlen(name) >= sizeof t->name)
        return bt_fail(err, BT_FORMAT, "tensor name '%.60s...' is longer than %d bytes", name,
                       BT_FOREIGN_NAME - 1);
    strcpy(t->name, name);
    if (!json_is_object(o) || json_object_size(o) != 3 || !dtype || json_array_size(offsets) != 2)
        return bt_fail(err, BT_FORMAT,
                       "tensor '%s' does not have 'dtype', 'shape' and two 'data_offsets'", name);
    t->number = bt_number_of_safetensors(dtype);
    if (t->number == BT_NUM_COUNT)
        return bt_fail(err, BT_UNSUPPORTED,
                       "tensor '%s' has the type '%.20s', which is not supported (supported: F32, "
                       "F16, BF16, U8)",
                       name, dtype);
    BT_TRY(read_shape(json_object_get(o, "shape"), t, err));
    BT_TRY(read_json_count(json_array_get(offsets, 0), &begin, name, "the begin", err));
    BT_TRY(read_json_count(json_array_get(offsets, 1), &end, name, "the end", err));
    if (begin > end || end > data_bytes)
        return bt_fail(err, BT_FORMAT,
                       "tensor '%s' is at bytes %llu..%llu of the data, which has %llu", name,
                       (unsigned long long)begin, (unsigned long long)end,
                       (unsigned long long)data_bytes);
    if (!bt_stored_bytes(t, &bytes) || bytes != end - begin)
        return bt_fail(err, BT_FORMAT, "tensor '%s' (%llu x %llu, %s) has %llu bytes", name,
                       (unsigned long long)t->rows, (unsigned long long)t->cols, dtype,
                       (unsigned long long)(end - begin));
    t->at = data_at + begin;
    t->bytes = bytes;
    return BT_OK;
}

static int by_data_place(const void *a, const void *b) {
    const bt_stored *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static bt_code check_cover(bt_stored *t, size_t n, uint64_t at, uint64_t end, bt_err *err) {
    if (n > 1) qsort(t, n, sizeof *t, by_data_place);
    for (size_t i = 0; i < n; at += t[i++].bytes)
        if (t[i].at != at)
            return bt_fail(err, BT_FORMAT, "tensor '%s' %s byte %llu", t[i].name,
                           t[i].at < at ? "overlaps the one before it at"
                                        : "leaves a hole before it from",
                           (unsigned long long)at);
    if (at != end)
        return bt_fail(err, BT_FORMAT, "the tensors end at byte %llu, the file at byte %llu",
                       (unsigned long long)at, (unsigned long long)end);
    return BT_OK;
}

static bt_code read_header(bt_stored_list *l, int file, json_t *root, uint64_t data_at,
                           bt_err *err) {
    const size_t first = l->n;
    const uint64_t end = l->files[file].bytes;
    const char *name;
    json_t *o;
    json_object_foreach(root, name, o) {
        bt_stored t = {.file = file};
        if (strcmp(name, "__metadata__") == 0) {
            const char *key;
            json_t *v;
            if (!json_is_object(o))
                return bt_fail(err, BT_FORMAT, "'__metadata__' is not an object of texts");
            json_object_foreach(o, key, v) if (!json_is_string(v)) return bt_fail(
                err, BT_FORMAT, "'%.60s' in '__metadata__' is not a text", key);
            continue;
        }
        BT_TRY(read_entry(name, o, data_at, end - data_at, &t, err));
        BT_TRY(bt_stored_add(l, &t, err));
    }
    if (l->n == first) return bt_fail(err, BT_FORMAT, "it contains no tensor");
    return check_cover(l->at + first, l->n - first, data_at, end, err);
}

static bt_code slurp_header(const bt_foreign_file *f, char **text, size_t *n, bt_err *err) {
    unsigned char head[8];
    uint64_t length = 0;
    if (f->bytes < sizeof head + 2)
        return bt_fail(err, BT_FORMAT, "it has only %llu bytes, which are too few for a header",
                       (unsigned long long)f->bytes);
    BT_TRY(bt_foreign_read(f, head, sizeof head, 0, err));
    for (int i = 7; i >= 0; i--) length = length << 8 | head[i];
    if (length > f->bytes - sizeof head)
        return bt_fail(err, BT_FORMAT,
                       "its header has a length of %llu bytes, but the file has %llu (truncated, "
                       "or not safetensors)",
                       (unsigned long long)length, (unsigned long long)f->bytes);
    if (length < 2 || length > HEADER_MAX)
        return bt_fail(err, BT_FORMAT,
                       "its header has a length of %llu bytes, but 2 to %d are possible",
                       (unsigned long long)length, HEADER_MAX);
    *n = (size_t)length;
    *text = malloc(*n);
    if (!*text) return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for its header", *n);
    return bt_foreign_read(f, *text, *n, sizeof head, err);
}

bt_code bt_safetensors_read(bt_stored_list *l, const char *path, bt_err *err) {
    char *text = NULL;
    size_t n = 0;
    int file;
    json_t *root = NULL;
    bt_err why = BT_ERR_INIT;
    BT_TRY(bt_stored_open(l, path, &file, err));
    bt_code code = slurp_header(&l->files[file], &text, &n, &why);
    if (code == BT_OK && text[0] != '{')
        code = bt_fail(&why, BT_FORMAT, "its header does not begin with '{'");
    if (code == BT_OK && !is_plain_header(text, n))
        code = bt_fail(&why, BT_FORMAT,
                       "its header contains something other than texts and plain whole numbers");
    if (code == BT_OK) code = bt_json_parse(&root, text, n, &why);
    free(text);
    if (code == BT_OK) code = read_header(l, file, root, 8 + n, &why);
    json_decref(root);
    if (code == BT_OK) return BT_OK;
    return bt_fail(err, code, "'%s' cannot be read: %s", path, why.msg);
}

static bool is_shard_name(const char *name) {
    const size_t n = strlen(name);
    return n > 12 && n < 200 && name[0] != '.' && !strchr(name, '/') &&
           strcmp(name + n - 12, ".safetensors") == 0;
}

/* Checks that every tensor of the index is in the file listed for it, and that there are no others. */
static bt_code read_shards(bt_stored_list *l, const char *folder, json_t *map, bt_err *err) {
    const char *name;
    json_t *v;
    char path[PATH_MAX];
    json_object_foreach(map, name, v) {
        const char *shard = json_string_value(v);
        size_t f = 0;
        if (!shard || !is_shard_name(shard))
            return bt_fail(err, BT_FORMAT,
                           "for tensor '%.90s' the index does not name a file of the folder", name);
        snprintf(path, sizeof path, "%.3800s/%.200s", folder, shard);
        while (f < l->n_files && strcmp(l->files[f].path, path) != 0) f++;
        if (f == l->n_files) BT_TRY(bt_safetensors_read(l, path, err));
    }
    BT_TRY(bt_stored_sort(l, err));
    for (size_t i = 0; i < l->n; i++) {
        const char *shard = json_string_value(json_object_get(map, l->at[i].name));
        const char *base = strrchr(l->files[l->at[i].file].path, '/') + 1;
        if (!shard || strcmp(shard, base) != 0)
            return bt_fail(err, BT_FORMAT,
                           "tensor '%s' is in '%.200s', not in the file listed by the index",
                           l->at[i].name, base);
    }
    if (l->n != json_object_size(map)) {
        json_object_foreach(map, name, v) if (!bt_stored_find(l, name)) break;
        return bt_fail(err, BT_FORMAT, "tensor '%.90s' of the index is not in '%.200s'",
                       name ? name : "", name ? json_string_value(v) : "");
    }
    return BT_OK;
}

/* Reports that the folder has no weights in a supported format, or in which other format they are. */
static bt_code fail_without_weights(const char *folder, bt_err *err) {
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "consolidated.00.pth", "tf_model.h5",
                                         "flax_model.msgpack"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%.3800s/%s", folder, others[i]);
        if (access(path, F_OK) == 0)
            return bt_fail(err, BT_UNSUPPORTED,
                           "the weights of '%.100s' are in '%s', whose format is not supported: "
                           "convert it with "
                           "'python3 -c \"from transformers import AutoModelForCausalLM as M; "
                           "M.from_pretrained('%.60s').save_pretrained('OUT')\"'",
                           folder, others[i], strlen(folder) < 60 ? folder : "FOLDER");
    }
    return bt_fail(err, BT_NOTFOUND,
                   "'%.300s' has neither 'model.safetensors' nor 'model.safetensors.index.json'",
                   folder);
}

bt_code bt_safetensors_folder(bt_stored_list *l, const char *folder, bt_err *err) {
    char path[PATH_MAX], *text = NULL;
    size_t n;
    json_t *root = NULL;
    bt_err why = BT_ERR_INIT;
    snprintf(path, sizeof path, "%.3800s/model.safetensors", folder);
    bt_code code = bt_safetensors_read(l, path, &why);
    if (code == BT_OK) {
        code = bt_stored_sort(l, &why);
        return code == BT_OK ? BT_OK : bt_fail(err, code, "'%s' cannot be read: %s", path, why.msg);
    }
    if (code != BT_NOTFOUND) return bt_fail(err, code, "%s", why.msg);
    snprintf(path, sizeof path, "%.3800s/model.safetensors.index.json", folder);
    code = bt_file_slurp(path, INDEX_MAX, &text, &n, &why);
    if (code == BT_NOTFOUND) return fail_without_weights(folder, err);
    if (code == BT_OK) code = bt_json_parse(&root, text, n, &why);
    free(text);
    json_t *map = json_object_get(root, "weight_map");
    if (code == BT_OK && json_object_size(map) == 0)
        code = bt_fail(&why, BT_FORMAT, "it has no 'weight_map'");
    if (code == BT_OK) code = read_shards(l, folder, map, &why);
    json_decref(root);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "'%s': %s", path, why.msg);
}
