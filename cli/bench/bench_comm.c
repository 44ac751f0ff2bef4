/* bench_comm.c - `bitrain bench comm`: measures the link between data-parallel ranks, and the exchange of gradients and
 * the gather of weights over it, by codec and by size.
 *
 * The limit of a row is the time in which an idle link of the measured speed sends the row's bytes. A measured time
 * exceeds the limit by the time of encoding, adding and waiting. Nothing is computed during the exchange, so no
 * communication is hidden. Gradients are normal random numbers; for `int8 exact` they are multiples of a power of two,
 * like rounded units. Of ternary codes, one in fifty changes between two gathers.
 *
 * For every codec the command also measures how fast one core encodes and decodes, and computes the speed of the link
 * that two ranks can fill: each encodes half of the gradients, adds the other half, encodes their sums, and decodes all
 * sums. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/bench_ranks.h"
#include "cli/bench/bench_run.h"
#include "cli/common/run_shown.h"
#include "cli/train/rank/rank_run.h"
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/config/rank_setup.h"
#include "engine/kernels/table/cpu.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/link.h"
#include "engine/parallel/shard/flip_gather.h"
#include "engine/parallel/shard/shard_all_gather.h"
#include "engine/plan/probe/rates_probe.h"

enum { ROUNDS = 5, LINK_BYTES = 4 << 20, FLIP_EVERY = 50 };
enum { N_SIZES = 3, MOST_ROWS = 64, ALL_ROWS = N_SIZES * (BT_CODEC_COUNT + 5) };

typedef struct row {
    const char *what, *codec;
    double bytes, wire, s,
        limit_s; /* bytes as fp32; bytes sent by a rank; median time; time by the link */
} row;

typedef struct bench {
    bt_mesh mesh;
    bt_mesh_shape shape;
    bt_link link;
    size_t sizes[N_SIZES]; /* bytes of fp32: two fixed sizes, and the model's gradients */
    float *x, *numbers;    /* arrays of the largest size */
    row rows[MOST_ROWS];
    size_t n;
    bt_codec_rate codecs[BT_CODEC_COUNT]; /* means over the ranks */
    bt_bench_bar bar;
} bench;

/* ---- one measurement --------------------------------------------------------------------------- */

typedef struct measured {
    bench *b;
    void (*prepare)(void *ctx); /* called before each round, not timed; NULL: nothing to prepare */
    bt_code (*once)(void *ctx, bt_err *err); /* collective */
    void *ctx;
    double rounds; /* messages between each pair of ranks, from which the limit is computed */
} measured;

/* Measures the median of several rounds after one warm-up round. A round takes as long as its slowest rank. */
static bt_code measure_row(const measured *m, row *r, bt_err *err) {
    double took[ROUNDS];
    char note[64];
    bt_comm *c = m->b->mesh.dp;
    snprintf(note, sizeof note, "%s %s, %.1f MB", r->what, r->codec, r->bytes / 1e6);
    bt_bench_bar_show(&m->b->bar, (double)m->b->n / ALL_ROWS, note);
    for (int i = -1; i < ROUNDS; i++) {
        if (m->prepare) m->prepare(m->ctx);
        BT_TRY(bt_barrier(c, err));
        uint64_t wire = bt_comm_bytes_wire();
        int64_t start = bt_now_ns();
        BT_TRY(m->once(m->ctx, err));
        double s = (double)(bt_now_ns() - start) / 1e9;
        r->wire = (double)(bt_comm_bytes_wire() - wire);
        BT_TRY(bt_all_reduce_f64(c, &s, 1, BT_MAX, err));
        if (i >= 0) took[i] = s;
    }
    BT_TRY(bt_all_reduce_f64(c, &r->wire, 1, BT_MAX, err));
    qsort(took, ROUNDS, sizeof *took, bt_compare_doubles);
    r->s = took[ROUNDS / 2];
    r->limit_s = bt_link_s(&m->b->link, m->rounds, r->wire);
    return BT_OK;
}

/* ---- gradients --------------------------------------------------------------------------------- */

typedef struct exchange {
    bt_reducer *reducer;
    const float *numbers;
    float *x;
    size_t n;
} exchange;

static bt_code exchange_gradients_once(void *ctx, bt_err *err) {
    exchange *e = ctx;
    bt_reduce_times times;
    bt_reducer_begin(e->reducer);
    bt_reducer_last(e->reducer);
    return bt_reducer_finish(e->reducer, NULL, 0, &times, err);
}

/* Restores the gradients before repeated summation makes them too large. */
static void restore_gradients(void *ctx) {
    const exchange *e = ctx;
    memcpy(e->x, e->numbers, e->n * sizeof *e->x);
}

