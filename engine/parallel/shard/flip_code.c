/* flip_code.c - encodes the gaps between changed fields in bits. */
#include "engine/parallel/shard/flip_code.h"

#include <string.h>

#include "engine/base/hash.h"

enum { LONGEST_PARAMETER = 24, FIELDS = 4 /* fields per byte */ };

typedef struct bit_writer {
    unsigned char *at, *end;
    uint64_t bits;
    unsigned have;
    bool full;
} bit_writer;

/* n <= 32 */
static void put_bits(bit_writer *w, uint32_t value, unsigned n) {
    w->bits |= (uint64_t)value << w->have;
    for (w->have += n; w->have >= 8; w->have -= 8, w->bits >>= 8) {
        if (w->at < w->end)
            *w->at++ = (unsigned char)w->bits;
        else
            w->full = true;
    }
}

static void flush_bits(bit_writer *w) {
    if (w->have > 0) put_bits(w, 0, 8 - w->have);
}

typedef struct bit_reader {
    const unsigned char *at, *end;
    uint64_t bits;
    unsigned have;
    bool over; /* true after a read beyond the end */
} bit_reader;

static uint32_t read_bits(bit_reader *r, unsigned n) {
    while (r->have < n) {
        r->over |= r->at == r->end;
        r->bits |= (uint64_t)(r->at < r->end ? *r->at++ : 0) << r->have;
        r->have += 8;
    }
    uint32_t value = (uint32_t)(r->bits & ((UINT64_C(1) << n) - 1));
    r->bits >>= n;
    r->have -= n;
    return value;
}

/* Returns the Golomb-Rice parameter for the mean gap: the exponent of the power of two near mean gap times ln 2. */
static unsigned golomb_rice_parameter(size_t fields, size_t flips) {
    double mean = (double)fields / (double)flips * 0.6931;
    unsigned k = 0;
    while (k < LONGEST_PARAMETER && (double)(UINT32_C(2) << k) <= mean) k++;
    return k;
}

static void put_gap(bit_writer *w, size_t gap, unsigned k) {
    for (size_t q = gap >> k; q > 0 && !w->full; q--) put_bits(w, 1, 1);
    put_bits(w, 0, 1);
    put_bits(w, (uint32_t)(gap & ((UINT32_C(1) << k) - 1)), k);
}

static size_t read_gap(bit_reader *r, unsigned k) {
    size_t q = 0;
    while (!r->over && read_bits(r, 1)) q++;
    return (q << k) + read_bits(r, k);
}

static unsigned field_at(const unsigned char *x, size_t i) {
    return x[i / FIELDS] >> i % FIELDS * 2 & 3;
}

/* Returns the first field from index i on that differs. */
static size_t next_change(const unsigned char *a, const unsigned char *b, size_t i, size_t fields) {
    while (i < fields) {
        if (i % 32 == 0 && fields - i >= 32 && memcmp(a + i / FIELDS, b + i / FIELDS, 8) == 0) {
            i += 32;
            continue;
        }
        if (i % FIELDS == 0 && a[i / FIELDS] == b[i / FIELDS]) {
            i += FIELDS;
            continue;
        }
        if (field_at(a, i) != field_at(b, i)) return i;
        i++;
    }
    return fields;
}

/* Returns 0 for a change to code zero or from zero to -1, and 1 for all other changes. */
static unsigned flip_direction(unsigned from, unsigned to) { return from == 1 ? to == 2 : to != 1; }
static unsigned changed_code(unsigned from, unsigned bit) {
    if (from == 1) return bit ? 2 : 0;
    return bit ? 2 - from : 1;
}

/* Returns the number of changed fields. BT_FLIPS_ALL: a field is not a ternary code, or more than half differ, so
 * that their gaps and bits are hardly shorter than all fields. */
