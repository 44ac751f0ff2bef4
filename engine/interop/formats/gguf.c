/* gguf.c - reads the head of a GGUF file through a bounded cursor. */
#include "engine/interop/formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MAX = 256,
    TEXT_MAX = 1 << 20,
    NAME_MAX_GGUF = 63, /* llama.cpp: 64 with the final NUL byte */
    ALIGNMENT = 32,
    ALIGNMENT_MAX = 65536,
    KV_LEAST = 13, /* bytes of the shortest key with its value */
    INFO_LEAST = 33,
    BUFFER = 1 << 16
};

static const unsigned char sizes[BT_GGUF_TYPES] = {
    [BT_GGUF_U8] = 1,   [BT_GGUF_I8] = 1,     [BT_GGUF_U16] = 2, [BT_GGUF_I16] = 2,
    [BT_GGUF_U32] = 4,  [BT_GGUF_I32] = 4,    [BT_GGUF_F32] = 4, [BT_GGUF_BOOL] = 1,
    [BT_GGUF_TEXT] = 8, [BT_GGUF_ARRAY] = 12, [BT_GGUF_U64] = 8, [BT_GGUF_I64] = 8,
    [BT_GGUF_F64] = 8};

typedef struct cursor {
    const bt_foreign_file *f;
    uint64_t at; /* offset of the next byte to read */
    uint64_t from;
    size_t have;
    unsigned char *buf; /* bytes [from, from + have) of the file */
} cursor;

static bt_code read_file_bytes(cursor *c, void *out, uint64_t n, bt_err *err) {
    unsigned char *to = out;
    if (n > c->f->bytes - c->at)
        return bt_fail(err, BT_FORMAT, "it ends within its head, at byte %llu (truncated)",
                       (unsigned long long)c->f->bytes);
    while (n > 0) {
        if (c->at < c->from || c->at >= c->from + c->have) {
            const uint64_t left = c->f->bytes - c->at;
            c->from = c->at;
            c->have = left < BUFFER ? (size_t)left : BUFFER;
            BT_TRY(bt_foreign_read(c->f, c->buf, c->have, c->from, err));
        }
        const size_t in = (size_t)(c->at - c->from),
                     k = c->have - in < n ? c->have - in : (size_t)n;
        if (to) memcpy(to, c->buf + in, k);
        if (to) to += k;
        c->at += k;
        n -= k;
    }
    return BT_OK;
}

static bt_code skip_bytes(cursor *c, uint64_t n, bt_err *err) {
    if (n > c->f->bytes - c->at)
        return bt_fail(err, BT_FORMAT, "it ends within its head, at byte %llu (truncated)",
                       (unsigned long long)c->f->bytes);
    c->at += n;
    return BT_OK;
}

static bt_code read_u32(cursor *c, uint32_t *out, bt_err *err) {
    unsigned char b[4];
    *out = 0;
    BT_TRY(read_file_bytes(c, b, sizeof b, err));
    for (int i = 3; i >= 0; i--) *out = *out << 8 | b[i];
    return BT_OK;
}

static bt_code read_u64(cursor *c, uint64_t *out, bt_err *err) {
    unsigned char b[8];
    *out = 0;
    BT_TRY(read_file_bytes(c, b, sizeof b, err));
    for (int i = 7; i >= 0; i--) *out = *out << 8 | b[i];
    return BT_OK;
}

/* Reads a text of at most `most` bytes into memory from malloc; refuses NUL bytes. */
static bt_code read_gguf_text(cursor *c, char **out, size_t *length, uint64_t most,
                              const char *what, bt_err *err) {
    uint64_t n = 0;
    const uint64_t at = c->at;
    *out = NULL;
    BT_TRY(read_u64(c, &n, err));
    if (n > most || n > c->f->bytes - c->at)
        return bt_fail(err, BT_FORMAT,
                       "%s at byte %llu has a length of %llu bytes (at most %llu, and the file "
                       "has %llu more)",
                       what, (unsigned long long)at, (unsigned long long)n,
                       (unsigned long long)most, (unsigned long long)(c->f->bytes - c->at));
    *out = malloc((size_t)n + 1);
    if (!*out) return bt_fail(err, BT_NOMEM, "cannot allocate %llu bytes", (unsigned long long)n);
    BT_TRY(read_file_bytes(c, *out, n, err));
    (*out)[n] = '\0';
    *length = (size_t)n;
    if (memchr(*out, 0, (size_t)n))
        return bt_fail(err, BT_FORMAT, "%s at byte %llu contains a NUL byte", what,
                       (unsigned long long)at);
    return BT_OK;
}

