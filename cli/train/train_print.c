/* train_print.c - lines that `bitrain train` prints before and after a run. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "cli/train/train_parts.h"
#include "cli/version/version.h"
#include "engine/base/tables/metric.h"
#include "engine/base/threads.h"
#include "engine/ckpt/ckpt.h"
#include "store/view/view.h"

void bt_train_plan_release(bt_train_plan *p) {
    bt_train_unmake_out(p);
    if (p->run_lock >= 0) close(p->run_lock);
    bt_text_release(&p->place);
    bt_text_release(&p->why);
    bt_text_release(&p->recorded);
    bt_text_release(&p->before);
    bt_text_release(&p->tokenizer_of);
    bt_text_release(&p->recipe);
    bt_text_release(&p->layout);
    bt_text_release(&p->layout_notes);
    bt_text_release(&p->config_json);
    bt_text_release(&p->argv);
}

void bt_train_fill_start(const bt_train_plan *p, bt_run_start *s, char host[BT_HOST_MAX],
                         char user[64]) {
    memset(host, 0, BT_HOST_MAX);
    gethostname(host, BT_HOST_MAX - 1);
    const struct passwd *pw = getpwuid(getuid());
    snprintf(user, 64, "%s", pw ? pw->pw_name : "");
    static char build[160];
    snprintf(build, sizeof build, "bitrain %s, compiler %s", bt_version_text(), __VERSION__);
    *s = (bt_run_start){.name = p->run,
                        .resume = p->resume,
                        .from_step = p->from.step,
                        .reason = p->reason,
                        .argv = bt_text_str(&p->argv),
                        .config_json = bt_text_str(&p->config_json),
                        .host = host,
                        .user = user,
                        .build = build,
                        .mpi = BITRAIN_MPI,
                        .note = p->cfg.run.note,
                        .out_dir = p->out,
                        .world_size = p->ranks,
                        .seed = (uint64_t)p->cfg.run.seed,
                        .pid = (int)getpid()};
}

const char *bt_train_setting_where(const bt_train_plan *p, const char *key) {
    const size_t i = bt_opt_find(p->opts.table, p->opts.n, key);
    return i < p->opts.n ? p->opts.where[i] : "";
}

void bt_train_folder_line(const bt_train_plan *p, bt_text *out) {
    if (!p->place.len) return;
    bt_text_printf(out, "as the run was started: %s (give another to change it)\n",
                   bt_text_str(&p->place));
}

void bt_train_greeting(const bt_train_plan *p, bt_text *out) {
    bt_text_printf(out, "run %s: %s for %" PRId64 " steps of %" PRId64 " tokens, %d rank%s", p->run,
                   p->cfg.model.preset, p->cfg.train.steps, p->cfg.train.batch_tokens, p->ranks,
                   p->ranks == 1 ? "" : "s");
    if (p->cfg.launch.threads)
        bt_text_printf(out, " x %" PRId64 " thread%s", p->cfg.launch.threads,
                       p->cfg.launch.threads == 1 ? "" : "s");
    const bt_preset *preset = bt_preset_find(p->cfg.model.preset);
    if (preset && preset->model.V != p->cfg.model.vocab)
        bt_text_printf(out, ", vocabulary %" PRId64 " (%s)", p->cfg.model.vocab,
                       bt_train_setting_where(p, "model.vocab"));
    if (p->from.dir[0] || p->resume) bt_text_printf(out, ", %s", p->reason);
    bt_text_put(out, "\n");
    bt_train_folder_line(p, out);
    bt_text_put(out, bt_text_str(&p->recipe));
    bt_text_put(out, bt_text_str(&p->layout_notes));
    if (p->layout.len) bt_text_printf(out, "layout     %s\n", bt_text_str(&p->layout));
    for (char *line = p->why.data, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        bt_text_printf(out, "warning: %.*s\n", (int)(end - line), line);
        if (*end) end++;
    }
}

static double json_number_or_zero(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

bool bt_train_result_get(const char *result_json, const char *key, char *buf, size_t size) {
    json_t *r = result_json ? json_loads(result_json, 0, NULL) : NULL;
    const json_t *v = json_object_get(r, key);
    const bool yes = json_is_true(v) || json_is_string(v);
    if (yes && buf && json_is_string(v)) snprintf(buf, size, "%s", json_string_value(v));
    json_decref(r);
    return yes;
}

bool bt_train_early(const char *result_json, char *buf, size_t size) {
    char after[128];
    if (!bt_train_result_get(result_json, "early", after, sizeof after)) return false;
    snprintf(buf, size, "early, after %s", after);
    return true;
}

static void print_train_result_json(const bt_train_plan *p, const char *state, int attempt,
                                    json_t *r) {
    json_object_set_new(r, "run", json_string(p->run));
    json_object_set_new(r, "state", json_string(state));
    json_object_set_new(r, "attempt", json_integer(attempt));
    json_object_set_new(r, "ranks", json_integer(p->ranks));
    json_object_set_new(r, "out", json_string(p->out));
    json_object_set_new(r, "store", json_string(p->store));
    char *text = json_dumps(r, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12));
    if (text) puts(text);
    free(text);
}

static void print_sample(const char *sample) {
    char plain[1024];
    printf("\nsample of what it writes:\n");
    while (*sample == '\n') sample++;
    while (*sample) {
        size_t n = strcspn(sample, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)(n < 1000 ? n : 1000), sample);
        bt_text_plain(plain, sizeof plain, line);
        printf("  | %s\n", plain);
        sample += n + (sample[n] == '\n');
    }
}

/* Returns an example of a first prompt for a model of these data. */
static const char *first_question(const bt_run_cfg *c) {
    switch (c->data.form) {
    case BT_FORMED_TEXT:
    case BT_FORMED_COMPLETION: return "--prompt 'In the beginning'";
    case BT_FORMED_LABEL: return "--prompt 'who is there?'";
    default: return "--chat --message 'Who are you?'";
    }
}

