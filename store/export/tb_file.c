/* tb_file.c - TFRecord framing, and the protobuf messages of TensorBoard's summaries.
 *
 * record   u64 length, u32 masked CRC32C of the length, payload, u32 masked CRC32C of the payload
 *          (little endian)
 * Event    {1: wall_time double, 2: step varint, 3: file_version string, 5: Summary{1: Value}}
 * Value    {1: tag, 2: simple_value float, 5: histo, 8: tensor, 9: metadata{1: plugin{1: name,
 *          2: content}}}
 * histo    {1: min, 2: max, 3: num, 4: sum, 5: sum_squares, 6: bucket_limit, 7: bucket (both packed)}
 * tensor   {1: dtype (1 float, 7 string), 2: shape{2: dim{1: size}}, 8: string_val}
 * hparams  the plugin's content: {1: version, 3: session_start{1: map, 4: group, 5: start time},
 *          4: session_end{1: status, 2: end time}}
 * (tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.cc,
 * tensorboard/plugins/hparams/plugin_data.proto) */
#include "store/export/tb_file.h"

#include <math.h>
#include <string.h>

uint32_t bt_crc32c(const void *data, size_t n) {
    static uint32_t table[256];
    const unsigned char *p = data;
    uint32_t crc = 0xFFFFFFFFu;
    if (!table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
            table[i] = c;
        }
    }
    while (n--) crc = table[(crc ^ *p++) & 0xFF] ^ (crc >> 8);
    return crc ^ 0xFFFFFFFFu;
}