static int64_t signed_of(uint64_t v, bt_gguf_type t) {
    switch (t) {
    case BT_GGUF_I8: return (int8_t)v;
    case BT_GGUF_I16: return (int16_t)v;
    case BT_GGUF_I32: return (int32_t)v;
    default: return (int64_t)v;
    }
}

static bt_code read_scalar(cursor *c, bt_gguf_type t, int64_t *whole, double *real, bt_err *err) {
    unsigned char b[8] = {0};
    uint64_t v = 0;
    BT_TRY(read_file_bytes(c, b, sizes[t], err));
    for (int i = 7; i >= 0; i--) v = v << 8 | b[i];
    *whole = signed_of(v, t);
    *real = t == BT_GGUF_U64 ? (double)v : (double)*whole;
    if (t == BT_GGUF_F32) {
        float x;
        memcpy(&x, b, sizeof x);
        *real = (double)x;
    }
    if (t == BT_GGUF_F64) memcpy(real, b, sizeof *real);
    return BT_OK;
}

static bt_code skip_array(cursor *c, bt_gguf_kv *kv, bt_err *err) {
    uint32_t element = 0;
    uint64_t n = 0;
    BT_TRY(read_u32(c, &element, err));
    BT_TRY(read_u64(c, &n, err));
    if (element >= BT_GGUF_TYPES || element == BT_GGUF_ARRAY)
        return bt_fail(err, BT_FORMAT, "'%s' is an array of the unsupported type %u", kv->key,
                       element);
    if (n > (c->f->bytes - c->at) / sizes[element])
        return bt_fail(err, BT_FORMAT,
                       "'%s' has a count of %llu elements, more than fit into the file", kv->key,
                       (unsigned long long)n);
    kv->element = (bt_gguf_type)element;
    kv->count = n;
    kv->at = c->at;
    if (element != BT_GGUF_TEXT) return skip_bytes(c, n * sizes[element], err);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t length = 0;
        BT_TRY(read_u64(c, &length, err));
        if (length > TEXT_MAX)
            return bt_fail(err, BT_FORMAT, "text %llu of '%s' has a length of %llu bytes",
                           (unsigned long long)i, kv->key, (unsigned long long)length);
        BT_TRY(skip_bytes(c, length, err));
    }
    return BT_OK;
}

static bt_code read_key_value(cursor *c, bt_gguf_kv *kv, bt_err *err) {
    uint32_t type = 0;
    size_t n = 0;
    BT_TRY(read_gguf_text(c, &kv->key, &n, KEY_MAX, "a key", err));
    if (n == 0) return bt_fail(err, BT_FORMAT, "a key has no name");
    BT_TRY(read_u32(c, &type, err));
    if (type >= BT_GGUF_TYPES)
        return bt_fail(err, BT_FORMAT, "the value of '%s' has the unknown type %u", kv->key, type);
    kv->type = (bt_gguf_type)type;
    if (type == BT_GGUF_ARRAY) return skip_array(c, kv, err);
    if (type == BT_GGUF_TEXT) return read_gguf_text(c, &kv->text, &n, TEXT_MAX, "a text", err);
    return read_scalar(c, kv->type, &kv->whole, &kv->real, err);
}

static int by_gguf_key(const void *a, const void *b) {
    return strcmp(((const bt_gguf_kv *)a)->key, ((const bt_gguf_kv *)b)->key);
}

