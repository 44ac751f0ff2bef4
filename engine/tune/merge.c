/* merge.c - reads a tensor of the base, adds its adapters, and quantises the sum if requested. */
#include "engine/tune/merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/interop/out_file.h"
#include "engine/model/net/model.h"
#include "engine/tune/base_weights.h"

typedef struct merged {
    bt_adapter_part part[BT_ADAPTER_PARTS];
    size_t n_parts;
    bt_merge_kind kind;
    float *w; /* the merged tensor `at`; SIZE_MAX: none yet */
    size_t at;
    float *
        *scales; /* [params.n][scales of the tensor] scales of the codes; NULL: not computed yet */
    uint64_t *changed_codes,
        *codes; /* [params.n] number of changed codes, and of all codes, in the tensors that have been read */
    bool ternary;        /* the base */
    bt_scale_kind scale; /* its scales */
    size_t n;            /* number of its tensors */
} merged;

static void release_merged(void *ctx) {
    merged *m = ctx;
    bt_adapter_parts_close(m->part, m->n_parts);
    free(m->w);
    for (size_t i = 0; m->scales && i < m->n; i++) free(m->scales[i]);
    free(m->scales);
    free(m->changed_codes);
    free(m->codes);
    free(m);
}

static bt_code read_adapter(bt_model_file *adapters, const bt_tensor *t, bt_param_id id,
                            float **out, size_t *rank, bt_err *err) {
    const bt_params *p = &adapters->params;
    const bt_tensor *a = bt_params_get(p, t->layer, id);
    *out = NULL;
    if (!a) return BT_OK;
    *rank = id == bt_adapter_a(t->id) ? a->rows : a->cols;
    *out = malloc(a->count * sizeof **out);
    if (!*out) return bt_fail(err, BT_NOMEM, "cannot allocate memory to merge '%s'", t->name);
    return bt_model_file_read(adapters, (size_t)(a - p->tensors), 0, a->count, *out, err);
}

static void add_adapter_product(const merged *m, const bt_tensor *t, const float *a, const float *b,
                                size_t rank, double scale) {
    for (size_t n = 0; n < t->rows; n++)
        for (size_t r = 0; r < rank; r++) {
            const float s = (float)(scale * (double)b[n * rank + r]);
            for (size_t k = 0; k < t->cols; k++) m->w[n * t->cols + k] += s * a[r * t->cols + k];
        }
}

static bt_code add_adapter_part(const merged *m, const bt_tensor *t, const bt_adapter_part *p,
                                bt_err *err) {
    float *a = NULL, *b = NULL;
    size_t rank = 0;
    bt_code code = read_adapter(p->adapters, t, bt_adapter_a(t->id), &a, &rank, err);
    if (code == BT_OK) code = read_adapter(p->adapters, t, bt_adapter_b(t->id), &b, &rank, err);
    if (code == BT_OK && a) /* weight times alpha / rank */
        add_adapter_product(m, t, a, b, rank, p->weight * p->adapters->cfg.lora.scale);
    free(a);
    free(b);
    return code;
}

static bt_code add_adapter_parts(const merged *m, const bt_tensor *t, bt_err *err) {
    for (size_t i = 0; i < m->n_parts; i++) BT_TRY(add_adapter_part(m, t, &m->part[i], err));
    return BT_OK;
}

/* Returns m_j / |row j of w|, for w the sum of the base's weights and the adapter's product; NULL without magnitudes. A
 * row of zeros has the factor 1, as in training. */
static bt_code row_factors(const merged *m, const bt_tensor *t, float **factors, bt_err *err) {
    size_t one;
    bt_code code = read_adapter(m->part[0].adapters, t, bt_adapter_m(t->id), factors, &one, err);
    for (size_t r = 0; code == BT_OK && *factors && r < t->rows; r++) {
        double sum = 0;
        for (size_t k = 0; k < t->cols; k++)
            sum += (double)m->w[r * t->cols + k] * (double)m->w[r * t->cols + k];
        (*factors)[r] = sum > 0 ? (float)((double)(*factors)[r] / sqrt(sum)) : 1;
    }
    return code;
}

static void scale_rows(const merged *m, const bt_tensor *t, const float *factors) {
    for (size_t r = 0; factors && r < t->rows; r++)
        for (size_t k = 0; k < t->cols; k++) m->w[r * t->cols + k] *= factors[r];
}

/* Adds the adapters to w. With magnitudes, w has the weights as the base's products read them, and the rows are
 * multiplied by their factors; latent: those factors are applied to the base's latent weights. */
static bt_code adapt(bt_model_file *s, const merged *m, size_t i, bool latent, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    float *factors = NULL;
    BT_TRY(add_adapter_parts(m, t, err));
    bt_code code = row_factors(m, t, &factors, err);
    const bool again = latent && factors;
    if (code == BT_OK && again) code = bt_model_file_read_own(s, i, 0, t->count, m->w, err);
    if (code == BT_OK && again) code = add_adapter_parts(m, t, err);
    if (code == BT_OK) scale_rows(m, t, factors);
    free(factors);
    return code;
}