static uint32_t count_flips(const unsigned char *from, const unsigned char *to, size_t fields) {
    uint32_t n = 0;
    for (size_t i = 0; (i = next_change(from, to, i, fields)) < fields; i++, n++)
        if (field_at(from, i) == 3 || field_at(to, i) == 3 || n > fields / 2) return BT_FLIPS_ALL;
    return n;
}

typedef struct head {
    uint32_t hash, bytes, flips;
} head;

static size_t seal_message(unsigned char *message, uint32_t flips, size_t body) {
    head h = {.bytes = (uint32_t)(body + sizeof h.flips), .flips = flips};
    memcpy(message, &h, sizeof h);
    h.hash = (uint32_t)XXH3_64bits(message + offsetof(head, flips), h.bytes);
    memcpy(message, &h, sizeof h);
    return sizeof h + body;
}

/* Returns the bytes of the body; 0 if it is not shorter than all fields. */
static size_t encode_flips(unsigned char *body, const unsigned char *from, const unsigned char *to,
                           size_t bytes, uint32_t flips) {
    size_t fields = bytes * FIELDS, after = 0;
    bit_writer w = {.at = body + 1, .end = body + bytes};
    unsigned k = golomb_rice_parameter(fields, flips);
    body[0] = (unsigned char)k;
    for (size_t i = 0; (i = next_change(from, to, i, fields)) < fields && !w.full; i++) {
        put_gap(&w, i - after, k);
        after = i + 1;
    }
    for (size_t i = 0; (i = next_change(from, to, i, fields)) < fields && !w.full; i++)
        put_bits(&w, flip_direction(field_at(from, i), field_at(to, i)), 1);
    flush_bits(&w);
    return w.full ? 0 : (size_t)(w.at - body);
}

size_t bt_flip_encode(unsigned char *message, const unsigned char *from, const unsigned char *to,
                      size_t bytes) {
    unsigned char *body = message + BT_FLIPS_HEAD;
    uint32_t flips = count_flips(from, to, bytes * FIELDS);
    if (flips == 0) return seal_message(message, 0, 0);
    size_t n = flips == BT_FLIPS_ALL || bytes < 2 ? 0 : encode_flips(body, from, to, bytes, flips);
    if (n > 0) return seal_message(message, flips, n);
    memcpy(body, to, bytes);
    return seal_message(message, BT_FLIPS_ALL, bytes);
}

static bool decode_flips(unsigned char *fields, size_t n, const unsigned char *body, size_t bytes,
                         uint32_t flips) {
    if (bytes == 0 || body[0] > LONGEST_PARAMETER || flips > n) return false;
    bit_reader gaps = {.at = body + 1, .end = body + bytes}, r = gaps;
    size_t i = 0;
    for (uint32_t k = 0; k < flips && !r.over; k++) (void)read_gap(&r, body[0]);
    for (uint32_t k = 0; k < flips; k++, i++) {
        i += read_gap(&gaps, body[0]);
        if (gaps.over || i >= n) return false;
        unsigned was = field_at(fields, i), is = changed_code(was, read_bits(&r, 1));
        if (was == 3 || r.over) return false;
        fields[i / FIELDS] = (unsigned char)(fields[i / FIELDS] ^ (was ^ is) << i % FIELDS * 2);
    }
    return true;
}

bool bt_flip_decode(unsigned char *fields, size_t bytes, const unsigned char *message,
                    size_t length) {
    head h;
    if (length < sizeof h) return false;
    memcpy(&h, message, sizeof h);
    size_t body = length - sizeof h;
    if (h.bytes != body + sizeof h.flips) return false;
    if (h.hash != (uint32_t)XXH3_64bits(message + offsetof(head, flips), h.bytes)) return false;
    if (h.flips == 0) return body == 0;
    if (h.flips != BT_FLIPS_ALL)
        return decode_flips(fields, bytes * FIELDS, message + sizeof h, body, h.flips);
    if (body != bytes) return false;
    memcpy(fields, message + sizeof h, bytes);
    return true;
}