static bt_code measure_exchange(bench *b, const bt_codec *codec, const char *name, size_t bytes,
                                bt_err *err) {
    exchange e = {.numbers = b->numbers, .x = b->x, .n = bytes / sizeof(float)};
    const bt_reducer_cfg cfg = {
        .mesh = &b->mesh, .grads = b->x, .n = e.n, .bucket_bytes = 4 << 20, .form.codec = codec};
    row *r = &b->rows[b->n++];
    *r = (row){.what = "exchange", .codec = name, .bytes = (double)bytes};
    if (codec == &bt_codec_exact)
        for (size_t i = 0; i < e.n; i++)
            b->numbers[i] = (float)((int)(bt_rng_u64(1, 2, i) % 61) - 30) * 0x1p-20f;
    BT_TRY(bt_reducer_create(&e.reducer, &cfg, err));
    const measured m = {b, restore_gradients, exchange_gradients_once, &e,
                        2 * ceil((double)bytes / (4 << 20))};
    bt_code code = measure_row(&m, r, err);
    bt_reducer_destroy(e.reducer);
    return code;
}

static bt_code measure_codecs(bench *b, size_t bytes, bt_err *err) {
    for (int id = 0; id < BT_CODEC_COUNT; id++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)id);
        bt_rng_normal(b->numbers, bytes / sizeof(float), 0, 1e-3f, 1,
                      (uint64_t)bt_comm_rank(b->mesh.dp));
        BT_TRY(measure_exchange(b, c, c->name, bytes, err));
    }
    return measure_exchange(b, &bt_codec_exact, "int8 exact", bytes, err);
}

/* ---- weights ----------------------------------------------------------------------------------- */

typedef struct gather {
    bt_shard_all_gather *pieces;
    size_t stripes;
} gather;

static bt_code gather_weights_once(void *ctx, bt_err *err) {
    gather *g = ctx;
    for (size_t i = g->stripes; i-- > 0;) BT_TRY(bt_shard_all_gather_start(g->pieces, i, err));
    return bt_shard_all_gather_finish(g->pieces, err);
}

static bt_code measure_gather(bench *b, size_t elem, size_t bytes, bt_err *err) {
    bt_shards shards;
    size_t n = bytes / sizeof(float);
    bt_shards_init(&shards, n, 4 << 20, 1, bt_comm_size(b->mesh.shard));
    gather g = {.stripes = shards.n_stripes};
    row *r = &b->rows[b->n++];
    *r = (row){.what = "gather", .codec = elem == 4 ? "fp32" : "bf16", .bytes = (double)bytes};
    const bt_gathered range = {{0, n}, b->x, elem};
    BT_TRY(bt_shard_all_gather_create(&g.pieces, &b->mesh, &shards, &range, 1, err));
    const measured m = {b, NULL, gather_weights_once, &g, 1};
    bt_code code = measure_row(&m, r, err);
    bt_shard_all_gather_destroy(g.pieces);
    return code;
}

typedef struct flips {
    bt_flip_gather *gather;
    unsigned char *codes;
    size_t bytes;
    uint64_t round;
    bool all; /* true: all codes change */
} flips;

/* Flips all codes, or one in FLIP_EVERY, between 0 and 1. */
static void flip_all_codes(void *ctx) {
    flips *f = ctx;
    f->round++;
    for (size_t i = 0; i < 4 * f->bytes; i++)
        if (f->all || bt_rng_u64(3, f->round, i) % FLIP_EVERY == 0)
            f->codes[i / 4] = (unsigned char)(f->codes[i / 4] ^ 1u << i % 4 * 2);
}

static bt_code gather_flips_once(void *ctx, bt_err *err) {
    flips *f = ctx;
    return bt_flip_gather_run(f->gather, f->codes, err);
}

static bt_code measure_flips(bench *b, bool all, size_t bytes, bt_err *err) {
    int shards = bt_comm_size(b->mesh.shard);
    size_t *of = calloc((size_t)shards, sizeof *of);
    flips f = {.bytes = bytes / 16 / (size_t)shards, .all = all};
    row *r = &b->rows[b->n++];
    *r = (row){.what = "gather", .codec = all ? "codes" : "flips", .bytes = (double)bytes};
    f.codes = calloc(f.bytes, 1);
    bt_code code = of && f.codes ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for ternary codes");
    for (int s = 0; s < shards && of; s++) of[s] = f.bytes;
    if (code == BT_OK) code = bt_flip_gather_create(&f.gather, &b->mesh, of, err);
    const measured m = {b, flip_all_codes, gather_flips_once, &f, 1};
    if (code == BT_OK) code = measure_row(&m, r, err);
    bt_flip_gather_destroy(f.gather);
    free(f.codes);
    free(of);
    return code;
}

/* ---- codecs ------------------------------------------------------------------------------------ */

