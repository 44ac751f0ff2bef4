/* rates_machine.c - measures rates that are independent of the model: memory, arrays, optimizers, codecs, disk. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/os/memory_pages.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/exact.h"
#include "engine/kernels/table/kernels.h"
#include "engine/kernels/table/ternary.h"
#include "engine/optim/muon.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/plan/probe/probe_clock.h"
#include "engine/plan/probe/rates_probe.h"

enum {
    ROUNDS = 5,
    STATES = BT_OPTIM_STATES,
    CODEC_ELEMS = 1 << 18,
    MUON_SIDE = 512,
    FORM_ELEMS = BT_ELEMS_LARGE / 4,
    TERN_ROWS = 1408,
    TERN_COLS = 1024,
    PAGE_ELEMS = 4 << 20,
    DISK_BYTES = 32 << 20
};

typedef struct arrays {
    float *w, *g, *state[STATES];
    size_t n;
} arrays;

static void close_arrays(arrays *a) {
    free(a->w);
    free(a->g);
    for (int i = 0; i < STATES; i++) free(a->state[i]);
}

static bt_code open_arrays(arrays *a, size_t n, bt_err *err) {
    *a = (arrays){.w = malloc(n * sizeof(float)), .g = malloc(n * sizeof(float)), .n = n};
    bool all = a->w && a->g;
    for (int i = 0; i < STATES; i++) {
        a->state[i] = malloc(n * sizeof(float));
        all = all && a->state[i];
    }
    if (!all)
        return bt_fail(err, BT_NOMEM,
                       "cannot allocate memory for %zu MiB of arrays to measure with",
                       (2 + STATES) * n * sizeof(float) >> 20);
    for (size_t i = 0; i < n; i++) {
        a->w[i] = 0.01f * (float)(i % 97);
        a->g[i] = 0.001f * (float)(i % 89);
        for (int k = 0; k < STATES; k++) a->state[k][i] = 1e-4f;
    }
    return BT_OK;
}

typedef void (*array_work)(const arrays *a, const void *how);

static double time_array(const arrays *a, array_work work, const void *how) {
    double took[ROUNDS];
    work(a, how);
    for (int i = 0; i < ROUNDS; i++) {
        double start = bt_probe_clock();
        work(a, how);
        took[i] = bt_probe_clock() - start;
    }
    return bt_probe_typical(took, ROUNDS) / (double)a->n;
}

static void do_norm(const arrays *a, const void *how) {
    volatile double sum = bt_op_sum_squares(a->g, a->n);
    (void)sum, (void)how;
}

static void probe_zero(const arrays *a, const void *how) {
    (void)how;
    bt_op_zero(a->state[0], a->n);
}

static void probe_add(const arrays *a, const void *how) {
    (void)how;
    bt_op_add(a->w, a->g, a->n);
}

static void do_copy(const arrays *a, const void *how) {
    (void)how;
    memcpy(a->state[0], a->g, a->n * sizeof *a->g);
}

static void do_update(const arrays *a, const void *how) {
    static const bt_optim_cfg settings = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95};
    static const bt_optim_update update = {.t = 10, .grad_scale = 1, .lr = 1e-6f, .decay = 0.1f};
    bt_optim_elems e = {.w = a->w, .g = a->g, .n = a->n};
    for (int i = 0; i < STATES; i++) e.state[i] = a->state[i];
    ((const bt_optim_rule *)how)->step(&e, &settings, &update);
}

static void measure_arrays(bt_rates *r, const arrays *a, bool large) {
#define SET(field, seconds) (*(large ? &(field).large_s : &(field).small_s) = (seconds))
    SET(r->norm, time_array(a, do_norm, NULL));
    SET(r->zero, time_array(a, probe_zero, NULL));
    for (int i = 0; i < BT_OPTIM_COUNT; i++)
        SET(r->update[i], time_array(a, do_update, bt_optim_info_of((bt_optim_id)i)->rest));
#undef SET
    if (!large) return;
    r->add_s = time_array(a, probe_add, NULL);
    r->read_per_s = sizeof(float) / r->norm.large_s;
    r->triad_per_s = 2 * sizeof(float) / time_array(a, do_copy, NULL);
}

static bt_code probe_arrays(bt_rates *r, bool large, bt_err *err) {
    arrays a;
    bt_code code = open_arrays(&a, large ? BT_ELEMS_LARGE : BT_ELEMS_SMALL, err);
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) measure_arrays(r, &a, large);
    close_arrays(&a);
    return code;
}

/* Measures an AdamW update in seconds per element. w: weights in fp32 or bf16. */
static bt_code time_update_form(double *out, bt_states_kind states, bt_moment_form form, float *w,
                                const float *g, bt_err *err) {
    const bt_optim_cfg settings = {
        .kind = BT_OPTIM_ADAMW, .states = states, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    const bt_optim_span span = {.end = FORM_ELEMS,
                                .weights = form == BT_MOMENT_F32 ? NULL : w,
                                .form = form,
                                .decay = true};
    bt_optim_update update = {.grad_scale = 1, .lr = 1e-6f, .decay = 0.1f};
    double took[ROUNDS];
    bt_optim *o = NULL;
    BT_TRY(bt_agree(bt_comm_world(),
                    bt_optim_create(&o, &settings, &span, 1, (bt_range){0, FORM_ELEMS}, err), err));
    for (int i = -1; i < ROUNDS; i++) {
        const double start = bt_probe_clock();
        update.t++;
        bt_optim_step(o, w, g, &update);
        if (i >= 0) took[i] = bt_probe_clock() - start;
    }
    *out = bt_probe_typical(took, ROUNDS);
    bt_optim_destroy(o);
    return BT_OK;
}

/* Measures updates with smaller states and weights relative to fp32. */
static bt_code probe_update_forms(bt_rates *r, bt_err *err) {
    double whole, of;
    float *w = calloc(2 * (size_t)FORM_ELEMS, sizeof *w), *g = w ? w + FORM_ELEMS : NULL;
    const struct {
        double *factor;
        bt_states_kind states;
        bt_moment_form weights;
    } forms[] = {{&r->states_bf16_x, BT_STATES_BF16, BT_MOMENT_F32},
                 {&r->states_log8_x, BT_STATES_LOG8, BT_MOMENT_F32},
                 {&r->weights_bf16_x, BT_STATES_FP32, BT_MOMENT_BF16}};
    bt_code code = w ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for an update");
    code = bt_agree(bt_comm_world(), code, err);
    for (size_t i = 0; code == BT_OK && i < FORM_ELEMS; i++) g[i] = 0.001f * (float)(i % 89);
    if (code == BT_OK) code = time_update_form(&whole, BT_STATES_FP32, BT_MOMENT_F32, w, g, err);
    for (size_t i = 0; code == BT_OK && i < sizeof forms / sizeof *forms; i++) {
        memset(w, 0, FORM_ELEMS * sizeof *w);
        code = time_update_form(&of, forms[i].states, forms[i].weights, w, g, err);
        *forms[i].factor = of / whole;
    }
    free(w);
    return code;
}

static bt_code probe_muon(bt_rates *r, bt_err *err) {
    bt_muon *m = NULL;
    double took[ROUNDS];
    uint16_t *x = malloc(sizeof *x * MUON_SIDE * MUON_SIDE);
    bt_code code = x ? bt_muon_create(&m, MUON_SIDE, MUON_SIDE, err)
                     : bt_fail(err, BT_NOMEM, "cannot allocate memory for a matrix");
    code = bt_agree(bt_comm_world(), code, err);
    for (int i = 0; code == BT_OK && i < ROUNDS; i++) {
        for (size_t k = 0; k < MUON_SIDE * MUON_SIDE; k++)
            x[k] = (uint16_t)(0x3c00 + ((uint32_t)k * 2654435761u >> 24));
        double start = bt_probe_clock();
        bt_muon_direction(m, x, MUON_SIDE, MUON_SIDE);
        took[i] = bt_probe_clock() - start;
    }
    if (code == BT_OK)
        r->matrix_op_s = bt_probe_typical(took, ROUNDS) / bt_muon_flops(MUON_SIDE, MUON_SIDE);
    bt_muon_destroy(m);
    free(x);
    return code;
}

typedef struct matrix {
    int8_t *codes;
    uint8_t *packed;
    void *panels;
} matrix;

static double probe_seconds_since(double start) { return bt_probe_clock() - start; }

/* Times the conversions between the three forms of a ternary matrix. */
static bool time_ternary(bt_rates *r, const matrix *m) {
    const size_t n = (size_t)TERN_ROWS * TERN_COLS;
    double pack[ROUNDS], unpack[ROUNDS], panel[ROUNDS];
    bool valid = true;
    for (int i = -1; i < ROUNDS; i++) {
        double at = bt_probe_clock(), took[3];
        bt_tern2_pack(m->packed, m->codes, 1, n);
        took[0] = probe_seconds_since(at);
        at = bt_probe_clock();
        valid = valid && bt_tern2_unpack(m->codes, m->packed, 1, n, NULL) == BT_OK;
        took[1] = probe_seconds_since(at);
        at = bt_probe_clock();
        bt_op_tern_pack(m->panels, m->codes, TERN_ROWS, TERN_COLS);
        took[2] = probe_seconds_since(at);
        if (i < 0) continue;
        pack[i] = took[0];
        unpack[i] = took[1];
        panel[i] = took[2];
    }
    r->tern_pack_s = bt_probe_typical(pack, ROUNDS) / (double)n;
    r->tern_unpack_s = bt_probe_typical(unpack, ROUNDS) / (double)n;
    r->tern_panel_s = bt_probe_typical(panel, ROUNDS) / (double)n;
    return valid;
}

static bt_code probe_ternary(bt_rates *r, bt_err *err) {
    const size_t n = (size_t)TERN_ROWS * TERN_COLS;
    bt_arena arena;
    bt_arena_plan(&arena, "ternary matrix");
    size_t codes = bt_arena_reserve(&arena, n, 1),
           packed = bt_arena_reserve(&arena, bt_tern2_row_bytes(n), 1),
           panels = bt_arena_reserve(&arena, bt_active_kernels()->tern_bytes(TERN_ROWS, TERN_COLS),
                                     1);
    BT_TRY(bt_agree(bt_comm_world(), bt_arena_commit(&arena, err), err));
    matrix m = {bt_arena_at(&arena, codes), bt_arena_at(&arena, packed),
                bt_arena_at(&arena, panels)};
    for (size_t i = 0; i < n; i++) m.codes[i] = (int8_t)(i * 2654435761u % 3) - 1;
    bt_code code = time_ternary(r, &m)
                       ? BT_OK
                       : bt_fail(err, BT_DAMAGED,
                                 "unpacking a ternary matrix returned a code other than -1, 0 and "
                                 "1: the memory or the processor may be faulty");
    bt_arena_release(&arena);
    return bt_agree(bt_comm_world(), code, err);
}

/* Times pages that are returned to the system and touched again, as ZeRO-2 does with other ranks' gradients. */
static bt_code probe_pages(bt_rates *r, bt_err *err) {
    bt_arena arena;
    double took[ROUNDS];
    bt_arena_plan(&arena, "pages");
    size_t at = bt_arena_reserve(&arena, PAGE_ELEMS, sizeof(float));
    BT_TRY(bt_agree(bt_comm_world(), bt_arena_commit(&arena, err), err));
    float *x = bt_arena_at(&arena, at);
    memset(x, 1, PAGE_ELEMS * sizeof *x);
    for (int i = 0; i < ROUNDS; i++) {
        double start = bt_probe_clock();
        (void)bt_pages_return(x, PAGE_ELEMS * sizeof *x);
        for (size_t k = 0; k < PAGE_ELEMS; k += 1024) ((volatile float *)x)[k] = 1;
        took[i] = probe_seconds_since(start);
    }
    r->fresh_s = bt_probe_typical(took, ROUNDS) / (double)PAGE_ELEMS;
    bt_arena_release(&arena);
    return BT_OK;
}

typedef struct codec_memory {
    float *x, *into;
    unsigned char *payload, *state;
} codec_memory;

static void time_codec(const bt_codec *c, const codec_memory *m, bt_codec_rate *out) {
    double encode[ROUNDS], decode[ROUNDS], add[ROUNDS];
    size_t n = CODEC_ELEMS, bytes = 0;
    for (int i = -1; i < ROUNDS; i++) {
        double at[4];
        at[0] = bt_probe_clock();
        bytes = c->encode(m->payload, m->x, n, c->state_bytes ? m->state : NULL);
        at[1] = bt_probe_clock();
        bool valid = c->decode(m->into, n, m->payload, bytes);
        at[2] = bt_probe_clock();
        valid = c->decode_add(m->into, n, m->payload, bytes) && valid;
        at[3] = bt_probe_clock();
        if (i < 0 || !valid) continue;
        encode[i] = at[1] - at[0];
        decode[i] = at[2] - at[1];
        add[i] = at[3] - at[2];
    }
    *out = (bt_codec_rate){.wire_bytes = (double)bytes / (double)n,
                           .encode_s = bt_probe_typical(encode, ROUNDS) / (double)n,
                           .decode_s = bt_probe_typical(decode, ROUNDS) / (double)n,
                           .decode_add_s = bt_probe_typical(add, ROUNDS) / (double)n};
}

bt_code bt_rates_probe_codec(const bt_codec *c, bt_codec_rate *out, bt_err *err) {
    size_t n = CODEC_ELEMS;
    *out = (bt_codec_rate){.wire_bytes = sizeof(float)};
    if (!c->encode) return BT_OK;
    codec_memory m = {.x = malloc(n * sizeof(float)),
                      .into = calloc(n, sizeof(float)),
                      .payload = malloc(c->bound(n)),
                      .state = calloc(n, c->state_bytes ? c->state_bytes : 1)};
    bt_code code = m.x && m.into && m.payload && m.state
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory to measure the codec %s",
                                 c->name);
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) {
        for (size_t i = 0; i < n; i++)
            m.x[i] = 1e-3f * (float)((int)(i * 2654435761u >> 20 & 1023) - 512);
        time_codec(c, &m, out);
    }
    free(m.x);
    free(m.into);
    free(m.payload);
    free(m.state);
    return code;
}