/* Rounds like bt_op_tern_codes. inv: 1 / scale. */
static float quantise_weight(float x, float inv) {
    return fminf(fmaxf(rintf(x * inv), -1.0f), 1.0f);
}

/* Quantises n weights with one scale g, which is updated, to weights from which absmean gives the same codes and g. */
static void requantise(float *w, size_t n, bt_merge_kind kind, float *g) {
    double along = 0;
    uint64_t some = 0;
    for (size_t k = 0; k < n; k++) {
        const float c = quantise_weight(w[k], 1 / *g);
        along += (double)w[k] * (double)c;
        some += c != 0;
        w[k] = c;
    }
    if (kind == BT_MERGE_FIT && some && along > 0) *g = (float)(along / (double)some);
    const float level = some ? (float)((double)*g * (double)n / (double)some) : 0;
    for (size_t k = 0; k < n; k++) w[k] *= level;
}

static size_t count_merged_scales(const merged *m, const bt_tensor *t) {
    return m->scale == BT_SCALE_TENSOR ? 1 : t->count / bt_scale_inputs(m->scale, t->cols);
}

static void measure_scales(const merged *m, const bt_tensor *t, float *scales) {
    if (m->scale != BT_SCALE_TENSOR)
        bt_model_scale_rows(scales, m->w, count_merged_scales(m, t),
                            bt_scale_inputs(m->scale, t->cols));
    else
        scales[0] = bt_absmean(t, m->w);
}

/* Adds the adapters to codes and scales of the base. before: receives the codes of the base. */
static bt_code merge_codes(bt_model_file *s, const merged *m, size_t i, float *scales,
                           int8_t *before, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    const size_t n = count_merged_scales(m, t), each = t->count / n;
    measure_scales(m, t, scales);
    for (size_t k = 0; k < t->count; k++) {
        const float g = scales[k / each];
        before[k] = (int8_t)quantise_weight(m->w[k], 1 / g);
        if (m->kind != BT_MERGE_LATENT || m->part[0].adapters->cfg.lora.dora)
            m->w[k] = g * (float)before[k];
    }
    BT_TRY(adapt(s, m, i, m->kind == BT_MERGE_LATENT, err));
    for (size_t k = 0; k < n && (m->kind == BT_MERGE_KEEP || m->kind == BT_MERGE_FIT); k++)
        requantise(m->w + k * each, each, m->kind, &scales[k]);
    return BT_OK;
}

/* now: memory for the scales of the merged weights, with which their readers quantise. */
static uint64_t count_changed_codes(const merged *m, const bt_tensor *t, const float *scales,
                                    float *now, const int8_t *before) {
    const size_t n = count_merged_scales(m, t), each = t->count / n;
    uint64_t changed = 0;
    if (m->kind == BT_MERGE_DENSE)
        memcpy(now, scales, n * sizeof *now);
    else
        measure_scales(m, t, now);
    for (size_t k = 0; k < t->count; k++)
        changed += (int8_t)quantise_weight(m->w[k], 1 / now[k / each]) != before[k];
    return changed;
}

static bt_code merge_ternary(bt_model_file *s, merged *m, size_t i, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    const size_t n = count_merged_scales(m, t);
    float *scales = m->scales[i], *now = malloc(n * sizeof *now);
    int8_t *before = malloc(t->count);
    if (!scales) scales = m->scales[i] = malloc(n * sizeof *scales);
    bt_code code = scales && now && before
                       ? merge_codes(s, m, i, scales, before, err)
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory to merge '%s'", t->name);
    if (code == BT_OK) {
        m->changed_codes[i] = count_changed_codes(m, t, scales, now, before);
        m->codes[i] = t->count;
    }
    free(before);
    free(now);
    return code;
}

static bt_code load_merged_tensor(bt_model_file *s, merged *m, size_t i, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    m->at = SIZE_MAX;
    free(m->w);
    m->w = malloc(t->count * sizeof *m->w);
    if (!m->w) return bt_fail(err, BT_NOMEM, "cannot allocate memory to merge '%s'", t->name);
    bt_code code = bt_model_file_read_own(s, i, 0, t->count, m->w, err);
    if (code == BT_OK) code = m->ternary ? merge_ternary(s, m, i, err) : adapt(s, m, i, false, err);
    if (code == BT_OK) m->at = i;
    return code;
}

static bt_code read_merged(void *ctx, bt_model_file *s, size_t i, uint64_t first, uint64_t count,
                           float *out, bt_err *err) {
    merged *m = ctx;
    if (!s->params.tensors[i].linear) return bt_model_file_read_own(s, i, first, count, out, err);
    if (m->at != i) BT_TRY(load_merged_tensor(s, m, i, err));
    memcpy(out, m->w + first, count * sizeof *out);
    return BT_OK;
}

static bt_code merged_scale(void *ctx, bt_model_file *s, size_t i, float *scale, bt_err *err) {
    merged *m = ctx;
    const bool coded = m->kind == BT_MERGE_KEEP || m->kind == BT_MERGE_FIT;
    *scale = 0;
    if (!coded || !s->params.tensors[i].linear) return BT_OK;
    if (!m->scales[i]) BT_TRY(load_merged_tensor(s, m, i, err));
    memcpy(scale, m->scales[i], count_merged_scales(m, &s->params.tensors[i]) * sizeof *scale);
    return BT_OK;
}