static uint32_t masked_crc(const void *data, size_t n) {
    uint32_t crc = bt_crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

static void put_varint(bt_text *m, uint64_t v) {
    do {
        const char b = (char)((v & 0x7F) | (v > 0x7F ? 0x80 : 0));
        bt_text_putn(m, &b, 1);
        v >>= 7;
    } while (v);
}

static void put_uint(bt_text *m, unsigned field, uint64_t v) {
    put_varint(m, field << 3);
    put_varint(m, v);
}

static void put_field_bytes(bt_text *m, unsigned field, const void *p, size_t n) {
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    bt_text_putn(m, p, n);
}

static void put_field_string(bt_text *m, unsigned field, const char *s) {
    put_field_bytes(m, field, s, strlen(s));
}

static void put_field_message(bt_text *m, unsigned field, const bt_text *inner) {
    put_field_bytes(m, field, inner->data, inner->len);
}

static void put_double(bt_text *m, unsigned field, double v) {
    put_varint(m, field << 3 | 1);
    bt_text_putn(m, (const char *)&v, sizeof v);
}

static void put_float(bt_text *m, unsigned field, float v) {
    put_varint(m, field << 3 | 5);
    bt_text_putn(m, (const char *)&v, sizeof v);
}

enum { EVENT, SUMMARY, VALUE, INNER, INMOST };

static bt_text *clear_message_part(bt_tb_file *t, int depth) {
    bt_text_clear(&t->part[depth]);
    return &t->part[depth];
}

static void write_record(FILE *f, const bt_text *m) {
    uint64_t n = m->len;
    uint32_t head = masked_crc(&n, sizeof n), tail = masked_crc(m->data, m->len);
    fwrite(&n, sizeof n, 1, f);
    fwrite(&head, sizeof head, 1, f);
    fwrite(m->data, 1, m->len, f);
    fwrite(&tail, sizeof tail, 1, f);
}

/* Writes the value in part[VALUE]. */
static void write_value(bt_tb_file *t, bt_tb_at at) {
    bt_text *summary = clear_message_part(t, SUMMARY), *event = clear_message_part(t, EVENT);
    put_field_message(summary, 1, &t->part[VALUE]);
    put_double(event, 1, at.wall_s);
    put_uint(event, 2, (uint64_t)at.step);
    put_field_message(event, 5, summary);
    if (!bt_tb_failed(t)) write_record(t->f, event);
}

void bt_tb_init(bt_tb_file *t, FILE *f, double wall_s) {
    memset(t, 0, sizeof *t);
    t->f = f;
    bt_text *event = clear_message_part(t, EVENT);
    put_double(event, 1, wall_s);
    put_field_string(event, 3, "brain.Event:2");
    if (!event->failed) write_record(f, event);
}

void bt_tb_release(bt_tb_file *t) {
    for (size_t i = 0; i < sizeof t->part / sizeof *t->part; i++) bt_text_release(&t->part[i]);
}

bool bt_tb_failed(const bt_tb_file *t) {
    for (size_t i = 0; i < sizeof t->part / sizeof *t->part; i++)
        if (t->part[i].failed) return true;
    return false;
}

void bt_tb_scalar(bt_tb_file *t, bt_tb_at at, const char *tag, double value) {
    bt_text *v = clear_message_part(t, VALUE);
    put_field_string(v, 1, tag);
    put_float(v, 2, (float)value);
    write_value(t, at);
}

/* Writes the plugin that draws the value, with its own data. */
static void put_plugin(bt_tb_file *t, const char *name, const bt_text *content) {
    bt_text *plugin = clear_message_part(t, SUMMARY), *metadata = clear_message_part(t, EVENT);
    put_field_string(plugin, 1, name);
    if (content) put_field_message(plugin, 2, content);
    put_field_message(metadata, 1, plugin);
    put_field_message(&t->part[VALUE], 9, metadata);
}

void bt_tb_text(bt_tb_file *t, bt_tb_at at, const char *tag, const char *text) {
    bt_text *v = clear_message_part(t, VALUE), *tensor = clear_message_part(t, INNER),
            *shape = clear_message_part(t, INMOST);
    put_field_string(v, 1, tag);
    put_uint(tensor, 1, 7);
    put_field_string(shape, 2, "\x08\x01"); /* one dimension of size 1 */
    put_field_message(tensor, 2, shape);
    put_field_string(tensor, 8, text);
    put_field_message(v, 8, tensor);
    put_plugin(t, "text", NULL);
    write_value(t, at);
}

static void put_field_packed(bt_text *m, unsigned field, const double *v, size_t n) {
    put_field_bytes(m, field, v, n * sizeof *v);
}

void bt_tb_histogram(bt_tb_file *t, bt_tb_at at, const char *tag, const bt_tb_bins *bins) {
    double limit[BT_TB_BINS], count[BT_TB_BINS], num = 0, sum = 0, squares = 0, lower = bins->least;
    double least = NAN;
    size_t n = 0;
    for (int i = 0; i < bins->n; lower = bins->limit[i++]) {
        const double middle = (lower + bins->limit[i]) / 2, c = bins->count[i];
        if (!(c > 0) && n == 0) continue;
        if (n == 0) least = lower;
        limit[n] = bins->limit[i];
        count[n++] = c > 0 ? c : 0;
        if (!(c > 0)) continue;
        num += c;
        sum += c * middle;
        squares += c * middle * middle;
    }
    while (n > 0 && !(count[n - 1] > 0)) n--;
    if (n == 0) return;
    bt_text *v = clear_message_part(t, VALUE), *histo = clear_message_part(t, INNER);
    put_double(histo, 1, least);
    put_double(histo, 2, limit[n - 1]);
    put_double(histo, 3, num);
    put_double(histo, 4, sum);
    put_double(histo, 5, squares);
    put_field_packed(histo, 6, limit, n);
    put_field_packed(histo, 7, count, n);
    put_field_string(v, 1, tag);
    put_field_message(v, 5, histo);
    write_value(t, at);
}

/* Requires the content in part[INNER]. */
static void write_session(bt_tb_file *t, double wall_s, const char *tag) {
    bt_text *v = clear_message_part(t, VALUE), *tensor = clear_message_part(t, INMOST);
    put_field_string(v, 1, tag);
    put_uint(tensor, 1, 1);
    put_field_bytes(tensor, 2, "\x12\x00", 2); /* a dimension of size 0: no value */
    put_field_message(v, 8, tensor);
    put_plugin(t, "hparams", &t->part[INNER]);
    write_value(t, (bt_tb_at){wall_s, 0});
}

void bt_tb_settings(bt_tb_file *t, double wall_s, const char *run, const bt_tb_setting *s,
                    size_t n) {
    bt_text *start = clear_message_part(t, INMOST), *entry = clear_message_part(t, VALUE),
            *v = clear_message_part(t, SUMMARY);
    for (size_t i = 0; i < n; i++) {
        bt_text_clear(entry);
        bt_text_clear(v);
        if (s[i].text)
            put_field_string(v, 3, s[i].text);
        else
            put_double(v, 2, s[i].number);
        put_field_string(entry, 1, s[i].name);
        put_field_message(entry, 2, v);
        put_field_message(start, 1, entry);
    }
    put_field_string(start, 4, run);
    put_double(start, 5, wall_s);
    bt_text *content = clear_message_part(t, INNER);
    put_uint(content, 1, 0);
    put_field_message(content, 3, start);
    write_session(t, wall_s, "_hparams_/session_start_info");
}

void bt_tb_ended(bt_tb_file *t, double wall_s, bt_tb_status status) {
    bt_text *end = clear_message_part(t, INMOST), *content = clear_message_part(t, INNER);
    put_uint(end, 1, status);
    put_double(end, 2, wall_s);
    put_uint(content, 1, 0);
    put_field_message(content, 4, end);
    write_session(t, wall_s, "_hparams_/session_end_info");
}
