/* learn_result.c - means with their standard errors, as a table, as JSON, as curves. */
#include "cli/bench/learn_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/curve_table.h"
#include "cli/common/database.h"
#include "cli/common/given_path.h"
#include "engine/base/text.h"
#include "engine/kernels/table/cpu.h"

typedef struct mean {
    double value, error; /* error: the standard error of the mean, NaN of one */
} mean;

static mean mean_of(const double *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    for (size_t i = 0; i < n; i++) squares += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
    return (mean){sum / (double)n, n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : NAN};
}

typedef struct summary {
    mean bits, minutes, goal_minutes, goal_tokens;
    mean
        apart; /* bits at the end over those of the first recipe's run with the same seed, less 1 */
} summary;

static const bt_learn_run *run_of(const bt_learn *b, size_t recipe, size_t corpus, size_t seed) {
    return &b->runs[(seed * b->n_corpora + corpus) * b->n_recipes + recipe];
}

static double last_bits(const bt_learn_run *r) { return r->curve[r->n - 1].bits; }

static summary summary_of(const bt_learn *b, size_t recipe, size_t corpus) {
    double x[5][BT_LEARN_SEEDS];
    const size_t n = (size_t)b->cfg->seeds;
    for (size_t i = 0; i < n; i++) {
        const bt_learn_run *r = run_of(b, recipe, corpus, i);
        x[0][i] = last_bits(r);
        x[1][i] = r->curve[r->n - 1].minutes;
        x[2][i] = r->goal_minutes;
        x[3][i] = r->goal_tokens;
        x[4][i] = last_bits(r) / last_bits(run_of(b, 0, corpus, i)) - 1;
    }
    return (summary){mean_of(x[0], n), mean_of(x[1], n), mean_of(x[2], n), mean_of(x[3], n),
                     mean_of(x[4], n)};
}

static void put_mean(bt_json *j, const char *key, const char *error, mean m) {
    bt_json_num(j, key, m.value);
    bt_json_num(j, error, m.error);
}

bt_code bt_learn_json(const bt_learn *b, bt_err *err) {
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "version", 1);
    bt_json_num(&j, "goal", b->cfg->goal);
    bt_json_array(&j, "summary");
    for (size_t k = 0; k < b->n_corpora; k++) {
        for (size_t i = 0; i < b->n_recipes; i++) {
            const summary s = summary_of(b, i, k), first = summary_of(b, 0, k);
            bt_json_object(&j, NULL);
            bt_json_str(&j, "recipe", b->recipes[i].name);
            bt_json_str(&j, "settings", b->recipes[i].rest);
            bt_json_str(&j, "corpus", b->corpora[k].name);
            bt_json_int(&j, "seeds", b->cfg->seeds);
            put_mean(&j, "bits_per_byte", "bits_per_byte_error", s.bits);
            put_mean(&j, "against_first_frac", "against_first_frac_error", s.apart);
            put_mean(&j, "minutes", "minutes_error", s.minutes);
            put_mean(&j, "goal_minutes", "goal_minutes_error", s.goal_minutes);
            put_mean(&j, "goal_tokens", "goal_tokens_error", s.goal_tokens);
            bt_json_num(&j, "sooner", first.goal_minutes.value / s.goal_minutes.value);
            bt_json_end(&j, '}');
        }
    }
    bt_json_end(&j, ']');
    bt_json_array(&j, "runs");
    for (size_t i = 0; i < b->n_runs; i++) {
        const bt_learn_run *r = &b->runs[i];
        bt_json_object(&j, NULL);
        bt_json_str(&j, "recipe", b->recipes[r->recipe].name);
        bt_json_str(&j, "corpus", b->corpora[r->corpus].name);
        bt_json_int(&j, "seed", r->seed);
        bt_json_num(&j, "goal_minutes", r->goal_minutes);
        bt_json_num(&j, "goal_tokens", r->goal_tokens);
        bt_json_array(&j, "curve");
        for (size_t k = 0; k < r->n; k++)
            bt_curves_point_json(&j, r->curve[k].minutes, r->curve[k].tokens, r->curve[k].bits);
        bt_json_end(&j, ']');
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    return bt_cli_put(&out, err);
}

static const char *number(char *buf, size_t size, const char *format, double value) {
    if (isfinite(value))
        snprintf(buf, size, format, value);
    else
        snprintf(buf, size, "-");
    return buf;
}

void bt_learn_table(const bt_learn *b) {
    char t[8][32];
    printf("%-16s %-12s %9s %7s %16s %8s | to %.2f bits: %8s %8s %7s\n", "recipe", "corpus",
           "bits/byte", "+-", "against first", "minutes", b->cfg->goal, "minutes", "M tokens",
           "sooner");
    for (size_t k = 0; k < b->n_corpora; k++) {
        const summary first = summary_of(b, 0, k);
        for (size_t i = 0; i < b->n_recipes; i++) {
            const summary s = summary_of(b, i, k);
            number(t[0], sizeof t[0], i ? "%+.2f %%" : "", 100 * s.apart.value);
            if (i && isfinite(s.apart.error))
                snprintf(t[0], sizeof t[0], "%+.2f +- %.2f %%", 100 * s.apart.value,
                         100 * s.apart.error);
            printf("%-16s %-12s %9s %7s %16s %8s | %12s %8s %8s %7s\n", b->recipes[i].name,
                   b->corpora[k].name, number(t[1], sizeof t[1], "%.4f", s.bits.value),
                   number(t[2], sizeof t[2], "%.4f", s.bits.error), t[0],
                   number(t[3], sizeof t[3], "%.2f", s.minutes.value), "",
                   number(t[4], sizeof t[4], "%.2f", s.goal_minutes.value),
                   number(t[5], sizeof t[5], "%.2f", s.goal_tokens.value / 1e6),
                   number(t[6], sizeof t[6], "%.2fx",
                          first.goal_minutes.value / s.goal_minutes.value));
        }
    }
    if (b->n_recipes > 1)
        puts("against first: bits per byte beside those of the first recipe with the same seed, "
             "mean of the seeds and "
             "its standard error");
}

/* settings that blanks or ends of lines separate, on the rest of a line */
static void put_words(FILE *f, const char *text) {
    for (size_t n; *text; text += n) {
        text += strspn(text, " \n\t");
        n = strcspn(text, " \n\t");
        if (n) fprintf(f, " %.*s", (int)n, text);
    }
    fputc('\n', f);
}

bt_code bt_learn_curves(const bt_learn *b, bt_err *err) {
    bt_out_text out;
    if (!b->cfg->curves[0]) return BT_OK;
    BT_TRY(bt_out_text_open(&out, b->cfg->curves, b->cfg->force, err));
    fprintf(out.to,
            "# bitrain bench learn: bits per byte of validation over minutes of training steps\n"
            "# %d cores; all runs:",
            bt_cpu_get()->cores);
    put_words(out.to, b->cfg->with);
    for (size_t i = 0; i < b->n_recipes; i++) {
        fprintf(out.to, "# %s:", b->recipes[i].name);
        put_words(out.to, b->recipes[i].rest);
    }
    bt_curves_head(out.to);
    for (size_t i = 0; i < b->n_runs; i++) {
        const bt_learn_run *r = &b->runs[i];
        for (size_t k = 0; k < r->n; k++)
            bt_curves_put(out.to, b->recipes[r->recipe].name, b->corpora[r->corpus].name, r->seed,
                          r->curve[k].minutes, r->curve[k].tokens, r->curve[k].bits);
    }
    return bt_out_text_close(&out, BT_OK, err);
}
