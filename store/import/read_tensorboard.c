/* read_tensorboard.c - scalars of a TensorBoard event file (its format: store/export/tb_file.c).
 *
 * A scalar is a simple_value, or a tensor of one float or double (field 8: {1: dtype, 4: tensor_content, 5: float_val,
 * 6: double_val}). Everything else is skipped. A file whose last record is incomplete is being written, and is read up
 * to there. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/export/tb_file.h"
#include "store/import/foreign_run.h"

enum { RECORD_MOST = 64 << 20 };

typedef struct field { /* one field of a protobuf message */
    unsigned number, type;
    uint64_t varint;
    const unsigned char *data; /* bytes of a field of type 1, 2 or 5 */
    size_t n;
} field;

typedef struct message {
    const unsigned char *at, *end;
} message;

static bool read_varint(message *m, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        const unsigned char b = *m->at++;
        *out |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}

/* Returns false at the end, or at a byte that is not protobuf, which sets *bad. */
static bool read_protobuf_field(message *m, field *f, bool *bad) {
    uint64_t key, n;
    if (m->at == m->end) return false;
    *bad = true;
    if (!read_varint(m, &key)) return false;
    *f = (field){.number = (unsigned)(key >> 3), .type = (unsigned)(key & 7)};
    switch (f->type) {
    case 0:
        if (!read_varint(m, &f->varint)) return false;
        break;
    case 1: f->n = 8; break;
    case 2:
        if (!read_varint(m, &n) || n > (size_t)(m->end - m->at)) return false;
        f->n = (size_t)n;
        break;
    case 5: f->n = 4; break;
    default: return false;
    }
    if (f->n > (size_t)(m->end - m->at)) return false;
    f->data = m->at;
    m->at += f->n;
    *bad = false;
    return true;
}

static double load_float(const unsigned char *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return (double)v;
}

static double load_double(const unsigned char *p) {
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Returns the value of a tensor with one element; NaN: it has another number or type of elements. */
static double tensor_scalar(message m, bool *bad) {
    enum { FLOAT = 1, DOUBLE = 2 };
    uint64_t type = 0;
    field f, content = {0};
    while (read_protobuf_field(&m, &f, bad)) {
        if (f.number == 1 && f.type == 0) type = f.varint;
        if ((f.number >= 4 && f.number <= 6) && f.type != 0) content = f;
    }
    if (type == FLOAT && content.n == 4) return load_float(content.data);
    if (type == DOUBLE && content.n == 8) return load_double(content.data);
    return NAN;
}

static bool add_tensorboard_value(bt_foreign_run *r, message m, int64_t step, double wall_s,
                                  bool *bad) {
    char tag[160] = "";
    double value = NAN;
    field f;
    while (read_protobuf_field(&m, &f, bad)) {
        if (f.number == 1 && f.type == 2)
            snprintf(tag, sizeof tag, "%.*s", (int)(f.n < sizeof tag ? f.n : sizeof tag - 1),
                     (const char *)f.data);
        if (f.number == 2 && f.type == 5) value = load_float(f.data);
        if (f.number == 8 && f.type == 2)
            value = tensor_scalar((message){f.data, f.data + f.n}, bad);
    }
    if (*bad || !tag[0]) return true;
    return isnan(value) ? bt_foreign_run_unused(r, tag)
                        : bt_foreign_run_add(r, step, wall_s, tag, value);
}

static bool add_tensorboard_event(bt_foreign_run *r, message m, bool *bad) {
    double wall_s = NAN;
    int64_t step = 0;
    field f, v, summary = {0};
    while (read_protobuf_field(&m, &f, bad)) {
        if (f.number == 1 && f.type == 1) wall_s = load_double(f.data);
        if (f.number == 2 && f.type == 0) step = (int64_t)f.varint;
        if (f.number == 5 && f.type == 2) summary = f;
    }
    if (*bad || !summary.data) return true;
    message values = {summary.data, summary.data + summary.n};
    while (read_protobuf_field(&values, &v, bad))
        if (v.number == 1 && v.type == 2 &&
            !add_tensorboard_value(r, (message){v.data, v.data + v.n}, step, wall_s, bad))
            return false;
    return true;
}

static uint32_t masked_crc(const void *data, size_t n) {
    const uint32_t crc = bt_crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

/* Reads one record into *buf. *n 0: the file ends; *whole false: within a record. */
static bt_code read_record(FILE *f, unsigned char **buf, size_t *cap, size_t *n, bool *whole,
                           const char *path, bt_err *err) {
    unsigned char head[12], crc[4];
    uint64_t length;
    uint32_t sum;
    const size_t got = fread(head, 1, sizeof head, f);
    *n = 0;
    *whole = got == 0;
    if (got < sizeof head) return BT_OK;
    memcpy(&length, head, sizeof length);
    memcpy(&sum, head + 8, sizeof sum);
    if (sum != masked_crc(head, 8) || length > RECORD_MOST)
        return bt_fail(err, BT_FORMAT, "'%s' is damaged: the length of a record is wrong", path);
    if (length > *cap) {
        unsigned char *larger = realloc(*buf, (size_t)length);
        if (!larger) return bt_fail(err, BT_NOMEM, "no memory for '%s'", path);
        *buf = larger;
        *cap = (size_t)length;
    }
    if (fread(*buf, 1, (size_t)length, f) < length || fread(crc, 1, sizeof crc, f) < sizeof crc)
        return BT_OK;
    memcpy(&sum, crc, sizeof sum);
    if (sum != masked_crc(*buf, (size_t)length))
        return bt_fail(err, BT_FORMAT, "'%s' is damaged: the checksum of a record is wrong", path);
    *n = (size_t)length;
    *whole = true;
    return BT_OK;
}

bt_code bt_read_tensorboard(bt_foreign_run *r, const char *path, bt_err *err) {
    unsigned char *buf = NULL;
    size_t cap = 0, n = 1;
    bool whole = true, bad = false;
    FILE *f = fopen(path, "re");
    if (!f) return bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
    bt_code code = BT_OK;
    while (n && code == BT_OK) {
        code = read_record(f, &buf, &cap, &n, &whole, path, err);
        if (code == BT_OK && n && !add_tensorboard_event(r, (message){buf, buf + n}, &bad))
            code = bt_fail(err, BT_NOMEM, "no memory for '%s'", path);
        if (code == BT_OK && bad)
            code = bt_fail(err, BT_FORMAT, "'%s' is damaged: a record is not an event", path);
    }
    if (code == BT_OK && !whole)
        bt_text_printf(&r->notes,
                       "note: the last record of '%s' is incomplete; another program may be "
                       "writing it\n",
                       path);
    free(buf);
    (void)fclose(f);
    return code;
}