static bt_code read_gguf_keys(bt_gguf *g, cursor *c, uint64_t n, bt_err *err) {
    if (n > (c->f->bytes - c->at) / KV_LEAST)
        return bt_fail(err, BT_FORMAT, "it has a count of %llu keys, more than fit into the file",
                       (unsigned long long)n);
    g->kv = calloc((size_t)n + 1, sizeof *g->kv);
    if (!g->kv) return bt_fail(err, BT_NOMEM, "cannot allocate memory for its keys");
    for (g->n = 0; g->n < n;) BT_TRY(read_key_value(c, &g->kv[g->n++], err));
    if (g->n > 1) qsort(g->kv, g->n, sizeof *g->kv, by_gguf_key);
    for (size_t i = 1; i < g->n; i++)
        if (by_gguf_key(&g->kv[i - 1], &g->kv[i]) == 0)
            return bt_fail(err, BT_FORMAT, "the key '%s' occurs twice", g->kv[i].key);
    return BT_OK;
}

static bt_code refuse_type(const char *tensor, uint32_t type, bt_err *err) {
    static const char *const names[] = {
        [9] = "q8_1",   [15] = "q8_k",   [16] = "iq2_xxs", [17] = "iq2_xs", [18] = "iq3_xxs",
        [19] = "iq1_s", [20] = "iq4_nl", [21] = "iq3_s",   [22] = "iq2_s",  [23] = "iq4_xs",
        [24] = "i8",    [25] = "i16",    [26] = "i32",     [27] = "i64",    [28] = "f64",
        [29] = "iq1_m", [39] = "mxfp4",  [40] = "nvfp4"};
    char number[16];
    (void)snprintf(number, sizeof number, "%u", type);
    const char *name = type < sizeof names / sizeof *names ? names[type] : NULL;
    return bt_fail(err, BT_UNSUPPORTED,
                   "tensor '%s' has ggml's type %s, which is not supported (supported: f32, f16, "
                   "bf16, q8_0, tq1_0, tq2_0, "
                   "q4_0 to q5_1, q2_k to q6_k, q1_0, q2_0, i2_s)",
                   tensor, name ? name : number);
}

static bt_code read_tensor_info(cursor *c, bt_stored *t, bt_err *err) {
    char *name = NULL;
    size_t n = 0;
    uint32_t dims = 0, type = 0;
    uint64_t size[4] = {1, 1, 1, 1}, count = 1;
    bt_code code = read_gguf_text(c, &name, &n, NAME_MAX_GGUF, "the name of a tensor", err);
    if (code == BT_OK) memcpy(t->name, name, n + 1);
    free(name);
    BT_TRY(code);
    BT_TRY(read_u32(c, &dims, err));
    if (dims < 1 || dims > 4)
        return bt_fail(err, BT_FORMAT, "tensor '%s' has %u dimensions, but 1 to 4 are possible",
                       t->name, dims);
    for (uint32_t i = 0; i < dims; i++) {
        BT_TRY(read_u64(c, &size[i], err));
        if (size[i] == 0 || size[i] > INT64_MAX || __builtin_mul_overflow(count, size[i], &count) ||
            count > INT64_MAX)
            return bt_fail(err, BT_FORMAT,
                           "tensor '%s': its size %u is %llu, which is not possible", t->name, i,
                           (unsigned long long)size[i]);
    }
    if (size[2] != 1 || size[3] != 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "tensor '%s' has %u dimensions, but only vectors and matrices are "
                       "supported",
                       t->name, dims);
    BT_TRY(read_u32(c, &type, err));
    BT_TRY(read_u64(c, &t->at, err));
    t->n_dims = dims > 1 ? 2 : 1;
    t->cols = size[0];
    t->rows = size[1];
    t->number = bt_number_of_ggml(type);
    if (t->number == BT_NUM_COUNT) return refuse_type(t->name, type, err);
    if (t->cols % bt_number_at(t->number)->block == 0 && !bt_stored_bytes(t, &t->bytes))
        return bt_fail(err, BT_FORMAT, "tensor '%s' would have more bytes than any file", t->name);
    if (!bt_stored_bytes(t, &t->bytes))
        return bt_fail(err, BT_FORMAT,
                       "tensor '%s' has rows of %llu elements, which is not a multiple of the %zu "
                       "elements in a block of %s",
                       t->name, (unsigned long long)t->cols, bt_number_at(t->number)->block,
                       bt_number_at(t->number)->word);
    if (t->number == BT_NUM_I2_S) t->bytes += BT_I2_S_TAIL;
    return BT_OK;
}