static bt_code measure_coding(bench *b, bt_err *err) {
    const double n = bt_comm_size(bt_comm_world());
    for (int id = 0; id < BT_CODEC_COUNT; id++) {
        bt_codec_rate *r = &b->codecs[id];
        BT_TRY(bt_rates_probe_codec(bt_codec_at((bt_codec_id)id), r, err));
        double s[] = {r->encode_s / n, r->decode_s / n, r->decode_add_s / n};
        BT_TRY(bt_all_reduce_f64(bt_comm_world(), s, 3, BT_SUM, err));
        r->encode_s = s[0];
        r->decode_s = s[1];
        r->decode_add_s = s[2];
    }
    return BT_OK;
}

/* Returns fp32 bytes per second; NaN: there is nothing to encode. */
static double fp32_rate(double s) { return s > 0 ? sizeof(float) / s : NAN; }

/* Returns payload bytes per second and direction that one core can encode and decode. */
static double coded_bytes_per_s(const bench *b, int id) {
    const bt_codec_rate *r = &b->codecs[id], *back = &b->codecs[bt_codec_back((bt_codec_id)id)];
    const double s = (r->encode_s + r->decode_add_s + back->encode_s) / 2 + back->decode_s;
    return s > 0 ? (r->wire_bytes + back->wire_bytes) / 2 / s : NAN;
}

/* ---- the result -------------------------------------------------------------------------------- */

static void put_comm_row(bt_printout *o, const row *r) {
    bt_printout_row(o);
    bt_printout_str(o, "what", "what", r->what);
    bt_printout_str(o, "codec", "codec", r->codec);
    bt_printout_numf(o, "bytes", "MB fp32", r->bytes, 1e-6, "%.1f");
    bt_printout_numf(o, "bytes_wire", "MB sent", r->wire, 1e-6, "%.3f");
    bt_printout_numf(o, "ms", "ms", r->s * 1e3, 1, "%.2f");
    bt_printout_numf(o, "limit_ms", "limit ms", r->limit_s * 1e3, 1, "%.2f");
    bt_printout_numf(o, "bytes_per_s", "GB/s", r->bytes / r->s, 1e-9, "%.2f");
    bt_printout_end(o);
}

static void put_codec(bt_printout *o, const bench *b, int id) {
    const bt_codec_rate *r = &b->codecs[id];
    bt_printout_row(o);
    bt_printout_str(o, "codec", "codec", bt_codec_at((bt_codec_id)id)->name);
    bt_printout_numf(o, "bits", "bits", 8 * r->wire_bytes, 1, "%.3f");
    bt_printout_numf(o, "encode_bytes_per_s", "encode GB/s", fp32_rate(r->encode_s), 1e-9, "%.2f");
    bt_printout_numf(o, "decode_bytes_per_s", "decode GB/s", fp32_rate(r->decode_s), 1e-9, "%.2f");
    bt_printout_numf(o, "decode_add_bytes_per_s", "and add GB/s", fp32_rate(r->decode_add_s), 1e-9,
                     "%.2f");
    bt_printout_numf(o, "link_bytes_per_s", "link Gbit/s", coded_bytes_per_s(b, id), 8e-9, "%.2f");
    bt_printout_end(o);
}

static void print_comm_result(bt_printout *o, const bench *b) {
    const bool known = b->link.bytes_per_s > 0;
    const int ranks = bt_comm_size(b->mesh.dp);
    bt_printout_line(o, "%d data-parallel ranks, %s kernels; ", ranks, bt_kernels_isa());
    if (known)
        bt_printout_line(o, "the link: %.1f MB/s a rank, %.3f ms a round\n",
                         b->link.bytes_per_s / 1e6, b->link.latency_s * 1e3);
    else
        bt_printout_line(
            o, "the link's speed cannot be distinguished from the machine's other work\n");
    bt_printout_int(o, "ranks", NULL, ranks);
    bt_printout_num(o, "link_bytes_per_s", NULL, known ? b->link.bytes_per_s : NAN, BT_UNIT_PER_S);
    bt_printout_num(o, "link_latency_ms", NULL, known ? b->link.latency_s * 1e3 : NAN, BT_UNIT_MS);
    bt_printout_rows(o, "rows");
    for (size_t i = 0; i < b->n; i++) put_comm_row(o, &b->rows[i]);
    bt_printout_rows_end(o, "  ");
    bt_printout_line(o, "  (sent: by a rank; GB/s: of fp32; medians of %d)\n", ROUNDS);
    bt_printout_rows(o, "codecs");
    for (int id = 1; id < BT_CODEC_COUNT; id++) put_codec(o, b, id);
    bt_printout_rows_end(o, "  ");
    bt_printout_line(
        o,
        "  (of fp32, by one core while every rank does the same; link: what it keeps up with)\n");
}

