/* guard.c - classifies steps by the history of good steps and counts bad ones. */
#include "engine/train/parts/bad_steps/guard.h"
#include "engine/base/tables/derived.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* minimum sigma: of the loss, as a fraction of its median; of ln(norm), absolute */
static const double LEAST_LOSS_SIGMA = 0.02, LEAST_NORM_SIGMA = 0.25;
static const double SIGMA_PER_MAD = 1 / 0.6745; /* for normally distributed values */

const char *bt_guard_find(const bt_params *p, const double *squares) {
    for (size_t i = 0; i < p->n; i++)
        if (!isfinite(squares[i])) return p->tensors[i].name;
    return NULL;
}

static int64_t known_good_steps(const bt_guard *g) { return g->n < g->window ? g->n : g->window; }

/* Distance of `value` from the median of the ring, in sigmas. least: minimum sigma; a fraction of the median if
 * `relative`. */
static bt_spike spike_score(bt_guard *g, const double *ring, double value, double least,
                            bool relative) {
    const int64_t n = known_good_steps(g);
    bt_spike s = {.value = value};
    memcpy(g->sorted, ring, (size_t)n * sizeof *ring);
    s.median = bt_median_known(g->sorted, (size_t)n);
    for (int64_t i = 0; i < n; i++) g->sorted[i] = fabs(ring[i] - s.median);
    s.z = (value - s.median) / fmax(SIGMA_PER_MAD * bt_median_known(g->sorted, (size_t)n),
                                    relative ? least * fabs(s.median) : least);
    return s;
}

bt_step_verdict bt_guard_classify(bt_guard *g, const bt_step_facts *f, bt_spike *spike) {
    bt_spike loss = {.z = NAN}, norm = {.z = NAN};
    if (spike) *spike = loss;
    if (!f->loss_finite || !isfinite(f->grad_norm)) return BT_STEP_NOT_FINITE;
    if (g->spike_limit <= 0 || 2 * known_good_steps(g) < g->window) return BT_STEP_GOOD;
    if (isfinite(f->loss)) loss = spike_score(g, g->loss, f->loss, LEAST_LOSS_SIGMA, true);
    if (f->grad_norm > 0)
        norm = spike_score(g, g->norm, log(f->grad_norm), LEAST_NORM_SIGMA, false);
    norm.value = exp(norm.value);
    norm.median = exp(norm.median);
    const bool loss_spikes = loss.z > g->spike_limit, norm_spikes = norm.z > g->spike_limit;
    if (spike && (loss_spikes || norm_spikes)) *spike = loss_spikes ? loss : norm;
    return loss_spikes ? BT_STEP_LOSS_SPIKE : norm_spikes ? BT_STEP_NORM_SPIKE : BT_STEP_GOOD;
}

void bt_guard_good(bt_guard *g, const bt_step_facts *f) {
    g->in_row = 0;
    if (g->window <= 0 || !(f->grad_norm > 0)) return;
    const int64_t at = g->n++ % g->window;
    g->loss[at] = isfinite(f->loss) ? f->loss : 0;
    g->norm[at] = log(f->grad_norm);
}

void bt_guard_bad(bt_guard *g) {
    g->in_row++;
    g->skipped++;
}

void bt_guard_forget(bt_guard *g) {
    g->n = 0;
    g->in_row = 0;
}

bt_code bt_guard_verdict(const bt_guard *g, int64_t step, const char *tensor, bt_err *err) {
    if (g->in_row < g->patience) return BT_OK;
    return bt_fail(
        err, BT_CHECK,
        "%s was not finite in %d consecutive steps, the last one step %lld (last: '%s'; lower "
        "optim.lr, or resume from an earlier checkpoint)",
        tensor ? "the gradient" : "the loss", g->in_row, (long long)step, tensor ? tensor : "loss");
}

/* Each value is written as the 16 hexadecimal digits of its bits, because a state in memory is written at every
 * step. Oldest first, so that a shorter window reads the newest values. */
enum { DIGITS = 16 };

static void save_ring(const bt_guard *g, const double *ring, const char *key, bt_json *j) {
    static const char digits[] = "0123456789abcdef";
    char text[BT_GUARD_WINDOW_MAX * DIGITS + 1], *to = text;
    const int64_t n = known_good_steps(g);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &ring[(g->n - n + i) % g->window], sizeof bits);
        for (int shift = 60; shift >= 0; shift -= 4) *to++ = digits[bits >> shift & 15];
    }
    *to = '\0';
    bt_json_str(j, key, text);
}

/* Reads at most the newest g->window values. Returns their number, 0 if the text is missing or invalid. */
static int64_t load_ring(const bt_guard *g, const bt_state_values *v, const char *key,
                         double *ring) {
    const char *text = bt_state_text(v, key);
    const size_t length = text ? strlen(text) : 0, all = length / DIGITS, most = (size_t)g->window,
                 n = all < most ? all : most;
    if (length % DIGITS != 0) return 0;
    for (size_t i = 0; i < n; i++) {
        char word[DIGITS + 1] = "", *end;
        memcpy(word, text + (all - n + i) * DIGITS, DIGITS);
        const uint64_t bits = strtoull(word, &end, 16);
        memcpy(&ring[i], &bits, sizeof bits);
        if (*end || !isfinite(ring[i])) return 0;
    }
    return (int64_t)n;
}

static void save_guard(void *ctx, bt_json *j) {
    const bt_guard *g = ctx;
    bt_json_int(j, "bad_in_a_row", g->in_row);
    save_ring(g, g->loss, "loss", j);
    save_ring(g, g->norm, "ln_grad_norm", j);
}

static void load_guard(void *ctx, const bt_state_values *v) {
    bt_guard *g = ctx;
    g->in_row = (int)bt_state_int(v, "bad_in_a_row", 0);
    if (g->in_row < 0 || g->in_row > g->patience) g->in_row = 0;
    g->n = load_ring(g, v, "loss", g->loss);
    if (load_ring(g, v, "ln_grad_norm", g->norm) != g->n) g->n = 0;
}

void bt_guard_add_state(bt_guard *g, bt_state *s) {
    bt_state_add(
        s, &(bt_state_row){.name = "guard", .ctx = g, .save = save_guard, .load = load_guard});
}