/* Checks that tensors are contiguous and each is padded to the alignment, as llama.cpp requires. */
static bt_code check_tensor_positions(bt_stored *t, size_t n, uint64_t data, uint64_t alignment,
                                      uint64_t end, bt_err *err) {
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i].at != at)
            return bt_fail(err, BT_FORMAT,
                           "tensor '%s' begins at byte %llu of the data, but the one before it "
                           "ends at %llu (overlap or hole)",
                           t[i].name, (unsigned long long)t[i].at, (unsigned long long)at);
        if (data > end || at > end - data || t[i].bytes > end - data - at)
            return bt_fail(err, BT_FORMAT,
                           "tensor '%s' reaches beyond the end of the file (truncated)", t[i].name);
        t[i].at += data;
        at = (at + t[i].bytes + alignment - 1) / alignment * alignment;
    }
    if (end > data && end - data > at)
        return bt_fail(err, BT_FORMAT, "%llu bytes follow its last tensor",
                       (unsigned long long)(end - data - at));
    return BT_OK;
}

/* Files of PrismML's fork have blocks of 128 elements under the number of ggml's Q2_0, whose blocks have 64. The
 * position of the next tensor, or the end of the file, shows which type they are. */
static void find_q2_0_blocks(bt_stored *t, size_t n, uint64_t data, uint64_t alignment,
                             uint64_t end) {
    size_t i = 0;
    while (i < n && t[i].number != BT_NUM_Q2_0) i++;
    if (i == n || end < data || t[i].cols % 128) return;
    bt_stored wide = t[i];
    wide.number = BT_NUM_Q2_0_128;
    const uint64_t room = (i + 1 < n ? t[i + 1].at : end - data) - t[i].at;
    if (!bt_stored_bytes(&wide, &wide.bytes) || room >= t[i].bytes || room < wide.bytes ||
        room - wide.bytes >= alignment)
        return;
    for (; i < n; i++)
        if (t[i].number == BT_NUM_Q2_0 && t[i].cols % 128 == 0) {
            t[i].number = BT_NUM_Q2_0_128;
            (void)bt_stored_bytes(&t[i], &t[i].bytes);
        }
}

/* A tensor of I2_S ends with 32 bytes that begin with its scale; they are listed as a tensor NAME.scale. */
static bt_code add_i2_s_scales(bt_stored_list *l, size_t first, bt_err *err) {
    static const char tail[] = ".weight";
    for (size_t i = first, n = l->n; i < n; i++) {
        const bt_stored *t = &l->at[i];
        const size_t k = strlen(t->name);
        bt_stored scale = {
            .number = BT_NUM_F32, .n_dims = 1, .rows = 1, .cols = 1, .file = t->file};
        if (t->number != BT_NUM_I2_S || k < sizeof tail ||
            strcmp(t->name + k - (sizeof tail - 1), tail) != 0)
            continue;
        (void)snprintf(scale.name, sizeof scale.name, "%.*s.scale", (int)(k - (sizeof tail - 1)),
                       t->name);
        scale.at = t->at + t->bytes - BT_I2_S_TAIL;
        scale.bytes = sizeof(float);
        BT_TRY(bt_stored_add(l, &scale, err));
    }
    return BT_OK;
}

