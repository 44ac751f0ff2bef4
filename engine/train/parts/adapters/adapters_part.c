/* adapters_part.c - low-rank adapters beside a frozen base model (tune.mode=lora). The ranks of a host share one
 * copy of the base. Adapters may start from those of another run (tune.adapters). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/log.h"
#include "engine/interop/init_from.h"
#include "engine/parallel/mpi/host_memory.h"
#include "engine/train/trainer_impl.h"
#include "engine/tune/adapters_read.h"
#include "engine/tune/base_weights.h"

typedef struct adapters {
    bt_base_weights base;
    bt_host_memory memory; /* NULL in `at` if the base is not shared */
    bool elsewhere;        /* another rank fills the shared base */
} adapters;

static bt_code adapters_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (s->cfg->tune.mode != BT_TUNE_LORA && !s->cfg->tune.adapters[0]) return BT_OK;
    return bt_part_new(self, sizeof(adapters), "the base of adapters", err);
}

static void adapters_release(void *self) {
    adapters *a = self;
    bt_host_memory_release(&a->memory);
    free(a);
}

static bt_code adapters_prepare(void *self, bt_trainer *t, bt_err *err) {
    adapters *a = self;
    bt_rank_setup s = {0};
    bt_comm *here = NULL;
    const int rank = bt_comm_rank(t->mesh.world);
    if (t->cfg.tune.mode != BT_TUNE_LORA || bt_comm_size(t->mesh.dp) == 1) return BT_OK;
    BT_TRY(bt_comm_split(&here, t->mesh.dp, bt_comm_host(rank), rank, err));
    bt_code code = bt_agree(here, bt_rank_setup_init(&s, &t->now, rank, err), err);
    const size_t bytes = code == BT_OK ? bt_model_base_bytes(&s.model) : 0;
    if (code == BT_OK && bytes && bt_comm_size(here) > 1)
        code = bt_host_memory_create(&a->memory, here, bytes, "bitrain-base", err);
    a->elsewhere = a->memory.at && bt_comm_rank(here) > 0;
    bt_rank_setup_release(&s);
    bt_comm_free(here);
    return code;
}

static void model_setup(void *self, bt_trainer *t, bt_model_setup *setup) {
    (void)t;
    const adapters *a = self;
    setup->base_memory = a->memory.at;
    setup->base_elsewhere = a->elsewhere;
}

static void adapters_add_state(void *self, bt_trainer *t, bt_state *s) {
    adapters *a = self;
    if (bt_model_base(t->model)) bt_base_weights_add_state(&a->base, s);
}

/* Reads the frozen base and checks that it is equal on all ranks. */
static bt_code read_frozen_base(adapters *a, bt_trainer *t, bt_err *err) {
    bt_text notes = {0};
    char hash[32];
    if (!bt_model_base(t->model)) return BT_OK;
    bt_code code = bt_agree(t->mesh.world,
                            bt_base_weights_load(&a->base, t->model, t->cfg.tune.base, &notes, err),
                            err);
    if (code == BT_OK && notes.len && bt_comm_rank(t->mesh.world) == 0)
        bt_log(BT_LOG_WARN, "%.*s", (int)(notes.len - 1), notes.data);
    bt_text_release(&notes);
    BT_TRY(code);
    bt_model_quantise(t->model); /* the norms with which magnitudes begin */
    snprintf(hash, sizeof hash, "%" PRId64, a->base.hash);
    return bt_agree_value(t->mesh.world, "the base of the adapters (by hash)", hash, err);
}

/* True for a B of zeros and for magnitudes equal to the norms of the base's rows. */
static bool is_identity(const bt_trainer *t, const bt_tensor *x) {
    const float *w = bt_model_weights(t->model) + x->offset,
                *norms = x->row_norms ? bt_model_row_norms(t->model, x) : NULL;
    for (size_t k = 0; k < x->count && x->spread <= 0; k++) /* A may have any values */
        if (w[k] != (norms ? norms[k] : 0)) return false;   // NOLINT(clang-diagnostic-float-equal)
    return true;
}

/* The base without adapters is the reference for preferences, so adapters must start as the identity. */
static bt_code check_reference(const bt_trainer *t, bt_err *err) {
    const bt_params *p = bt_model_params(t->model);
    for (size_t i = 0; t->setup.model.pairs && i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        if (x->adapter && !is_identity(t, x))
            return bt_fail(err, BT_ARG,
                           "tune.adapters with data.form=preference: '%.100s' are trained, and "
                           "the reference would be their base without them (merge them first: "
                           "bitrain convert RUN --merge dense)",
                           t->cfg.tune.adapters);
    }
    return BT_OK;
}

static bt_code fill_adapters(const adapters *a, bt_trainer *t, bt_err *err) {
    bt_model_file *file = NULL;
    bt_slices all = {0};
    const bt_adapter_base base = {.path = t->cfg.tune.base, .hash = a->base.hash};
    bt_code code = bt_adapters_open(&file, t->cfg.tune.adapters, bt_model_config(t->model), &base,
                                    err);
    if (code == BT_OK) code = bt_state_slices(&t->saver.state, BT_STATE_WEIGHTS, &all, err);
    if (code == BT_OK) code = bt_init_from_fill(file, all.at, all.n, err);
    if (code == BT_OK) code = check_reference(t, err);
    if (code == BT_OK && file->notes.len && bt_comm_rank(t->mesh.world) == 0)
        bt_log(BT_LOG_WARN, "%s: %.*s", t->cfg.tune.adapters, (int)(file->notes.len - 1),
               file->notes.data);
    bt_slices_release(&all);
    bt_model_file_close(file);
    return code;
}

static bt_code adapters_load(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    adapters *a = self;
    switch (stage) {
    case BT_LOAD_BEFORE: return read_frozen_base(a, t, err);
    case BT_LOAD_RESUMED: return bt_base_weights_check(&a->base, t->cfg.tune.base, err);
    case BT_LOAD_FRESH: return t->cfg.tune.adapters[0] ? fill_adapters(a, t, err) : BT_OK;
    }
    return BT_OK;
}

const bt_part bt_part_adapters = {.name = "adapters",
                                  .create = adapters_create,
                                  .release = adapters_release,
                                  .prepare = adapters_prepare,
                                  .model_setup = model_setup,
                                  .add_state = adapters_add_state,
                                  .load = adapters_load};