static bt_code check_merge(const bt_model_file *s, bt_merge_kind kind, bt_err *err) {
    if (s->cfg.lora.rank)
        return bt_fail(err, BT_ARG, "'%.200s' contains adapters and cannot be a base", s->path);
    if (s->cfg.linear == BT_LIN_BITNET1)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "adapters of a model with binary weights (model.linear=bitnet1) cannot be merged");
    if (s->cfg.linear == BT_LIN_DENSE && kind != BT_MERGE_DENSE)
        return bt_fail(err, BT_ARG,
                       "'%.200s' is a dense model, which has no codes (use --merge dense)",
                       s->path);
    return BT_OK;
}

/* Changes the model to dense layers with the same tensors. */
static bt_code convert_to_dense(bt_model_file *s, bt_err *err) {
    s->cfg.linear = BT_LIN_DENSE;
    s->cfg.scale = BT_SCALE_TENSOR;
    bt_params_release(&s->params);
    return bt_params_init(&s->params, &s->cfg, (bt_model_slice){0}, err);
}

static bt_code create_merged_view(bt_model_file *s, const bt_adapter_part *parts, size_t n_parts,
                                  bt_merge_kind kind, bt_err *err) {
    merged *m = calloc(1, sizeof *m);
    if (!m) {
        bt_adapter_parts_close(parts, n_parts);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to merge adapters");
    }
    const size_t n = s->params.n;
    *m = (merged){.n_parts = n_parts,
                  .kind = kind,
                  .at = SIZE_MAX,
                  .scales = calloc(n, sizeof *m->scales),
                  .changed_codes = calloc(n, sizeof *m->changed_codes),
                  .codes = calloc(n, sizeof *m->codes),
                  .ternary = s->cfg.linear == BT_LIN_BITNET158,
                  .scale = s->cfg.scale,
                  .n = n};
    memcpy(m->part, parts, n_parts * sizeof *parts);
    s->view = (bt_model_view){
        .ctx = m, .read = read_merged, .scale = merged_scale, .release = release_merged};
    if (!m->scales || !m->changed_codes || !m->codes)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to merge adapters");
    return kind == BT_MERGE_DENSE && m->ternary ? convert_to_dense(s, err) : BT_OK;
}

bt_code bt_merge_open(bt_model_file **out, const bt_adapter_part *parts, size_t n, const char *base,
                      bt_merge_kind kind, bt_err *err) {
    bt_model_file *s = NULL;
    bt_base_weights weights = {0};
    *out = NULL;
    bt_code code = bt_model_file_open(&s, base, err);
    if (code == BT_OK && n && parts[0].adapters->cfg.linear == BT_LIN_DENSE)
        code = bt_model_file_keep_floats(s, err);
    if (code == BT_OK) code = check_merge(s, kind, err);
    if (code == BT_OK) code = bt_adapter_parts_check(parts, n, err);
    if (code == BT_OK) code = bt_base_weights_hash(&weights, s, err);
    for (size_t i = 0; code == BT_OK && i < n; i++) {
        weights.trained_on = bt_base_weights_of(&parts[i].adapters->meta);
        code = bt_base_weights_check(&weights, s->path, err);
    }
    if (code != BT_OK) {
        bt_adapter_parts_close(parts, n);
        bt_model_file_close(s);
        return code;
    }
    code = create_merged_view(s, parts, n, kind, err);
    if (code != BT_OK)
        bt_model_file_close(s);
    else
        *out = s;
    return code;
}

void bt_merge_describe(const bt_model_file *s, bt_text *notes) {
    const merged *m = s->view.ctx;
    uint64_t changed_codes = 0, codes = 0;
    for (size_t i = 0; i < s->params.n; i++)
        changed_codes += m->changed_codes[i], codes += m->codes[i];
    for (size_t i = 0; i < m->n_parts; i++) {
        const bt_model_file *a = m->part[i].adapters;
        bt_text_printf(notes, "adapters of rank %d%s merged (%zu matrices)", a->cfg.lora.rank,
                       a->cfg.lora.dora ? " with magnitudes (DoRA)" : "",
                       a->params.n / (a->cfg.lora.dora ? 3 : 2));
        if (m->n_parts > 1 || m->part[i].weight < 1 || m->part[i].weight > 1)
            bt_text_printf(notes, ", %g of '%s'", m->part[i].weight, a->path);
        bt_text_printf(notes, "\n");
    }
    if (!codes) return;
    const double share = 100 * (double)changed_codes / (double)codes;
    if (m->kind == BT_MERGE_DENSE)
        bt_text_printf(notes,
                       "the layers are dense now and read floats: the base's read int8, so the "
                       "loss may differ a little; compare 'bitrain eval' of both\n");
    else
        bt_text_printf(notes,
                       "%llu of %llu codes turned (%.2f %%): quantising again loses a part of what "
                       "was learned; compare 'bitrain eval' of both\n",
                       (unsigned long long)changed_codes, (unsigned long long)codes, share);
}
