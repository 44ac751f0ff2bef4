/* elastic.c - lists candidate layouts in order and checks each with the resolver. */
#include "engine/config/elastic.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 65536, INNER_MOST = 1024 };

bt_code bt_elastic_parse(const char *text, bt_elastic *out, bt_err *err) {
    char *end = NULL;
    *out = (bt_elastic){0, 0};
    if (!text[0]) return BT_OK;
    const long min = strtol(text, &end, 10);
    const char *colon = end;
    const long max = *colon == ':' ? strtol(colon + 1, &end, 10) : 0;
    const bool digits = strspn(text, "0123456789:") == strlen(text);
    if (!digits || colon == text || *colon != ':' || end == colon + 1 || *end || min < 1 ||
        max < min || max > RANKS_MOST)
        return bt_fail(err, BT_ARG,
                       "--elastic '%s' is not a range of ranks MIN:MAX with 1 <= MIN <= MAX <= %d, "
                       "such as 1:4",
                       text, RANKS_MOST);
    *out = (bt_elastic){(int)min, (int)max};
    return BT_OK;
}

int bt_elastic_ranks(const bt_elastic *range, const bt_elastic_host *hosts, size_t n) {
    int64_t slots = 0;
    for (size_t i = 0; i < n; i++)
        if (hosts[i].alive) slots += hosts[i].slots;
    if (slots > range->max) slots = range->max;
    return slots < range->min ? 0 : (int)slots;
}

/* Resets the settings that depend on the number of ranks; settings computed once for the whole run are kept. */
static void begin_candidate(bt_run_cfg *c, const bt_run_cfg *given, const bt_run_cfg *settled) {
    *c = *settled;
    c->launch.ranks = 0;
    c->launch.threads = given->launch.threads;
    c->train.accum = 0;
    c->parallel.gather = given->parallel.gather;
    /* explicit shares belong to the previous ranks */
    if (strcmp(given->parallel.balance, "even") != 0 &&
        strcmp(given->parallel.balance, "auto") != 0)
        snprintf(c->parallel.balance, sizeof c->parallel.balance, "even");
}

static bt_code resolve_candidate(bt_run_cfg *c, const bt_run_cfg *given, int ranks,
                                 int64_t micro_batch, bt_err *err) {
    const int64_t dp = ranks / (c->mesh.tp * c->mesh.pp);
    const bool both = given->mesh.zero > 0 && given->mesh.dp_replicate > 0 &&
                      given->mesh.dp_shard > 1;
    c->mesh.dp_replicate = 0;
    c->mesh.dp_shard = c->mesh.zero > 0 && dp > 1 ? dp : 1;
    if (c->mesh.zero > 0 && both && dp % given->mesh.dp_shard == 0)
        c->mesh.dp_shard = given->mesh.dp_shard;
    c->train.micro_batch = micro_batch;
    return bt_run_cfg_resolve(c, ranks, err);
}

/* Tries the given virtual stages and micro-batch, then another micro-batch, then one chunk of layers per stage. */
static bt_code try_layout(const bt_run_cfg *given, const bt_run_cfg *settled, int ranks,
                          const bt_layout_request *sizes, bt_run_cfg *out, bt_err *err) {
    const int64_t chunks[] = {sizes->pp > 1 ? given->parallel.virtual_stages : 1, 1};
    bt_err why = BT_ERR_INIT;
    bt_code code = BT_ARG;
    for (int way = chunks[0] > 1 ? 0 : 1; way < 2; way++) {
        for (int pass = given->train.micro_batch ? 0 : 1; pass < 2; pass++) {
            begin_candidate(out, given, settled);
            out->mesh.tp = sizes->tp;
            out->mesh.pp = sizes->pp;
            out->parallel.virtual_stages = chunks[way];
            if (sizes->zero >= 0) out->mesh.zero = sizes->zero;
            why = (bt_err)BT_ERR_INIT;
            code = resolve_candidate(out, given, ranks, pass ? 0 : given->train.micro_batch, &why);
            if (code == BT_OK) return BT_OK;
        }
    }
    if (err) *err = why;
    return code;
}

typedef struct sizes {
    int tp, pp;
    double away; /* distance from the original sizes, in doublings */
} sizes;

static int compare_size_distance(const void *a, const void *b) {
    const sizes *x = a, *y = b;
    if (x->away != y->away) return x->away < y->away ? -1 : 1;
    if (x->tp * x->pp != y->tp * y->pp) return x->tp * x->pp - y->tp * y->pp;
    return y->tp - x->tp;
}

/* Returns true if an axis may have this size: the requested size, or without a request a divisor of the original one. A
 * run never becomes a pipeline without a request. */
static bool is_allowed_size(int size, int asked, int64_t given) {
    return asked ? size == asked : given % size == 0;
}

