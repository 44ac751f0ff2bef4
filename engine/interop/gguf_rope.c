/* gguf_rope.c - the scaling of rotary frequencies in GGUF files: keys, and tensors of divisors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/interop/gguf_keys.h"
#include "engine/interop/gguf_reader.h"

#define SHORTER "rope_factors_short.weight"
#define LONGER "rope_factors_long.weight"
enum { MOST = 512 };

static bt_code read_divisors(bt_gguf_reader *r, bt_stored *t, int n, float by[MOST], bt_err *err) {
    t->used = true;
    if (t->number != BT_NUM_F32 || t->rows != 1 || n > MOST || t->cols != (uint64_t)n)
        return bt_fail(err, BT_FORMAT, "tensor '%s' does not consist of %d numbers of type f32",
                       t->name, n);
    BT_TRY(bt_foreign_read(&r->s->stored.files[t->file], by, (size_t)n * sizeof *by, t->at, err));
    for (int i = 0; i < n; i++)
        if (!(by[i] > 0) || isinf(by[i]))
            return bt_fail(err, BT_FORMAT, "number %d of tensor '%s' is not positive", i, t->name);
    return BT_OK;
}

static bt_code read_longrope_tensor(bt_gguf_reader *r, const char *name, bt_rope_divisors *out,
                                    bt_err *err) {
    bt_stored *t = bt_stored_find(&r->s->stored, name);
    float by[MOST];
    if (!t) return bt_fail(err, BT_FORMAT, "tensor '%s', which longrope needs, is missing", name);
    out->n = (int)bt_model_rotary(&r->s->cfg) / 2;
    if (out->n > BT_ROPE_PAIRS)
        return bt_fail(err, BT_UNSUPPORTED,
                       "longrope scales %d frequencies, but at most %d are supported", out->n,
                       BT_ROPE_PAIRS);
    BT_TRY(read_divisors(r, t, out->n, by, err));
    memcpy(out->by, by, (size_t)out->n * sizeof *by);
    return BT_OK;
}

/* Files of Phi-3 do not name the method. */
static bt_code read_gguf_longrope(bt_gguf_reader *r, bt_err *err) {
    bt_rope_scaling *s = &r->s->cfg.rope;
    double attention = 1;
    *s = (bt_rope_scaling){.method = BT_ROPE_LONGROPE, .low = 1, .high = 4};
    BT_TRY(read_longrope_tensor(r, SHORTER, &s->shorter, err));
    BT_TRY(read_longrope_tensor(r, LONGER, &s->longer, err));
    BT_TRY(bt_gguf_read_integer(r, "rope.scaling.original_context_length", 1, 1 << 30, &s->context,
                                err));
    BT_TRY(bt_gguf_read_real(r, "rope.scaling.attn_factor", false, &attention, err));
    s->factor = fmax(1, (double)r->s->cfg.T / s->context);
    if (fabs(attention / bt_rope_attention(s) - 1) > 1e-6) s->attention = attention;
    return BT_OK;
}

static bt_code read_gguf_scaling(bt_gguf_reader *r, bt_err *err) {
    bt_model_cfg *m = &r->s->cfg;
    const bt_gguf_kv *type = bt_gguf_model_key(r, "rope.scaling.type");
    const char *word = type ? type->text : NULL;
    double attention = 1;
    bt_rope_scaling s = {.factor = 1, .low = 1, .high = 32};
    BT_TRY(bt_gguf_read_real(r, "rope.scaling.factor", false, &s.factor, err));
    BT_TRY(bt_gguf_read_real(r, "rope.scaling.attn_factor", false, &attention, err));
    if (type && !word) return bt_fail(err, BT_FORMAT, "'%s' is not a text", type->key);
    const bool yarn = word && strcmp(word, "yarn") == 0;
    if (word && strcmp(word, "longrope") == 0)
        return bt_fail(err, BT_FORMAT,
                       "it scales the rotary embedding by longrope, but has no tensors '" SHORTER
                       "' and '" LONGER "'");
    if (word && !yarn && strcmp(word, "none") != 0 && strcmp(word, "linear") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "it scales the rotary embedding by the method '%.40s', which is not "
                       "supported (supported: none, linear, yarn, longrope)",
                       word);
    if (!yarn && attention != 1)
        return bt_fail(err, BT_UNSUPPORTED,
                       "'%s.rope.scaling.attn_factor' is %g without yarn, which is not supported",
                       r->arch, attention);
    if (word && strcmp(word, "none") == 0) return BT_OK;
    if (!yarn) { /* llama.cpp uses a factor without a method as linear */
        if (s.factor != 1)
            m->rope = (bt_rope_scaling){.method = BT_ROPE_LINEAR, .factor = s.factor};
        return BT_OK;
    }
    s.method = BT_ROPE_YARN;
    s.context = m->T;
    BT_TRY(bt_gguf_read_integer(r, "rope.scaling.original_context_length", 0, 1 << 30, &s.context,
                                err));
    BT_TRY(bt_gguf_read_real(r, "rope.scaling.yarn_beta_slow", false, &s.low, err));
    BT_TRY(bt_gguf_read_real(r, "rope.scaling.yarn_beta_fast", false, &s.high, err));
    if (attention != 1) s.attention = attention * bt_rope_attention(&s);
    m->rope = s;
    return BT_OK;
}

