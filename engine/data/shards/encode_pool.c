/* encode_pool.c - a ring of batches: the caller adds and removes them in order, and threads encode the oldest ones. */
#include "engine/data/shards/encode_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/os/processors.h"

enum { RING = BT_ENCODE_THREADS_MAX + 2 };

typedef struct ring_slot {
    bt_encode_batch b; /* must be first, because a pointer to it is converted to its slot */
    size_t parts_cap, ids_cap, n_ids;
    int32_t *one; /* ids of one text */
    size_t one_cap;
    bool encoded;
    bt_code code;
    bt_err err;
} ring_slot;

struct bt_encode_pool {
    const bt_tokenizer *t;
    ring_slot slots[RING];
    uint64_t size;  /* slots in use: threads + 2, or 1 for one thread */
    uint64_t taken; /* number of recycled batches; batch i is in slot i % size */
    uint64_t begun, sent;
    pthread_t threads[BT_ENCODE_THREADS_MAX];
    int n_threads; /* threads besides the caller's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t claimed; /* number of batches whose encoding has begun; guarded by the lock */
    bool quit;        /* guarded by the lock */
};

int bt_encode_threads_allowed(void) {
    cpu_set_t set;
    const int n = bt_processors_allowed(&set);
    return n < 1 ? 1 : n > BT_ENCODE_THREADS_MAX ? BT_ENCODE_THREADS_MAX : n;
}

static bt_code encode_part(const bt_encode_pool *p, ring_slot *s, const char *text,
                           bt_encode_part *part, bt_err *err) {
    BT_TRY(bt_tokenizer_encode(p->t, text, part->n, &s->one, &part->n_ids, &s->one_cap, err));
    if (s->n_ids + part->n_ids > s->ids_cap) {
        const size_t cap = s->n_ids + part->n_ids + s->b.text.len / 3 + 256;
        int32_t *ids = realloc(s->b.ids, cap * sizeof *ids);
        if (!ids) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu token ids", cap);
        s->b.ids = ids;
        s->ids_cap = cap;
    }
    if (part->n_ids) memcpy(s->b.ids + s->n_ids, s->one, part->n_ids * sizeof *s->one);
    s->n_ids += part->n_ids;
    return BT_OK;
}

static void encode_batch(const bt_encode_pool *p, ring_slot *s) {
    const char *text = bt_text_str(&s->b.text);
    s->code = BT_OK;
    s->n_ids = 0;
    for (size_t i = 0; s->code == BT_OK && i < s->b.n_parts; text += s->b.parts[i++].n)
        if (s->b.parts[i].n) s->code = encode_part(p, s, text, &s->b.parts[i], &s->err);
}

/* Encodes the oldest batch that is not encoded. The caller holds the lock, which is released during encoding. */
static void encode_next(bt_encode_pool *p) {
    ring_slot *s = &p->slots[p->claimed++ % p->size];
    pthread_mutex_unlock(&p->lock);
    encode_batch(p, s);
    pthread_mutex_lock(&p->lock);
    s->encoded = true;
    pthread_cond_broadcast(&p->changed);
}

static void *encode_thread(void *arg) {
    bt_encode_pool *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        if (p->claimed < p->sent)
            encode_next(p);
        else
            pthread_cond_wait(&p->changed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The threads block all signals, so that signals reach the caller's thread. */
static void start_threads(bt_encode_pool *p, int threads) {
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
    while (p->n_threads + 1 < threads &&
           pthread_create(&p->threads[p->n_threads], NULL, encode_thread, p) == 0)
        p->n_threads++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bt_code bt_encode_pool_create(bt_encode_pool **out, const bt_tokenizer *t, int threads,
                              bt_err *err) {
    bt_encode_pool *p = *out = calloc(1, sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "cannot allocate memory to encode text");
    p->t = t;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (threads > BT_ENCODE_THREADS_MAX) threads = BT_ENCODE_THREADS_MAX;
    p->size = threads > 1 ? (uint64_t)threads + 2 : 1;
    start_threads(p, threads);
    return BT_OK;
}

bool bt_encode_pool_full(const bt_encode_pool *p) { return p->begun - p->taken == p->size; }
bool bt_encode_pool_empty(const bt_encode_pool *p) { return p->begun == p->taken; }

bt_encode_batch *bt_encode_pool_begin(bt_encode_pool *p) {
    ring_slot *s = &p->slots[p->begun++ % p->size];
    bt_text_clear(&s->b.text);
    s->b.n_parts = 0;
    s->encoded = false;
    return &s->b;
}

bt_code bt_encode_batch_add(bt_encode_batch *b, const char *text, size_t n, unsigned tag,
                            bt_err *err) {
    ring_slot *s = (ring_slot *)b;
    if (b->n_parts == s->parts_cap) {
        const size_t cap = s->parts_cap ? 2 * s->parts_cap : 64;
        bt_encode_part *parts = realloc(b->parts, cap * sizeof *parts);
        if (!parts) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu texts", cap);
        b->parts = parts;
        s->parts_cap = cap;
    }
    bt_text_putn(&b->text, text, n);
    if (b->text.failed)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu bytes of text",
                       b->text.len + n);
    b->parts[b->n_parts++] = (bt_encode_part){.n = n, .tag = tag};
    return BT_OK;
}

void bt_encode_pool_send(bt_encode_pool *p) {
    pthread_mutex_lock(&p->lock);
    p->sent = p->begun;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

bt_code bt_encode_pool_take(bt_encode_pool *p, bt_encode_batch **out, bt_err *err) {
    ring_slot *s = &p->slots[p->taken % p->size];
    *out = &s->b;
    pthread_mutex_lock(&p->lock);
    while (!s->encoded) {
        if (p->claimed < p->sent)
            encode_next(p);
        else
            pthread_cond_wait(&p->changed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    if (s->code != BT_OK && err) *err = s->err;
    return s->code;
}

void bt_encode_pool_recycle(bt_encode_pool *p) { p->taken++; }

void bt_encode_pool_destroy(bt_encode_pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    for (int i = 0; i < RING; i++) {
        bt_text_release(&p->slots[i].b.text);
        free(p->slots[i].b.parts);
        free(p->slots[i].b.ids);
        free(p->slots[i].one);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
