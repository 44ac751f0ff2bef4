/* In hundreds of meshes every rank has its own coordinates, and exactly one data-parallel rank receives each sample of
 * every step (in each tensor and pipeline plane), also if another mesh makes the second half of the steps. Samples are
 * identified by the tokens that the loader returns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/data/shards/loader.h"
#include "engine/data/shards/synth.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/schedule/balance.h"

enum { T = 5, V = 1 << 20, STEPS = 4, SEQUENCES_MOST = 128, MESHES = 400, WORLD_MOST = 96 };

typedef struct known {
    uint64_t hash;
    int64_t sample;
} known;
static known table[STEPS * SEQUENCES_MOST];
static size_t n_known;

static uint64_t hash_of(const int32_t *tokens) {
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < T; i++) h = (h ^ (uint64_t)(uint32_t)tokens[i]) * 1099511628211u;
    return h;
}

static int by_hash(const void *a, const void *b) {
    uint64_t x = ((const known *)a)->hash, y = ((const known *)b)->hash;
    return (x > y) - (x < y);
}

/* Reads the samples of the run directly from the source. */
static void read_all_samples(int per_step) {
    bt_synth s;
    int32_t row[T + 1];
    bt_synth_init(&s, "synth:chain", V, 1);
    n_known = (size_t)(STEPS * per_step);
    for (size_t q = 0; q < n_known; q++) {
        bt_synth_read(&s, q * (T + 1), T + 1, row);
        table[q] = (known){hash_of(row), (int64_t)q};
    }
    qsort(table, n_known, sizeof *table, by_hash);
    for (size_t q = 1; q < n_known; q++) assert_true(table[q].hash != table[q - 1].hash);
}

static int64_t sample_of(const int32_t *tokens) {
    known key = {hash_of(tokens), 0}, *hit = bsearch(&key, table, n_known, sizeof *table, by_hash);
    assert_non_null(hit);
    return hit->sample;
}

/* Records the samples of one rank of the mesh in steps [from, to). */
static void record_samples_of_rank(const bt_mesh_shape *s, int rank, int per_step, int micro,
                                   int from, int to, const int64_t *counts, unsigned char *seen) {
    bt_mesh_coord me = bt_mesh_coord_of(s, rank);
    int64_t first = 0;
    for (int d = 0; d < me.dp; d++) first += counts[d];
    bt_loader_cfg cfg = {.paths = "synth:chain",
                         .val_paths = "",
                         .tokenizer = "bytes",
                         .field = "text",
                         .cache_dir = "",
                         .split = BT_SPLIT_TRAIN,
                         .B = micro,
                         .T = T,
                         .V = V,
                         .seed = 1,
                         .first_step = from,
                         .sequences_per_step = per_step,
                         .first_sequence = (int)first * micro,
                         .n_sequences = (int)counts[me.dp] * micro};
    bt_loader *l;
    bt_batch b;
    bt_err err = BT_ERR_INIT;
    if (bt_loader_open(&l, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    for (int64_t i = 0; i < (int64_t)(to - from) * counts[me.dp]; i++) {
        assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
        for (int k = 0; k < micro; k++) {
            int64_t sample = sample_of(b.inputs + (size_t)k * T);
            assert_in_range(sample, from * per_step, to * per_step - 1);
            seen[((size_t)me.pp * (size_t)s->tp + (size_t)me.tp) * STEPS * SEQUENCES_MOST +
                 (size_t)sample]++;
        }
    }
    bt_loader_close(l);
}

static int draw_divisor(uint64_t k, uint64_t what, int most) {
    return 1 + (int)(bt_rng_u64(11, what, k) % (uint64_t)most);
}

/* Draws a mesh of at most WORLD_MOST ranks, of which at most `most` are data-parallel. */
static bt_mesh_shape draw_mesh(uint64_t k, uint64_t salt, int most) {
    for (uint64_t i = 0;; i++) {
        uint64_t at = k * 1000 + i;
        bt_mesh_shape s = {draw_divisor(at, salt, 3), draw_divisor(at, salt + 1, 8),
                           draw_divisor(at, salt + 2, 8), draw_divisor(at, salt + 3, 4)};
        if (s.dp_replicate * s.dp_shard <= most &&
            s.pp * s.dp_replicate * s.dp_shard * s.tp <= WORLD_MOST)
            return s;
    }
}

static void check_unique(const bt_mesh_shape *s, int world) {
    bool seen[WORLD_MOST] = {false};
    for (int r = 0; r < world; r++) {
        bt_mesh_coord c = bt_mesh_coord_of(s, r);
        int back = bt_mesh_rank_of(s, &c);
        assert_int_equal(back, r);
        int place = ((c.pp * s->dp_replicate + c.dp_replicate) * s->dp_shard + c.dp_shard) * s->tp +
                    c.tp;
        assert_in_range(place, 0, world - 1);
        assert_false(seen[place]);
        seen[place] = true;
    }
}

static void run_half(const bt_mesh_shape *s, uint64_t k, int per_step, int micro, int from, int to,
                     unsigned char *seen) {
    int dp = s->dp_replicate * s->dp_shard, world = s->pp * dp * s->tp, micros = per_step / micro;
    int64_t counts[WORLD_MOST];
    double cost[WORLD_MOST];
    for (int d = 0; d < dp; d++) cost[d] = draw_divisor(k, 90 + (uint64_t)d, 5);
    if (k % 2)
        bt_balance_plan(counts, cost, (size_t)dp, micros); /* unequal shares */
    else
        bt_balance_even(counts, (size_t)dp, micros);
    check_unique(s, world);
    for (int r = 0; r < world; r++)
        record_samples_of_rank(s, r, per_step, micro, from, to, counts, seen);
}

static void every_sample_once(void **state) {
    (void)state;
    unsigned char *seen = malloc(3 * 4 * STEPS * SEQUENCES_MOST);
    int loaders = 0;
    for (uint64_t k = 0; k < MESHES; k++) {
        int micro = draw_divisor(k, 1, 3), micros = draw_divisor(k, 2, 24),
            per_step = micro * micros, cut = draw_divisor(k, 3, STEPS - 1);
        bt_mesh_shape a = draw_mesh(k, 10, micros), b = draw_mesh(k, 20, micros);
        const bt_mesh_shape *halves[] = {&a, &b};
        read_all_samples(per_step);
        for (int h = 0; h < 2; h++) {
            memset(seen, 0, 3 * 4 * STEPS * SEQUENCES_MOST);
            run_half(halves[h], k, per_step, micro, h ? cut : 0, h ? STEPS : cut, seen);
            for (int plane = 0; plane < halves[h]->pp * halves[h]->tp; plane++) {
                const unsigned char *of = seen + (size_t)plane * STEPS * SEQUENCES_MOST;
                for (int q = 0; q < STEPS * per_step; q++)
                    assert_int_equal(of[q], h ? q >= cut * per_step : q < cut * per_step);
            }
            loaders += halves[h]->pp * halves[h]->dp_replicate * halves[h]->dp_shard *
                       halves[h]->tp;
        }
    }
    print_message("%d meshes, %d ranks\n", 2 * MESHES, loaders);
    free(seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sample_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
