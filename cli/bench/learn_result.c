/* learn_result.c - prints means with their standard errors as a table, as JSON, and as curves. */
#include "cli/bench/learn_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/curve_table.h"
#include "cli/common/given_path.h"
#include "cli/common/printout/printout.h"
#include "engine/base/text.h"
#include "engine/kernels/table/cpu.h"

typedef struct mean {
    double value, error; /* error: standard error of the mean; NaN for a single run */
} mean;

static mean mean_over_seeds(const double *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    for (size_t i = 0; i < n; i++) squares += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
    return (mean){sum / (double)n, n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : NAN};
}

typedef struct summary {
    mean bits, minutes, goal_minutes, goal_tokens;
    mean apart; /* final bits relative to those of the first recipe with the same seed, minus 1 */
} summary;

static const bt_learn_run *find_learn_run(const bt_learn *b, size_t recipe, size_t corpus,
                                          size_t seed) {
    return &b->runs[(seed * b->n_corpora + corpus) * b->n_recipes + recipe];
}

static double final_bits_per_byte(const bt_learn_run *r) { return r->curve[r->n - 1].bits; }

static summary summarise_recipe(const bt_learn *b, size_t recipe, size_t corpus) {
    double x[5][BT_LEARN_SEEDS];
    const size_t n = (size_t)b->cfg->seeds;
    for (size_t i = 0; i < n; i++) {
        const bt_learn_run *r = find_learn_run(b, recipe, corpus, i);
        x[0][i] = final_bits_per_byte(r);
        x[1][i] = r->curve[r->n - 1].minutes;
        x[2][i] = r->goal_minutes;
        x[3][i] = r->goal_tokens;
        x[4][i] = final_bits_per_byte(r) / final_bits_per_byte(find_learn_run(b, 0, corpus, i)) - 1;
    }
    return (summary){mean_over_seeds(x[0], n), mean_over_seeds(x[1], n), mean_over_seeds(x[2], n),
                     mean_over_seeds(x[3], n), mean_over_seeds(x[4], n)};
}

static void put_summary(bt_printout *o, const bt_learn *b, size_t recipe, size_t corpus) {
    const summary s = summarise_recipe(b, recipe, corpus), first = summarise_recipe(b, 0, corpus);
    bt_printout_row(o);
    bt_printout_str(o, "recipe", "recipe", b->recipes[recipe].name);
    bt_printout_str(o, "settings", NULL, b->recipes[recipe].rest);
    bt_printout_str(o, "corpus", "corpus", b->corpora[corpus].name);
    bt_printout_int(o, "seeds", NULL, b->cfg->seeds);
    bt_printout_numf(o, "bits_per_byte", "bits/byte", s.bits.value, 1, "%.4f");
    bt_printout_numf(o, "bits_per_byte_error", "+-", s.bits.error, 1, "%.4f");
    bt_printout_numf(o, "against_first_frac", "against first", s.apart.value, 100,
                     recipe ? "%+.2f %%" : "");
    bt_printout_numf(o, "against_first_frac_error", "+-", s.apart.error, 100,
                     recipe ? "%.2f %%" : "");
    bt_printout_numf(o, "minutes", "minutes", s.minutes.value, 1, "%.2f");
    bt_printout_num(o, "minutes_error", NULL, s.minutes.error, BT_UNIT_NONE);
    bt_printout_cellf(o, "", "| to %.2f bits:", b->cfg->goal);
    bt_printout_numf(o, "goal_minutes", "minutes", s.goal_minutes.value, 1, "%.2f");
    bt_printout_num(o, "goal_minutes_error", NULL, s.goal_minutes.error, BT_UNIT_NONE);
    bt_printout_numf(o, "goal_tokens", "M tokens", s.goal_tokens.value, 1e-6, "%.2f");
    bt_printout_num(o, "goal_tokens_error", NULL, s.goal_tokens.error, BT_UNIT_NONE);
    bt_printout_numf(o, "sooner", "sooner", first.goal_minutes.value / s.goal_minutes.value, 1,
                     "%.2fx");
    bt_printout_end(o);
}

static void put_learn_run(bt_printout *o, const bt_learn *b, const bt_learn_run *r) {
    bt_printout_row(o);
    bt_printout_str(o, "recipe", NULL, b->recipes[r->recipe].name);
    bt_printout_str(o, "corpus", NULL, b->corpora[r->corpus].name);
    bt_printout_int(o, "seed", NULL, r->seed);
    bt_printout_num(o, "goal_minutes", NULL, r->goal_minutes, BT_UNIT_NONE);
    bt_printout_num(o, "goal_tokens", NULL, r->goal_tokens, BT_UNIT_NONE);
    bt_json_array(&o->j, "curve");
    for (size_t k = 0; k < r->n; k++)
        bt_curves_point_json(&o->j, r->curve[k].minutes, r->curve[k].tokens, r->curve[k].bits);
    bt_json_end(&o->j, ']');
    bt_printout_end(o);
}

bt_code bt_learn_print(const bt_learn *b, bt_err *err) {
    bt_printout o;
    bt_printout_begin(&o, b->cfg->json);
    bt_printout_version(&o);
    bt_printout_num(&o, "goal", NULL, b->cfg->goal, BT_UNIT_NONE);
    bt_printout_rows(&o, "summary");
    for (size_t k = 0; k < b->n_corpora; k++)
        for (size_t i = 0; i < b->n_recipes; i++) put_summary(&o, b, i, k);
    bt_printout_rows_end(&o, "");
    bt_printout_rows(&o, "runs");
    for (size_t i = 0; i < b->n_runs && o.json; i++) put_learn_run(&o, b, &b->runs[i]);
    bt_printout_rows_end(&o, "");
    if (b->n_recipes > 1)
        bt_printout_line(&o,
                         "against first: bits per byte beside those of the first recipe with the "
                         "same seed, mean of the seeds and its standard error\n");
    return bt_printout_print(&o, err);
}

/* Writes settings, separated by blanks or newlines, on the rest of a line. */
static void put_settings_line(FILE *f, const char *text) {
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
    put_settings_line(out.to, b->cfg->with);
    for (size_t i = 0; i < b->n_recipes; i++) {
        fprintf(out.to, "# %s:", b->recipes[i].name);
        put_settings_line(out.to, b->recipes[i].rest);
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