/* Returns the write rate of rank 0; 0 if writing fails. */
static double disk_rate(const char *dir) {
    char path[1100];
    double rate = 0;
    snprintf(path, sizeof path, "%.1000s/.rates-XXXXXX", dir);
    char *block = calloc(1, DISK_BYTES);
    int fd = block ? mkstemp(path) : -1;
    if (fd >= 0) {
        int64_t start = bt_now_ns();
        const bool written = write(fd, block, DISK_BYTES) == DISK_BYTES;
        if (written && fsync(fd) == 0) rate = DISK_BYTES * 1e9 / (double)(bt_now_ns() - start);
        close(fd);
        unlink(path);
    }
    free(block);
    return rate;
}

/* Replaces the measurements of each rank by their mean over all ranks. */
static bt_code mean_machine_rates(bt_rates *r, bt_err *err) {
    double v[64], n_ranks = bt_comm_size(bt_comm_world());
    double *at[64];
    size_t n = 0;
    double *const single[] = {&r->read_per_s,    &r->triad_per_s,   &r->add_s,
                              &r->matrix_op_s,   &r->norm.small_s,  &r->norm.large_s,
                              &r->zero.small_s,  &r->zero.large_s,  &r->tern_pack_s,
                              &r->tern_unpack_s, &r->tern_panel_s,  &r->fresh_s,
                              &r->states_bf16_x, &r->states_log8_x, &r->weights_bf16_x};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) at[n++] = single[i];
    for (int i = 0; i < BT_OPTIM_COUNT && n + 2 <= 64; i++) {
        at[n++] = &r->update[i].small_s;
        at[n++] = &r->update[i].large_s;
    }
    for (int i = 0; i < BT_CODEC_COUNT && n + 3 <= 64; i++) {
        at[n++] = &r->codec[i].encode_s;
        at[n++] = &r->codec[i].decode_s;
        at[n++] = &r->codec[i].decode_add_s;
    }
    for (size_t i = 0; i < n; i++) v[i] = *at[i];
    BT_TRY(bt_all_reduce_f64(bt_comm_world(), v, n, BT_SUM, err));
    for (size_t i = 0; i < n; i++) *at[i] = v[i] / n_ranks;
    return BT_OK;
}

bt_code bt_rates_probe_machine(bt_rates *r, const char *disk_dir, bt_err *err) {
    bt_comm *world = bt_comm_world();
    BT_TRY(bt_barrier(world, err));
    BT_TRY(probe_arrays(r, false, err));
    BT_TRY(probe_arrays(r, true, err));
    BT_TRY(probe_update_forms(r, err));
    BT_TRY(probe_muon(r, err));
    BT_TRY(probe_ternary(r, err));
    BT_TRY(probe_pages(r, err));
    for (int i = 0; i < BT_CODEC_COUNT; i++)
        BT_TRY(bt_rates_probe_codec(bt_codec_at((bt_codec_id)i), &r->codec[i], err));
    BT_TRY(mean_machine_rates(r, err));
    r->disk_per_s = bt_comm_rank(world) == 0 && disk_dir[0] ? disk_rate(disk_dir) : 0;
    return bt_broadcast(world, &r->disk_per_s, sizeof r->disk_per_s, 0, err);
}
