/* vector_code.c - one tensor after the other. */
#include "engine/islands/rules/vector_code.h"

#include <stdint.h>
#include <string.h>

static bool coded(const bt_vector_code *c, const bt_tensor *x) {
    return c->codec->encode && x->rows > 1;
}

static size_t tensor_bytes(const bt_vector_code *c, const bt_tensor *x) {
    return coded(c, x) ? c->codec->bound(x->count) : x->count * sizeof(float);
}

size_t bt_vector_bytes(const bt_vector_code *c) {
    size_t sum = 0;
    for (size_t k = 0; k < c->params->n; k++) sum += tensor_bytes(c, &c->params->tensors[k]);
    return sum;
}

size_t bt_vector_encode(const bt_vector_code *c, void *out, const float *x, float *residual) {
    unsigned char *at = out;
    for (size_t k = 0; k < c->params->n; k++) {
        const bt_tensor *t = &c->params->tensors[k];
        if (coded(c, t))
            c->codec->encode(at, x + t->offset, t->count, residual ? residual + t->offset : NULL);
        else
            memcpy(at, x + t->offset, t->count * sizeof *x);
        at += tensor_bytes(c, t);
    }
    return (size_t)(at - (unsigned char *)out);
}

bool bt_vector_decode(const bt_vector_code *c, float *x, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    if (n != bt_vector_bytes(c)) return false;
    memset(x, 0, c->params->total * sizeof *x);
    for (size_t k = 0; k < c->params->n; k++) {
        const bt_tensor *t = &c->params->tensors[k];
        const size_t size = tensor_bytes(c, t);
        if (!coded(c, t))
            memcpy(x + t->offset, at, size);
        else if (!c->codec->decode(x + t->offset, t->count, at, size))
            return false;
        at += size;
    }
    return true;
}