/* Prints " bitrain generate RUN@best" if an earlier validation loss was lower than the last one. */
static void print_best(const bt_train_plan *p, const char *in) {
    bt_db *db = NULL;
    bt_err ignored;
    char better[120];
    if (!p->cfg.run.no_monitor && bt_db_open(&db, p->store, &ignored) == BT_OK &&
        bt_cli_best_is_older(db, p->run, better, sizeof better))
        printf("  bitrain generate %s@best%s %s   (%s)\n", p->run, in, first_question(&p->cfg),
               better);
    bt_db_close(db);
}

static void print_next_commands(const bt_train_plan *p, bool done) {
    bt_text store;
    bt_text_init(&store);
    bt_store_flag(&store, p->store);
    const char *in = bt_text_str(&store), *run = p->run;
    const bool adapters = p->cfg.tune.mode == BT_TUNE_LORA && p->cfg.data.form != BT_FORMED_LABEL;
    printf("\ntry next:\n");
    if (done)
        printf("  bitrain show %s%s\n  bitrain generate %s%s %s\n", run, in, run, in,
               first_question(&p->cfg));
    else
        printf("  bitrain train --resume %s%s\n  bitrain show %s%s\n", run, in, run, in);
    if (done) print_best(p, in);
    if (done && p->cfg.data.form >= BT_FORMED_PREFERENCE) printf("  bitrain eval %s%s\n", run, in);
    if (done && adapters)
        printf("  bitrain convert %s%s --merge --to hf   (adapters and their base as one model)\n",
               run, in);
    printf("  bitrain query%s \"SELECT step + 1 AS step, loss, tokens_per_s FROM steps WHERE "
           "run='%s' ORDER "
           "BY step DESC LIMIT 5\"\n",
           in, run);
    bt_text_release(&store);
}