static bt_code read_tensor_infos(const bt_gguf *g, cursor *c, bt_stored_list *l, uint64_t n,
                                 bt_err *err) {
    const bt_gguf_kv *kv = bt_gguf_find(g, "general.alignment");
    const uint64_t alignment = kv ? (uint64_t)kv->whole : ALIGNMENT;
    const size_t first = l->n;
    if (kv && (kv->type != BT_GGUF_U32 || alignment < 1 || alignment > ALIGNMENT_MAX ||
               (alignment & (alignment - 1)) != 0))
        return bt_fail(err, BT_FORMAT, "general.alignment is not a power of two up to %d",
                       ALIGNMENT_MAX);
    if (n > (c->f->bytes - c->at) / INFO_LEAST || n > BT_STORED_MAX)
        return bt_fail(err, BT_FORMAT,
                       "it has a count of %llu tensors, more than fit into the file",
                       (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        bt_stored t = {.file = g->file};
        BT_TRY(read_tensor_info(c, &t, err));
        BT_TRY(bt_stored_add(l, &t, err));
    }
    const uint64_t data = (c->at + alignment - 1) / alignment * alignment;
    if (n == 0) return BT_OK; /* The file contains only a vocabulary. */
    find_q2_0_blocks(l->at + first, l->n - first, data, alignment, c->f->bytes);
    BT_TRY(check_tensor_positions(l->at + first, l->n - first, data, alignment, c->f->bytes, err));
    BT_TRY(add_i2_s_scales(l, first, err));
    return bt_stored_sort(l, err);
}

static bt_code read_gguf_head(bt_gguf *g, cursor *c, bt_stored_list *l, bt_err *err) {
    char magic[4] = {0};
    uint32_t version = 0;
    uint64_t tensors = 0, keys = 0;
    if (c->f->bytes < 24 || read_file_bytes(c, magic, 4, err) != BT_OK ||
        memcmp(magic, "GGUF", 4) != 0)
        return bt_fail(
            err, BT_FORMAT,
            "it is not a GGUF file (for a checkpoint or a model of Hugging Face give the folder)");
    BT_TRY(read_u32(c, &version, err));
    if (version != 2 && version != 3)
        return bt_fail(err, BT_UNSUPPORTED,
                       "its version of GGUF is %u; versions 2 and 3 are supported", version);
    BT_TRY(read_u64(c, &tensors, err));
    BT_TRY(read_u64(c, &keys, err));
    BT_TRY(read_gguf_keys(g, c, keys, err));
    return read_tensor_infos(g, c, l, tensors, err);
}

bt_code bt_gguf_read(bt_gguf *g, bt_stored_list *l, const char *path, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    memset(g, 0, sizeof *g);
    BT_TRY(bt_stored_open(l, path, &g->file, err));
    cursor c = {.f = &l->files[g->file], .buf = malloc(BUFFER)};
    bt_code code = c.buf ? read_gguf_head(g, &c, l, &why)
                         : bt_fail(&why, BT_NOMEM, "cannot allocate memory to read it");
    free(c.buf);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "'%s' cannot be read: %s", path, why.msg);
}

void bt_gguf_release(bt_gguf *g) {
    for (size_t i = 0; i < g->n; i++) {
        free(g->kv[i].key);
        free(g->kv[i].text);
    }
    free(g->kv);
    memset(g, 0, sizeof *g);
}

const bt_gguf_kv *bt_gguf_find(const bt_gguf *g, const char *key) {
    for (size_t i = 0; i < g->n; i++)
        if (strcmp(g->kv[i].key, key) == 0) return &g->kv[i];
    return NULL;
}

const char *bt_gguf_text(const bt_gguf *g, const char *key) {
    const bt_gguf_kv *kv = bt_gguf_find(g, key);
    return kv ? kv->text : NULL;
}

bt_code bt_gguf_walk(const bt_gguf_kv *kv, const bt_foreign_file *f, bt_gguf_each each, void *ctx,
                     bt_err *err) {
    cursor c = {.f = f, .at = kv->at, .buf = malloc(BUFFER)};
    bt_code code = c.buf ? BT_OK
                         : bt_fail(err, BT_NOMEM, "cannot allocate memory for '%s'", kv->key);
    for (uint64_t i = 0; code == BT_OK && i < kv->count; i++) {
        char *text = NULL;
        size_t n = 0;
        int64_t whole = 0;
        double real;
        code = kv->element == BT_GGUF_TEXT ? read_gguf_text(&c, &text, &n, TEXT_MAX, "a text", err)
                                           : read_scalar(&c, kv->element, &whole, &real, err);
        if (code == BT_OK) code = each(ctx, i, text, n, whole, err);
        free(text);
    }
    free(c.buf);
    return code;
}
