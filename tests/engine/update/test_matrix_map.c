/* The parts of a matrix that each rank holds, in layouts of every kind: the counted streams of each replica form the
 * matrix, each element once; a rank's stream contains its block and pieces in order; every matrix has one owner. */
#include "tests/tiny_run.h"

#include "engine/update/matrix_map.h"

#define HEADS "--set", "model.heads=8", "--set", "model.head_dim=4", "--set", "model.d_ff=192"
#define STRIPES "--set", "train.bucket_bytes=4096"

typedef struct layout {
    const char *name;
    int ranks;
    const char *words[20];
} layout;

static const layout layouts[] = {
    {"one rank", 1, {NULL}},
    {"four replicas", 4, {NULL}},
    {"zero 1", 4, {STRIPES, "--zero", "1"}},
    {"zero 3, one stripe", 3, {"--zero", "3", "--batch-tokens", "384"}},
    {"2 replicas of 2 shards",
     4,
     {STRIPES, "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2"}},
    {"tp 4, a kv head on two ranks", 4, {HEADS, "--set", "model.kv_heads=2", "--tp", "4"}},
    {"tp 2, zero 2", 4, {STRIPES, HEADS, "--tp", "2", "--zero", "2", "--dp-shard", "2"}},
    {"two stages, zero 3", 4, {STRIPES, "--pp", "2", "--zero", "3", "--dp-shard", "2"}},
};

/* Sends element numbers through the streams: element i of the matrix is i modulo 2^16. */
static void check_matrix(const bt_matrix_map *m, size_t k, uint16_t *whole, uint16_t *stream,
                         unsigned char *seen) {
    const bt_tensor *x = &m->params[0].tensors[k];
    size_t n = x->whole_rows * x->whole_cols;
    memset(seen, 0, n);
    for (size_t i = 0; i < n; i++) whole[i] = (uint16_t)i;
    for (int t = 0; t < m->tp; t++) {
        const bt_tensor *block = &m->params[t].tensors[k];
        size_t held = 0;
        for (int s = 0; s < m->shards; s++) {
            bt_matrix_share all = {.k = k, .shard = s, .tp_rank = t},
                            counted = {.k = k, .shard = s, .tp_rank = t, .counted = true};
            size_t n_all = bt_matrix_map_elems(m, all), n_counted = bt_matrix_map_elems(m, counted);
            bt_matrix_map_pack(m, all, stream, whole);
            /* The counted part is the end of the stream. */
            uint16_t *tail = stream + (n_all - n_counted), *own = calloc(n + 1, sizeof *own);
            assert_non_null(own);
            bt_matrix_map_pack(m, counted, own, whole);
            assert_memory_equal(tail, own, n_counted * sizeof *own);
            free(own);
            held += n_all;
            for (size_t i = 0; i < n_counted; i++) seen[tail[i]]++;
        }
        assert_int_equal(held, block->count);
    }
    for (size_t i = 0; i < n; i++)
        if (seen[i] != 1) fail_msg("%s: element %zu is counted %d times", x->name, i, seen[i]);
    uint16_t *again = calloc(n, sizeof *again);
    assert_non_null(again);
    for (int t = 0; t < m->tp; t++)
        for (int s = 0; s < m->shards; s++) {
            bt_matrix_share who = {.k = k, .shard = s, .tp_rank = t, .counted = true};
            bt_matrix_map_pack(m, who, stream, whole);
            bt_matrix_map_unpack(m, who, stream, again);
        }
    assert_memory_equal(again, whole, n * sizeof *whole);
    free(again);
}

static void streams_form_every_matrix(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        bt_run_cfg cfg;
        tiny_cfg_for(&cfg, layouts[i].words, layouts[i].ranks);
        for (int rank = 0; rank < layouts[i].ranks; rank++) {
            bt_rank_setup s;
            bt_matrix_map m;
            bt_err err = BT_ERR_INIT;
            if (bt_rank_setup_init(&s, &cfg, rank, &err) != BT_OK ||
                bt_matrix_map_init(&m, &s, &err) != BT_OK)
                fail_msg("%s: %s", layouts[i].name, err.msg);
            assert_int_equal(m.replicas * m.shards * m.tp, m.ranks);
            assert_int_equal(m.ranks * s.shape.pp, layouts[i].ranks);
            /* every weight matrix of a layer exactly once */
            size_t linear = 0;
            for (size_t k = 0; k < s.params.n; k++) linear += s.params.tensors[k].linear;
            assert_true(m.n == linear && m.n > 0);
            size_t most = bt_matrix_map_most(&m);
            uint16_t *whole = calloc(most, sizeof *whole), *stream = calloc(most, sizeof *stream);
            unsigned char *seen = calloc(most, 1), *listed = calloc(s.params.n, 1);
            assert_true(whole && stream && seen && listed && most < 1 << 16);
            for (size_t k = 0; k < m.n; k++) {
                assert_int_equal(listed[m.order[k]]++, 0);
                check_matrix(&m, m.order[k], whole, stream, seen);
            }
            free(whole);
            free(stream);
            free(seen);
            free(listed);
            bt_matrix_map_release(&m);
            bt_rank_setup_release(&s);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(streams_form_every_matrix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
