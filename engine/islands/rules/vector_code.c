/* vector_code.c - encodes and decodes tensor by tensor. */
#include "engine/islands/rules/vector_code.h"

#include <stdint.h>
#include <string.h>

static bool uses_codec(const bt_vector_code *c, const bt_tensor *x) {
    return c->codec->encode && x->rows > 1;
}

static size_t tensor_bytes(const bt_vector_code *c, const bt_tensor *x) {
    return uses_codec(c, x) ? c->codec->bound(x->count) : x->count * sizeof(float);
}

static size_t vector_end(const bt_vector_code *c) { return c->end ? c->end : c->params->n; }

/* Returns the tensor at which fragment k begins: the first one after k/of of the elements; each fragment has one. */
static size_t fragment_begin(const bt_params *p, size_t k, size_t of) {
    size_t at = 0, sum = 0;
    if (k == 0 || k == of) return k == 0 ? 0 : p->n;
    while (at < p->n && (double)sum < (double)p->count * (double)k / (double)of)
        sum += p->tensors[at++].count;
    const size_t least = fragment_begin(p, k - 1, of) + 1, most = p->n - (of - k);
    return at < least ? least : at > most ? most : at;
}

void bt_vector_fragment(bt_vector_code *c, int64_t k, int64_t of, size_t *begin, size_t *n) {
    c->first = fragment_begin(c->params, (size_t)k, (size_t)of);
    c->end = fragment_begin(c->params, (size_t)k + 1, (size_t)of);
    const bt_tensor *last = &c->params->tensors[c->end - 1];
    *begin = c->params->tensors[c->first].offset;
    *n = last->offset + last->count - *begin;
}

size_t bt_vector_bytes(const bt_vector_code *c) {
    size_t sum = 0;
    for (size_t k = c->first; k < vector_end(c); k++)
        sum += tensor_bytes(c, &c->params->tensors[k]);
    return sum;
}

size_t bt_vector_encode(const bt_vector_code *c, void *out, const float *x, float *residual) {
    unsigned char *at = out;
    for (size_t k = c->first; k < vector_end(c); k++) {
        const bt_tensor *t = &c->params->tensors[k];
        if (uses_codec(c, t))
            c->codec->encode(at, x + t->offset, t->count, residual ? residual + t->offset : NULL);
        else
            memcpy(at, x + t->offset, t->count * sizeof *x);
        at += tensor_bytes(c, t);
    }
    return (size_t)(at - (unsigned char *)out);
}

bool bt_vector_decode(const bt_vector_code *c, float *x, const void *bytes, size_t n) {
    if (n != bt_vector_bytes(c)) return false;
    memset(x, 0, c->params->total * sizeof *x);
    return bt_vector_decode_into(c, x, bytes, n);
}

bool bt_vector_decode_into(const bt_vector_code *c, float *x, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    if (n != bt_vector_bytes(c)) return false;
    for (size_t k = c->first; k < vector_end(c); k++) {
        const bt_tensor *t = &c->params->tensors[k];
        const size_t size = tensor_bytes(c, t);
        if (!uses_codec(c, t))
            memcpy(x + t->offset, at, size);
        else if (!c->codec->decode(x + t->offset, t->count, at, size))
            return false;
        at += size;
    }
    return true;
}
