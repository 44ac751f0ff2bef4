/* adapter_sum.c - reads a tensor of each part, and concatenates these tensors along the rank. */
#include "engine/tune/adapter_sum.h"

#include <stdlib.h>
#include <string.h>

typedef struct adapter_sum {
    bt_adapter_part part[BT_ADAPTER_PARTS];
    size_t n;
} adapter_sum;

void bt_adapter_parts_close(const bt_adapter_part *parts, size_t n) {
    for (size_t i = 0; i < n; i++) bt_model_file_close(parts[i].adapters);
}

bt_code bt_adapter_parts_check(const bt_adapter_part *parts, size_t n, bt_err *err) {
    for (size_t i = 0; i < n; i++)
        if (parts[i].adapters->cfg.lora.dora &&
            (n > 1 || parts[i].weight < 1 || parts[i].weight > 1))
            return bt_fail(
                err, BT_ARG,
                "'%.200s' contains adapters with magnitudes (DoRA), which can neither be added "
                "nor weighted (use them alone, without --add and --weight)",
                parts[i].adapters->path);
    return BT_OK;
}

static void release_adapter_sum(void *ctx) {
    adapter_sum *s = ctx;
    bt_adapter_parts_close(s->part, s->n);
    free(s);
}

/* Returns true for A, (rank, inputs); all other tensors are B, (outputs, rank). */
static bool is_matrix_a(const bt_tensor *t) {
    return bt_adapter_a(bt_adapter_layer(t->id)) == t->id;
}

static bt_code read_adapter_part(const bt_adapter_part *p, const bt_tensor *t, size_t at,
                                 double scale, float *x, bt_err *err) {
    const bt_params *own = &p->adapters->params;
    const bt_tensor *f = bt_params_get(own, t->layer, t->id);
    const double factor = p->weight * p->adapters->cfg.lora.scale / scale;
    if (!f) return BT_OK; /* this layer has no adapter */
    float *values = is_matrix_a(t) ? x + at * t->cols : malloc(f->count * sizeof *values);
    if (!values) return bt_fail(err, BT_NOMEM, "cannot allocate memory to add '%s'", t->name);
    bt_code code = bt_model_file_read(p->adapters, (size_t)(f - own->tensors), 0, f->count, values,
                                      err);
    if (is_matrix_a(t)) return code;
    for (size_t n = 0; code == BT_OK && n < t->rows; n++)
        for (size_t r = 0; r < f->cols; r++)
            x[n * t->cols + at + r] = (float)(factor * (double)values[n * f->cols + r]);
    free(values);
    return code;
}

static bt_code read_sum(void *ctx, bt_model_file *s, size_t i, uint64_t first, uint64_t count,
                        float *out, bt_err *err) {
    const adapter_sum *sum = ctx;
    const bt_tensor *t = &s->params.tensors[i];
    float *x = calloc(t->count, sizeof *x);
    bt_code code = x ? BT_OK
                     : bt_fail(err, BT_NOMEM, "cannot allocate memory to add '%s'", t->name);
    for (size_t k = 0, at = 0; code == BT_OK && k < sum->n; k++) {
        code = read_adapter_part(&sum->part[k], t, at, s->cfg.lora.scale, x, err);
        at += (size_t)sum->part[k].adapters->cfg.lora.rank;
    }
    if (code == BT_OK) memcpy(out, x + first, count * sizeof *out);
    free(x);
    return code;
}

static bt_code check_part(const bt_model_file *s, const bt_adapter_part *p, bt_err *err) {
    const bt_model_file *f = p->adapters;
    if (f->cfg.classes)
        return bt_fail(err, BT_ARG, "'%.200s' is a classifier, whose adapters cannot be added",
                       f->path);
    for (size_t i = 0; i < f->params.n; i++) {
        const bt_tensor *own = &f->params.tensors[i],
                        *t = bt_params_get(&s->params, own->layer, own->id);
        if (t && (is_matrix_a(t) ? t->cols == own->cols : t->rows == own->rows)) continue;
        return bt_fail(err, BT_ARG,
                       "the adapters in '%.200s' are for a model with another shape than those in "
                       "'%.200s': their '%s' differs",
                       f->path, s->path, own->name);
    }
    return BT_OK;
}

static bt_code build_adapter_sum(bt_model_file *s, const adapter_sum *sum, double scale,
                                 bt_err *err) {
    s->arch = BT_ARCH_COUNT;
    s->container = BT_IN_NATIVE;
    s->number = BT_NUM_F32;
    s->cfg = sum->part[0].adapters->cfg;
    s->cfg.lora = (bt_lora){.scale = scale};
    memcpy(s->path, sum->part[0].adapters->path, sizeof s->path);
    for (size_t i = 0; i < sum->n; i++) {
        s->cfg.lora.rank += sum->part[i].adapters->cfg.lora.rank;
        s->cfg.lora.targets |= sum->part[i].adapters->cfg.lora.targets;
    }
    BT_TRY(bt_model_file_tables(s, err));
    for (size_t i = 0; i < sum->n; i++) BT_TRY(check_part(s, &sum->part[i], err));
    return BT_OK;
}

bt_code bt_adapter_sum_open(bt_model_file **out, const bt_adapter_part *parts, size_t n,
                            double scale, bt_err *err) {
    bt_model_file *s = calloc(1, sizeof *s);
    adapter_sum *sum = calloc(1, sizeof *sum);
    *out = NULL;
    if (!s || !sum) {
        bt_adapter_parts_close(parts, n);
        free(s);
        free(sum);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to add adapters");
    }
    sum->n = n;
    memcpy(sum->part, parts, n * sizeof *parts);
    s->view = (bt_model_view){.ctx = sum, .read = read_sum, .release = release_adapter_sum};
    bt_code code = bt_adapter_parts_check(parts, n, err);
    if (code == BT_OK) code = build_adapter_sum(s, sum, scale, err);
    if (code == BT_OK)
        *out = s;
    else
        bt_model_file_close(s);
    return code;
}