/* Reads a value from the run's row, which includes earlier attempts like every view; NaN without a database. */
static double read_run_value(const bt_train_plan *p, bt_db *db, const char *sql) {
    bt_err ignored;
    double v = NAN;
    return db && bt_db_value(db, sql, p->run, &v, &ignored) == BT_OK ? v : (double)NAN;
}

/* Prints passes over the data and the tokens/s of the run's newest steps; without a database, the tokens/s of the
 * attempt. */
static void print_train_figures(const bt_train_plan *p, double of_attempt) {
    bt_db *db = NULL;
    bt_err ignored;
    char text[32];
    if (p->cfg.run.no_monitor || bt_db_open(&db, p->store, &ignored) != BT_OK) db = NULL;
    const double passes = read_run_value(p, db, "SELECT passes FROM runs WHERE run = ?1"),
                 speed = read_run_value(p, db, "SELECT tokens_per_s FROM runs WHERE run = ?1");
    bt_db_close(db);
    const bool known = isfinite(speed);
    if (isfinite(passes)) printf(", %.3g passes over the data", passes);
    if (!known && !isfinite(of_attempt)) return;
    printf(", %s tokens/s%s",
           bt_metric_format(text, sizeof text, known ? speed : of_attempt, BT_UNIT_COUNT),
           known ? "" : " in this attempt");
}

static void print_memorising(const bt_train_plan *p) {
    bt_db *db = NULL;
    bt_view *view = NULL;
    bt_view_request ask;
    bt_err ignored;
    bt_view_request_init(&ask);
    ask.run = p->run;
    ask.parts = BT_VIEW_HEAD;
    if (p->cfg.run.no_monitor || bt_db_open(&db, p->store, &ignored) != BT_OK) return;
    if (bt_view_open(&view, db, &ignored) == BT_OK && bt_view_load(view, &ask, &ignored) == BT_OK &&
        view->head.memorising_step >= 0)
        printf("%s\n", view->head.remark[view->head.n_remarks - 1]);
    bt_view_close(view);
    bt_db_close(db);
}

void bt_train_summary(const bt_train_plan *p, const char *state, int attempt,
                      const char *result_json) {
    json_t *r = result_json ? json_loads(result_json, 0, NULL) : NULL;
    if (!r) r = json_object();
    if (p->cfg.run.json) {
        print_train_result_json(p, state, attempt, r);
        json_decref(r);
        return;
    }
    if (strcmp(state, "failed") == 0) { /* the error was printed already */
        json_decref(r);
        return;
    }
    char a[32];
    const double steps = json_number_or_zero(r, "steps"), loss = json_number_or_zero(r, "loss"),
                 val = json_number_or_zero(r, "val_loss"),
                 bpb = json_number_or_zero(r, "val_bits_per_byte"),
                 speed = json_number_or_zero(r, "tokens_per_s");
    const char *ckpt = json_string_value(json_object_get(r, "checkpoint")),
               *sample = json_string_value(json_object_get(r, "sample"));
    printf("run %s %s", p->run, state);
    if (isfinite(steps)) printf(" after step %.0f", steps);
    if (isfinite(json_number_or_zero(r, "tokens")))
        printf(", %s tokens",
               bt_metric_format(a, sizeof a, json_number_or_zero(r, "tokens"), BT_UNIT_COUNT));
    if (isfinite(loss)) printf(", loss %.4f", loss);
    print_train_figures(p, speed);
    printf("\n");
    if (isfinite(bpb)) printf("validation: %.4f bits per byte (%.4f nats per token)\n", bpb, val);
    const char *early = json_string_value(json_object_get(r, "early"));
    if (early) printf("ended early: %s\n", early);
    print_memorising(p);
    if (ckpt && ckpt[0]) printf("checkpoint: %s\n", ckpt);
    const char *done = strcmp(state, "done") == 0 ? "yes" : NULL;
    if (sample && sample[0] && done && !p->cfg.run.quiet) print_sample(sample);
    if (!p->cfg.run.quiet && ckpt && ckpt[0]) print_next_commands(p, done != NULL);
    json_decref(r);
}