/* Lists all allowed sizes (tp, pp) that divide the ranks, the nearest first. */
static sizes *list_candidate_sizes(const bt_layout_request *w, const bt_run_cfg *given, int ranks,
                                   size_t *n) {
    size_t room = 16;
    sizes *list = malloc(room * sizeof *list);
    *n = 0;
    for (int tp = 1; list && tp <= ranks && tp <= INNER_MOST; tp++) {
        if (ranks % tp != 0 || !is_allowed_size(tp, w->tp, given->mesh.tp)) continue;
        for (int pp = 1; pp <= ranks / tp && pp <= INNER_MOST; pp++) {
            if (ranks / tp % pp != 0 || !is_allowed_size(pp, w->pp, given->mesh.pp)) continue;
            if (*n == room) {
                sizes *more = realloc(list, (room *= 2) * sizeof *list);
                if (!more) break;
                list = more;
            }
            list[(*n)++] = (sizes){tp, pp,
                                   fabs(log2((double)tp / (double)given->mesh.tp)) +
                                       fabs(log2((double)pp / (double)given->mesh.pp))};
        }
    }
    if (list) qsort(list, *n, sizeof *list, compare_size_distance);
    return list;
}

static bt_code nearest_layout(const bt_run_cfg *given, const bt_run_cfg *settled, int ranks,
                              const bt_layout_request *w, bt_run_cfg *out, bt_err *err) {
    size_t n;
    sizes *list = list_candidate_sizes(w, given, ranks, &n);
    if (!list)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the layouts of %d ranks", ranks);
    bt_code code = BT_ARG;
    if (n == 0)
        bt_fail(err, BT_ARG, "--tp %d x --pp %d do not divide %d ranks",
                w->tp ? w->tp : (int)given->mesh.tp, w->pp ? w->pp : (int)given->mesh.pp, ranks);
    for (size_t i = 0; i < n && code != BT_OK; i++) {
        const bt_layout_request one = {.tp = list[i].tp, .pp = list[i].pp, .zero = w->zero};
        /* if no candidate is legal, the caller receives the error of the nearest one */
        code = try_layout(given, settled, ranks, &one, out, i == 0 ? err : NULL);
    }
    free(list);
    return code;
}

bt_code bt_elastic_layout(const bt_run_cfg *given, const bt_run_cfg *settled,
                          const bt_layout_request *w, bt_run_cfg *out, bt_err *err) {
    const bt_layout_request kept = {.tp = w->tp ? w->tp : (int)given->mesh.tp,
                                    .pp = w->pp ? w->pp : (int)given->mesh.pp,
                                    .zero = w->zero};
    bt_err first = BT_ERR_INIT, none;
    for (int ranks = w->most; ranks >= w->least; ranks--) {
        if (ranks % (kept.tp * kept.pp) != 0) continue;
        if (try_layout(given, settled, ranks, &kept, out, NULL) == BT_OK) return BT_OK;
    }
    for (int ranks = w->most; ranks >= w->least; ranks--)
        if (nearest_layout(given, settled, ranks, w, out, ranks == w->most ? &first : &none) ==
            BT_OK)
            return BT_OK;
    if (err) *err = first;
    return first.code != BT_OK ? first.code : BT_ARG;
}

bool bt_elastic_same(const bt_run_cfg *a, const bt_run_cfg *b) {
    return a->launch.ranks == b->launch.ranks && a->mesh.tp == b->mesh.tp &&
           a->mesh.pp == b->mesh.pp && a->parallel.virtual_stages == b->parallel.virtual_stages &&
           a->mesh.zero == b->mesh.zero && a->mesh.dp_shard == b->mesh.dp_shard &&
           a->mesh.dp_replicate == b->mesh.dp_replicate;
}

const char *bt_elastic_describe(const bt_run_cfg *c, char *buf, size_t size) {
    const struct {
        const char *name;
        int64_t n;
    } axes[] = {
        {"tp", c->mesh.tp}, {"pp", c->mesh.pp}, {"dp", c->mesh.dp_replicate * c->mesh.dp_shard}};
    size_t at = (size_t)snprintf(buf, size, "%" PRId64 " rank%s", c->launch.ranks,
                                 c->launch.ranks == 1 ? "" : "s");
    const char *between = ": ";
    for (size_t i = 0; c->launch.ranks > 1 && i < sizeof axes / sizeof *axes && at < size; i++) {
        if (axes[i].n == 1) continue;
        at += (size_t)snprintf(buf + at, size - at, "%s%s %" PRId64, between, axes[i].name,
                               axes[i].n);
        if (i == 1 && c->parallel.virtual_stages > 1 && at < size)
            at += (size_t)snprintf(buf + at, size - at, " (%" PRId64 " virtual)",
                                   c->parallel.virtual_stages);
        between = " x ";
    }
    if (c->mesh.zero > 0 && at < size)
        snprintf(buf + at, size - at, ", zero %" PRId64, c->mesh.zero);
    return buf;
}
