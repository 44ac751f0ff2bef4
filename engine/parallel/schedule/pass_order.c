/* pass_order.c - 1F1B, and the interleaved order of several chunks. */
#include "engine/parallel/schedule/pass_order.h"

static int64_t smaller_i64(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t forwards(const bt_pass_order *o) { return o->chunks * o->micros; }

int64_t bt_pass_count(const bt_pass_order *o) { return 2 * forwards(o); }

/* Returns the number of forward passes before the first backward pass. */
static int64_t passes_ahead(const bt_pass_order *o) {
    const int64_t behind = o->stages - 1 - o->stage;
    return smaller_i64(forwards(o),
                       o->chunks == 1 ? behind : 2 * behind + (int64_t)(o->chunks - 1) * o->stages);
}

bt_pass bt_pass_forward(const bt_pass_order *o, int64_t k) {
    const int64_t round = (int64_t)o->chunks * o->stages, first = k / round * o->stages,
                  together = smaller_i64(o->stages, o->micros - first), at = k % round;
    return (bt_pass){.chunk = (int)(at / together), .micro = first + at % together};
}

static bt_pass kth_backward(const bt_pass_order *o, int64_t k) {
    bt_pass p = bt_pass_forward(o, k);
    p.backward = true;
    p.chunk = o->chunks - 1 - p.chunk;
    return p;
}

bt_pass bt_pass_at(const bt_pass_order *o, int64_t i) {
    const int64_t ahead = passes_ahead(o), paired = forwards(o) - ahead;
    if (i < ahead) return bt_pass_forward(o, i);
    i -= ahead;
    if (i >= 2 * paired) return kth_backward(o, i - paired);
    return i % 2 ? kth_backward(o, i / 2) : bt_pass_forward(o, ahead + i / 2);
}

int64_t bt_passes_in_flight(const bt_pass_order *o) {
    return smaller_i64(forwards(o), passes_ahead(o) + 1);
}

/* Returns the number of micro-batches that have begun after k forward passes. */
static int64_t count_begun_micros(const bt_pass_order *o, int64_t k) {
    const int64_t round = (int64_t)o->chunks * o->stages;
    return smaller_i64(o->micros, k / round * o->stages + smaller_i64(o->stages, k % round));
}

/* a micro-batch is finished after its backward pass through chunk 0; rounds of n micro-batches repeat */
int64_t bt_micros_in_flight(const bt_pass_order *o) {
    const int64_t round = (int64_t)o->chunks * o->stages, ahead = passes_ahead(o);
    int64_t most = 0;
    for (int64_t i = 0; i < o->micros && i < 2 * o->stages; i++) {
        const int64_t k = i / o->stages * round + (int64_t)(o->chunks - 1) * o->stages +
                          i % o->stages,
                      here = count_begun_micros(o, smaller_i64(forwards(o), k + ahead + 1)) - i;
        if (here > most) most = here;
    }
    return most;
}