/* A file of Llama 3 has a divisor for each frequency instead of the settings from which they were computed. The
 * published models share all settings but factor and context; other divisors are refused. */
static bt_code read_llama3(bt_gguf_reader *r, bt_err *err) {
    static const int contexts[] = {8192, 2048, 4096, 16384, 32768, 65536, 131072};
    bt_model_cfg *m = &r->s->cfg;
    bt_stored *t = bt_stored_find(&r->s->stored, "rope_freqs.weight");
    float by[MOST], top = 1;
    if (!t) return BT_OK;
    const int n = m->D / 2;
    BT_TRY(read_divisors(r, t, n, by, err));
    for (int i = 0; i < n; i++) top = by[i] > top ? by[i] : top;
    char factor[32];
    (void)snprintf(factor, sizeof factor, "%.6g",
                   (double)top); /* exact, because no quotient is rounded */
    for (size_t k = 0; k < sizeof contexts / sizeof *contexts; k++) {
        const bt_rope_scaling s = {.method = BT_ROPE_LLAMA3,
                                   .factor = strtod(factor, NULL),
                                   .context = contexts[k],
                                   .low = 1,
                                   .high = 4};
        int equal = 0;
        while (equal < n &&
               fabsf(by[equal] / bt_rope_divisor(equal, m->rope_theta, &s, m->D) - 1) < 1e-5F)
            equal++;
        if (equal < n) continue;
        m->rope = s;
        return BT_OK;
    }
    return bt_fail(err, BT_UNSUPPORTED,
                   "tensor '%s' scales the rotary frequencies differently from Llama 3, which is "
                   "not supported",
                   t->name);
}

bt_code bt_gguf_rope_read(bt_gguf_reader *r, bt_err *err) {
    if (bt_stored_find(&r->s->stored, SHORTER) || bt_stored_find(&r->s->stored, LONGER))
        return read_gguf_longrope(r, err);
    BT_TRY(read_gguf_scaling(r, err));
    return read_llama3(r, err);
}

static void add_rope_key(bt_gguf_rope *out, const char *name, bool real, double value) {
    out->keys[out->n_keys++] = (bt_gguf_rope_key){name, real, value};
}

static void add_longrope_tensor(bt_gguf_rope *out, const char *name, const bt_rope_divisors *d) {
    bt_gguf_rope_tensor *t = &out->tensors[out->n_tensors++];
    t->name = name;
    t->n = (size_t)d->n;
    memcpy(t->by, d->by, t->n * sizeof *t->by);
}

/* llama.cpp reads the scaling of Llama 3 as a divisor for each frequency. */
static void add_llama3_tensor(bt_gguf_rope *out, const bt_model_cfg *c) {
    bt_gguf_rope_tensor *t = &out->tensors[out->n_tensors++];
    t->name = "rope_freqs.weight";
    t->n = (size_t)c->D / 2;
    for (size_t i = 0; i < t->n; i++)
        t->by[i] = bt_rope_divisor((int)i, c->rope_theta, &c->rope, c->D);
}

void bt_gguf_rope_write(bt_gguf_rope *out, const bt_model_cfg *c) {
    const bt_rope_scaling *r = &c->rope;
    *out = (bt_gguf_rope){0};
    if (r->method == BT_ROPE_LLAMA3) add_llama3_tensor(out, c);
    if (r->method == BT_ROPE_LONGROPE) {
        add_longrope_tensor(out, SHORTER, &r->shorter);
        add_longrope_tensor(out, LONGER, &r->longer);
        add_rope_key(out, "rope.scaling.original_context_length", false, r->context);
        add_rope_key(out, "rope.scaling.attn_factor", true, bt_rope_attention(r));
    }
    if (r->method != BT_ROPE_LINEAR && r->method != BT_ROPE_YARN) return;
    out->type = r->method == BT_ROPE_YARN ? "yarn" : "linear";
    add_rope_key(out, "rope.scaling.factor", true, r->factor);
    if (r->method == BT_ROPE_LINEAR) return;
    const bt_rope_scaling automatic = {.method = BT_ROPE_YARN, .factor = r->factor};
    add_rope_key(out, "rope.scaling.original_context_length", false, r->context);
    add_rope_key(out, "rope.scaling.yarn_beta_slow", true, r->low);
    add_rope_key(out, "rope.scaling.yarn_beta_fast", true, r->high);
    if (r->attention > 0)
        add_rope_key(out, "rope.scaling.attn_factor", true,
                     r->attention / bt_rope_attention(&automatic));
}
