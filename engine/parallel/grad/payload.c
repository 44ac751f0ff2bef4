/* payload.c - seals payloads and cuts them at tensors. */
#include "engine/parallel/grad/payload.h"

#include <stdint.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"

enum { BLOCK = 1024 };

typedef struct seal {
    uint32_t hash, bytes;
} seal;

/* the elements of one tensor within a range */
typedef struct share {
    bt_range range;
    bool plain;
    size_t bytes;
} share;

static size_t payload_range_length(bt_range r) { return r.end - r.begin; }

static size_t first_tensor(const bt_payload_form *f, size_t begin) {
    size_t lo = 0, hi = f->n_tensors;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (f->tensors[mid].range.end <= begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Returns the next tensor's share of r; *k is 0 at first. Returns false if there is none. */
static bool next_share(const bt_payload_form *f, bt_range r, size_t *k, share *s) {
    if (!f->tensors || f->codec->state_bytes == 0) {
        *s = (share){r, false, f->codec->bound(payload_range_length(r))};
        return (*k)++ == 0 && payload_range_length(r) > 0;
    }
    size_t i = *k ? *k - 1 : first_tensor(f, r.begin);
    if (i >= f->n_tensors || f->tensors[i].range.begin >= r.end) return false;
    const bt_payload_tensor *t = &f->tensors[i];
    *k = i + 2;
    s->range = (bt_range){bt_max_size(t->range.begin, r.begin), bt_min_size(t->range.end, r.end)};
    s->plain = t->plain;
    s->bytes = t->plain ? payload_range_length(s->range) * sizeof(float)
                        : f->codec->bound(payload_range_length(s->range));
    return true;
}

bt_payload_form bt_payload_form_back(const bt_payload_form *f) {
    bt_payload_form back = *f;
    if (f->codec->back) back.codec = f->codec->back;
    return back;
}

size_t bt_payload_bound(const bt_payload_form *f, bt_range r) {
    share s;
    size_t bytes = sizeof(seal);
    if (!f->codec->sealed) return f->codec->bound(payload_range_length(r));
    for (size_t k = 0; next_share(f, r, &k, &s);) bytes += s.bytes;
    return bytes;
}

/* Encodes as fp32 and adds the residual. */
static void encode_plain(unsigned char *to, const float *x, size_t n, float *owed) {
    memcpy(to, x, n * sizeof *x);
    for (size_t i = 0; owed && i < n; i++) {
        float v = x[i] + owed[i];
        memcpy(to + i * sizeof v, &v, sizeof v);
        owed[i] = 0;
    }
}

static void add_plain(float *into, size_t n, const unsigned char *from) {
    float block[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        memcpy(block, from + i * sizeof *block, m * sizeof *block);
        bt_active_kernels()->add(into + i, block, m);
    }
}

size_t bt_payload_encode(const bt_payload_form *f, void *payload, const float *x, bt_range r,
                         void *state) {
    const bt_codec *c = f->codec;
    unsigned char *to = (unsigned char *)payload + sizeof(seal), *bytes = state;
    share s;
    if (!c->sealed)
        return c->encode(payload, x, payload_range_length(r),
                         state ? bytes + r.begin * c->state_bytes : NULL);
    for (size_t k = 0; next_share(f, r, &k, &s);) {
        const float *from = x + (s.range.begin - r.begin);
        void *owed = state ? bytes + s.range.begin * c->state_bytes : NULL;
        if (s.plain)
            encode_plain(to, from, payload_range_length(s.range), owed);
        else
            s.bytes = c->encode(to, from, payload_range_length(s.range), owed);
        to += s.bytes;
    }
    size_t n = (size_t)(to - (unsigned char *)payload) - sizeof(seal);
    const seal head = {(uint32_t)XXH3_64bits((unsigned char *)payload + sizeof head, n),
                       (uint32_t)n};
    memcpy(payload, &head, sizeof head);
    return n + sizeof head;
}

static bool is_whole_payload(const bt_payload_form *f, bt_range r, const void *payload,
                             size_t bytes) {
    seal head;
    size_t most = bt_payload_bound(f, r);
    if (bytes < sizeof head || bytes > most) return false;
    if (f->codec->state_bytes && bytes != most) return false;
    memcpy(&head, payload, sizeof head);
    const unsigned char *body = (const unsigned char *)payload + sizeof head;
    return head.bytes == bytes - sizeof head &&
           head.hash == (uint32_t)XXH3_64bits(body, head.bytes);
}

bool bt_payload_decode(const bt_payload_form *f, float *x, bt_range r, const void *payload,
                       size_t bytes) {
    const unsigned char *from = (const unsigned char *)payload + sizeof(seal);
    share s;
    if (!f->codec->sealed) return f->codec->decode(x, payload_range_length(r), payload, bytes);
    if (!is_whole_payload(f, r, payload, bytes)) return false;
    if (f->codec->state_bytes) memset(x, 0, payload_range_length(r) * sizeof *x); /* padding */
    bool good = true;
    for (size_t k = 0; next_share(f, r, &k, &s); from += s.bytes) {
        float *to = x + (s.range.begin - r.begin);
        if (!f->codec->state_bytes) s.bytes = bytes - sizeof(seal);
        if (s.plain)
            memcpy(to, from, s.bytes);
        else
            good &= f->codec->decode(to, payload_range_length(s.range), from, s.bytes);
    }
    return good;
}

bool bt_payload_decode_add(const bt_payload_form *f, float *into, bt_range r, const void *payload,
                           size_t bytes) {
    const unsigned char *from = (const unsigned char *)payload + sizeof(seal);
    share s;
    if (!f->codec->sealed)
        return f->codec->decode_add(into, payload_range_length(r), payload, bytes);
    if (!is_whole_payload(f, r, payload, bytes)) return false;
    bool good = true;
    for (size_t k = 0; next_share(f, r, &k, &s); from += s.bytes) {
        float *to = into + (s.range.begin - r.begin);
        if (!f->codec->state_bytes) s.bytes = bytes - sizeof(seal);
        if (s.plain)
            add_plain(to, payload_range_length(s.range), from);
        else
            good &= f->codec->decode_add(to, payload_range_length(s.range), from, s.bytes);
    }
    return good;
}