/* ---- one process, or several ranks ------------------------------------------------------------------------ */

static bt_code read_comm_settings(bt_opts *o, bt_run_cfg *cfg, int argc, char **argv, int ranks,
                                  bt_err *err) {
    bool help = false;
    BT_TRY(bt_run_cfg_read(o, cfg, argc, argv, &help, err));
    BT_TRY(bt_opts_set(o, "data.path", "synth:chain", BT_FROM_PRESET, "bench", err));
    BT_TRY(bt_opts_set(o, "launch.ranks", "2", BT_FROM_PRESET, "bench", err));
    /* makes all ranks exchange gradients and own a part of the weights */
    BT_TRY(bt_opts_set(o, "mesh.zero", "1", BT_FROM_PRESET, "bench", err));
    BT_TRY(bt_run_cfg_resolve_opts(
        o, cfg, ranks ? ranks : bt_run_cfg_ranks(cfg, bt_cpu_get()->cores), err));
    if (cfg->mesh.dp_replicate * cfg->mesh.dp_shard < 2 || cfg->mesh.zero < 1)
        return bt_fail(err, BT_ARG,
                       "bench comm measures what data-parallel ranks send each other: it needs "
                       "--ranks 2 or more, and --zero 1 or more");
    return BT_OK;
}

static bt_code measure_all_rows(bench *b, const bt_run_cfg *cfg, bt_err *err) {
    bt_rank_setup s;
    size_t most = 0;
    BT_TRY(bt_rank_prepare(cfg, cfg->launch.isa, err));
    BT_TRY(bt_rank_setup_init(&s, cfg, bt_comm_rank(bt_comm_world()), err));
    b->sizes[0] = 256 << 10;
    b->sizes[1] = 4 << 20;
    b->sizes[2] = s.params.total * sizeof(float);
    bt_rank_setup_release(&s);
    for (size_t i = 0; i < N_SIZES; i++) most = b->sizes[i] > most ? b->sizes[i] : most;
    bt_run_cfg_mesh(cfg, &b->shape);
    BT_TRY(bt_mesh_create(&b->mesh, &b->shape, bt_comm_world(), err));
    b->x = malloc(most);
    b->numbers = malloc(most);
    bool room = b->x && b->numbers;
    BT_TRY(bt_agree(bt_comm_world(),
                    room ? BT_OK
                         : bt_fail(err, BT_NOMEM, "no memory for %zu MiB of gradients", most >> 20),
                    err));
    memset(b->x, 0, most);
    bt_bench_bar_show(&b->bar, 0, "the link");
    BT_TRY(bt_link_measure(&b->link, b->mesh.dp, LINK_BYTES, err));
    bt_bench_bar_show(&b->bar, 0, "codecs on one core");
    BT_TRY(measure_coding(b, err));
    for (size_t i = 0; i < N_SIZES; i++) {
        BT_TRY(measure_codecs(b, b->sizes[i], err));
        BT_TRY(measure_gather(b, 4, b->sizes[i], err));
        BT_TRY(measure_gather(b, 2, b->sizes[i], err));
        BT_TRY(measure_flips(b, true, b->sizes[i], err));
        BT_TRY(measure_flips(b, false, b->sizes[i], err));
    }
    return BT_OK;
}

static bt_code bench_comm_as_rank(int argc, char **argv, bt_run_cfg *cfg, bt_err *err) {
    static bt_opts o;
    static bench b;
    BT_TRY(bt_comm_init(err));
    bt_comm *world = bt_comm_world();
    bt_code code = bt_agree(world,
                            read_comm_settings(&o, cfg, argc, argv, bt_comm_size(world), err), err);
    bt_bench_bar_begin(&b.bar, true, true);
    if (code == BT_OK) code = measure_all_rows(&b, cfg, err);
    if (code == BT_OK && bt_comm_rank(world) == 0) {
        bt_printout report;
        bt_printout_begin(&report, cfg->run.json);
        print_comm_result(&report, &b);
        bt_bench_print_result(&report, true);
    }
    free(b.x);
    free(b.numbers);
    bt_mesh_release(&b.mesh);
    bt_threads_release();
    if (code == BT_OK) bt_comm_finalize();
    return code;
}

bt_code bt_bench_comm(int argc, char **argv, int *exit_status, bt_err *err) {
    static bt_run_cfg cfg;
    static bt_opts o;
    if (bt_comm_am_rank()) {
        bt_code code = bench_comm_as_rank(argc, argv, &cfg, err);
        if (code != BT_OK) bt_run_shown_fail(code, err, exit_status);
        return BT_OK;
    }
    BT_TRY(read_comm_settings(&o, &cfg, argc, argv, 0, err));
    return bt_bench_on_ranks("comm", argc, argv, &cfg, err);
}
