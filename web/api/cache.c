/* cache.c - keeps a few responses by key and evicts the oldest. */
#include "web/api/cache.h"

#include <stdlib.h>
#include <string.h>

typedef struct kept {
    bt_text key;
    bt_answer answer;
    int64_t version, made_ns;
} kept;

struct bt_cache {
    kept entry[BT_CACHE_ANSWERS];
    bt_text key;
    int next;
};

bt_cache *bt_cache_open(void) { return calloc(1, sizeof(bt_cache)); }

void bt_cache_close(bt_cache *c) {
    if (!c) return;
    for (int i = 0; i < BT_CACHE_ANSWERS; i++) {
        bt_text_release(&c->entry[i].key);
        bt_text_release(&c->entry[i].answer.body);
    }
    bt_text_release(&c->key);
    free(c);
}

/* Empties a text, including one that failed for lack of memory. */
static void empty_cached_text(bt_text *t) {
    if (t->failed)
        bt_text_release(t);
    else
        bt_text_clear(t);
}

static void compose_cache_key(bt_text *key, const bt_req *r) {
    empty_cached_text(key);
    bt_text_put(key, r->path);
    for (int i = 0; i < r->n_args; i++) {
        /* The number of arguments is part of the key, so that no argument can imitate another key. */
        bt_text_put(key, "\n");
        bt_text_printf(key, "%zu %zu ", strlen(r->arg[i].key), strlen(r->arg[i].value));
        bt_text_put(key, r->arg[i].key);
        bt_text_put(key, r->arg[i].value);
    }
}

const bt_answer *bt_cache_find(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns) {
    if (!c) return NULL;
    compose_cache_key(&c->key, r);
    for (int i = 0; i < BT_CACHE_ANSWERS; i++) {
        const kept *k = &c->entry[i];
        if (k->version == version && now_ns - k->made_ns < BT_CACHE_NS && k->made_ns &&
            !c->key.failed && strcmp(bt_text_str(&k->key), bt_text_str(&c->key)) == 0)
            return &k->answer;
    }
    return NULL;
}

void bt_cache_keep(bt_cache *c, const bt_req *r, int64_t version, int64_t now_ns,
                   const bt_answer *a) {
    if (!c || a->status != 200 || a->body.failed || a->body.len > BT_CACHE_BYTES) return;
    kept *k = &c->entry[c->next];
    c->next = (c->next + 1) % BT_CACHE_ANSWERS;
    compose_cache_key(&k->key, r);
    empty_cached_text(&k->answer.body);
    bt_text_putn(&k->answer.body, bt_text_str(&a->body), a->body.len);
    k->answer.status = a->status;
    k->answer.type = a->type;
    k->version = version;
    k->made_ns = k->key.failed || k->answer.body.failed ? 0 : now_ns;
}
