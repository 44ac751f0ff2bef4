/* cmd_drill.c - rehearses faults on this machine: a small run in a temporary folder suffers each fault of faults.def,
 * or is resized and killed many times, and is compared with an undisturbed run. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/printout/printout.h"
#include "cli/drill/drill.h"
#include "engine/base/clock.h"
#include "engine/base/system/start_process.h"
#include "engine/base/tables/derived.h"
#include "engine/config/elastic.h"
#include "monitor/job/launch/detach.h"
#include "store/write/manage.h"

typedef struct drill_cfg {
    bool quick, json, keep;
    char elastic[32];
    int64_t resizes, kills, steps, seed, repeat;
} drill_cfg;

static const bt_opt drill_opts[] = {
    BT_ROW_FLAG(drill_cfg, quick, "--quick", "every fault once, in about a minute"),
    BT_ROW_INT(drill_cfg, repeat, "--repeat", "3", 1, 1000, NULL,
               "number of times that every fault is injected"),
    BT_ROW_TEXT(drill_cfg, elastic, "--elastic", "",
                "MIN:MAX: instead, resize and kill one run of --steps and compare its "
                "weights with those of an undisturbed run"),
    BT_ROW_INT(drill_cfg, resizes, "--resizes", "20", 0, 10000, NULL,
               "number of changes of ranks and layout (--elastic)"),
    BT_ROW_INT(drill_cfg, kills, "--kills", "20", 0, 10000, NULL,
               "number of kills of a rank, of rank 0 and of mpirun (--elastic)"),
    BT_ROW_INT(drill_cfg, steps, "--steps", "300", 20, 1e6, "steps",
               "length of the run (--elastic)"),
    BT_ROW_INT(drill_cfg, seed, "--seed", "1", 0, 1e15, NULL,
               "seed of the choice of faults and times"),
    BT_ROW_FLAG(drill_cfg, keep, "--keep", "keep the folder with database, logs and checkpoints"),
    BT_ROW_JSON(drill_cfg),
};

enum { ROWS_MOST = 20000, QUIET_STEPS = 12 };
static const double START_S = 60, CALM_S = 600;

typedef struct drill {
    drill_cfg cfg;
    bt_elastic range;
    bt_drill_run hurt, calm;
    char program[PATH_MAX];
    char steps[24], stop_after[24], out_hurt[PATH_MAX + 16], out_calm[PATH_MAX + 16];
    bt_drill_row *row;
    size_t n_rows;
    int64_t last_step;   /* last step of both runs */
    int64_t other_loss;  /* number of steps whose loss differs from that of the undisturbed run */
    int64_t first_other; /* first step with another loss; -1: none */
    uint64_t hash, calm_hash;
    bool hashed;
} drill;

static volatile sig_atomic_t told;
static void note_drill_signal(int signal) { told = signal; }

/* ---- the two runs ---------------------------------------------------------------------------- */

/* 0.4 M parameters and 1,024 tokens per step, about 20 ms; the bits do not depend on the number of ranks */
static const char *const model[] = {"--preset",       "nano",
                                    "--set",          "model.layers=2",
                                    "--set",          "model.d_model=128",
                                    "--set",          "model.heads=4",
                                    "--set",          "model.kv_heads=4",
                                    "--set",          "model.d_ff=256",
                                    "--seq-len",      "64",
                                    "--batch-tokens", "1024",
                                    "--data",         "synth:chain",
                                    "--set",          "train.eval_tokens=256",
                                    "--eval-every",   "1000000",
                                    "--threads",      "1",
                                    "--set",          "train.reproducible=true",
                                    "--set",          "train.unit=2",
                                    "--set",          "ckpt.minutes=0",
                                    "--ckpt-every",   "10",
                                    "--quiet"};

static void append_drill_word(bt_drill_run *r, const char *word) {
    if (r->n_words + 1 < BT_DRILL_WORDS) r->words[r->n_words++] = word;
}

static void set_training_words(drill *d, bt_drill_run *r, const char *name, const char *ranks,
                               char *out) {
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(r->out, sizeof r->out, "%s/%s", r->folder, name);
    snprintf(out, PATH_MAX + 16, "%s", r->out);
    r->program = d->program;
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) append_drill_word(r, model[i]);
    const char *const own[] = {"--name",  r->name, "--out",   out,
                               "--ranks", ranks,   "--steps", d->steps};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) append_drill_word(r, own[i]);
}

static bt_code prepare_drill(drill *d, bt_err *err) {
    const char *tmp = getenv("TMPDIR");
    bt_drill_run *h = &d->hurt;
    BT_TRY(bt_own_program(d->program, sizeof d->program, err));
    snprintf(h->folder, sizeof h->folder, "%s/bitrain-drill-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (!mkdtemp(h->folder)) {
        bt_fail_errno(err, BT_IO, errno, "cannot make a folder '%.200s'", h->folder);
        h->folder[0] = '\0';
        return BT_IO;
    }
    snprintf(h->store, sizeof h->store, "%s/drill.db", h->folder);
    h->seed = (uint64_t)d->cfg.seed;
    d->calm = *h;
    snprintf(d->steps, sizeof d->steps, "%" PRId64, d->range.max ? d->cfg.steps : 100000);
    set_training_words(d, h, "hurt", "2", d->out_hurt);
    set_training_words(d, &d->calm, "calm", "1", d->out_calm);
    d->row = calloc(ROWS_MOST, sizeof *d->row);
    return d->row ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the rows of the drill");
}

static void show_fault(const drill *d, const char *what) {
    if (!d->cfg.json) fprintf(stderr, "%s\n", what);
}

/* ---- one fault after another ------------------------------------------------------------------ */

static bt_code inject_fault(drill *d, const bt_fault *f, const char *arg, const char *what,
                            bt_err *err) {
    if (told) return bt_fail(err, BT_STOPPED, "stopped by signal %d", (int)told);
    if (d->n_rows == ROWS_MOST) return BT_OK;
    bt_drill_row *row = &d->row[d->n_rows++];
    snprintf(row->what, sizeof row->what, "%s", what ? what : f->title);
    bt_code code = bt_drill_do(&d->hurt, f, arg, row, err);
    char line[320];
    snprintf(line, sizeof line, "%-38s %s%s%s", row->what,
             row->skipped ? "skipped"
             : row->ok    ? "ok"
                          : "FAILED",
             row->why[0] ? ": " : "", row->why);
    show_fault(d, line);
    return code;
}

static bt_code inject_each_fault(drill *d, bt_err *err) {
    const int64_t times = d->cfg.quick ? 1 : d->cfg.repeat;
    for (int64_t k = 0; k < times; k++)
        for (size_t i = 0; i < bt_faults_n; i++) {
            bt_err why = BT_ERR_INIT;
            const int64_t from = bt_drill_newest(&d->hurt);
            if (bt_drill_wait_step(&d->hurt, from + QUIET_STEPS, START_S, &why) != BT_OK)
                return bt_fail(err, BT_CHECK, "before '%s': %.180s", bt_faults[i].title, why.msg);
            BT_TRY(inject_fault(d, &bt_faults[i], NULL, NULL, err));
        }
    return BT_OK;
}

/* Lists layouts within the range, those with tp 2, zero 3 and pp 2 first. */
static int list_drill_layouts(const bt_elastic *range, char (*out)[32], int room) {
    static const struct {
        int ranks;
        const char *more;
    } special[] = {{2, ",tp=2"}, {2, ",zero=3"}, {2, ",pp=2"},      {4, ",tp=2,zero=3"},
                   {1, ""},      {4, ",zero=3"}, {4, ",tp=2,pp=2"}, {3, ""},
                   {4, ",pp=2"}, {4, ",tp=4"},   {3, ",zero=1"}};
    int n = 0;
    for (size_t i = 0; i < sizeof special / sizeof *special && n < room; i++)
        if (special[i].ranks >= range->min && special[i].ranks <= range->max)
            snprintf(out[n++], 32, "%d%s", special[i].ranks, special[i].more);
    for (int ranks = 5; ranks <= range->max && n < room; ranks++)
        if (ranks >= range->min) snprintf(out[n++], 32, "%d", ranks);
    return n;
}

/* Resizes and kills the run in random order, evenly over its steps. */
static bt_code resize_and_kill(drill *d, bt_err *err) {
    static const char *const kills[] = {"kill_rank", "kill_rank0", "kill_mpirun"};
    char layout[64][32];
    const int n_layouts = list_drill_layouts(&d->range, layout, 64);
    int64_t resizes = n_layouts > 1 ? d->cfg.resizes : 0, left = d->cfg.kills, done = 0;
    int next = 0;
    const int64_t all = resizes + left;
    if (n_layouts < 2 && d->cfg.resizes)
        return bt_fail(err, BT_ARG, "--elastic %s leaves one layout to be in", d->cfg.elastic);
    for (; resizes + left > 0; done++) {
        const int64_t at = d->cfg.steps * (done + 1) / (all + 2);
        bt_err why = BT_ERR_INIT;
        if (bt_drill_newest(&d->hurt) < at &&
            bt_drill_wait_step(&d->hurt, at - 1, START_S, &why) != BT_OK)
            return bt_fail(err, BT_CHECK, "%.200s", why.msg);
        if (bt_drill_draw(&d->hurt, (uint64_t)(resizes + left)) < (uint64_t)resizes) {
            char what[48];
            snprintf(what, sizeof what, "resize %s", layout[next % n_layouts]);
            BT_TRY(
                inject_fault(d, bt_fault_find("resize_up"), layout[next % n_layouts], what, err));
            next++;
            resizes--;
        } else {
            const bt_fault *f = bt_fault_find(kills[bt_drill_draw(&d->hurt, 3)]);
            BT_TRY(inject_fault(d, f, NULL, NULL, err));
            left--;
        }
    }
    return BT_OK;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static bt_code end_disturbed_run(drill *d, bt_err *err) {
    bt_drill_run *h = &d->hurt;
    if (d->range.max) {
        const int status = bt_drill_wait_end(h, CALM_S);
        /* if the supervisor was killed after the last step, no step remains to be done */
        if (status == 0 || bt_drill_newest(h) + 1 >= d->cfg.steps) return BT_OK;
        char said[200];
        bt_drill_last_words(h, said, sizeof said);
        return bt_fail(err, BT_CHECK, "the run ended with exit code %d: %.150s", status, said);
    }
    if (h->pid > 0) kill(h->pid, SIGTERM);
    const int status = bt_drill_wait_end(h, START_S);
    return status == 143 ? BT_OK
                         : bt_fail(err, BT_CHECK,
                                   "after a stop request, the run ended with exit code %d", status);
}

static bt_code run_undisturbed(drill *d, bt_err *err) {
    bt_drill_run *c = &d->calm;
    d->last_step = bt_drill_newest(&d->hurt);
    show_fault(d, "the same steps on one rank without disturbance");
    if (!d->range.max) {
        snprintf(d->stop_after, sizeof d->stop_after, "%" PRId64, d->last_step + 1);
        append_drill_word(c, "--stop-after");
        append_drill_word(c, d->stop_after);
    }
    BT_TRY(bt_drill_start(c, false, err));
    const int status = bt_drill_wait_end(c, CALM_S);
    if (status == 0) return BT_OK;
    char said[200];
    bt_drill_last_words(c, said, sizeof said);
    return bt_fail(err, BT_CHECK, "the undisturbed run ended with exit code %d: %.150s", status,
                   said);
}

static bt_code compare_weights(drill *d, bt_err *err) {
    static const char other[] = " FROM steps h LEFT JOIN steps c ON c.run = 'calm' AND c.step = "
                                "h.step WHERE h.run = ?1 AND "
                                "h.loss IS NOT c.loss";
    char sql[320];
    int64_t step = -1, calm_step = -1;
    snprintf(sql, sizeof sql, "SELECT count(*)%s", other);
    d->other_loss = (int64_t)bt_drill_value(&d->hurt, sql);
    snprintf(sql, sizeof sql, "SELECT min(h.step)%s", other);
    const double first = bt_drill_value(&d->hurt, sql);
    d->first_other = isnan(first) ? -1 : (int64_t)first;
    BT_TRY(bt_drill_hash(d->hurt.out, &d->hash, &step, err));
    BT_TRY(bt_drill_hash(d->calm.out, &d->calm_hash, &calm_step, err));
    if (step != calm_step)
        return bt_fail(err, BT_CHECK, "the last checkpoints are of steps %" PRId64 " and %" PRId64,
                       step, calm_step);
    d->hashed = true;
    return BT_OK;
}

/* ---- report ---------------------------------------------------------------------------- */

typedef struct group { /* the rows of one fault */
    const char *what;
    int n, failed, skipped;
    double detect_s, recover_s, slowest_s; /* medians, and the longest */
    int64_t redone, lost;
    const char *why;
} group;

/* Combines all rows of the same fault from `i` on; false: an earlier row has included them. */
static bool sum_fault_group(const drill *d, size_t i, group *g) {
    double detect[64], recover[64];
    size_t n_detect = 0, n_recover = 0;
    const bt_fault *f = d->row[i].fault;
    for (size_t k = 0; k < i; k++)
        if (d->row[k].fault == f) return false;
    *g = (group){.what = f->title, .why = ""};
    if (d->range.max && strncmp(f->id, "resize", 6) == 0) g->what = "resized";
    for (size_t k = i; k < d->n_rows; k++) {
        const bt_drill_row *r = &d->row[k];
        if (r->fault != f) continue;
        g->n++;
        g->skipped += r->skipped;
        g->failed += !r->ok && !r->skipped;
        if (r->why[0]) g->why = r->why;
        if (!isnan(r->detect_s) && n_detect < 64) detect[n_detect++] = r->detect_s;
        if (!isnan(r->recover_s) && n_recover < 64) recover[n_recover++] = r->recover_s;
        if (r->redone > g->redone) g->redone = r->redone;
        g->lost += r->lost > 0 ? r->lost : 0;
    }
    g->detect_s = bt_median_known(detect, n_detect);
    g->recover_s = bt_median_known(recover, n_recover); /* sorts the array */
    g->slowest_s = n_recover ? recover[n_recover - 1] : NAN;
    return true;
}

static bool bits_equal(const drill *d) {
    return d->hashed && d->hash == d->calm_hash && d->other_loss == 0;
}

static void put_fault_group(bt_printout *o, const group *g) {
    bt_printout_row(o);
    bt_printout_str(o, NULL, "fault", g->what);
    bt_printout_int(o, NULL, "times", g->n);
    bt_printout_numf(o, NULL, "noticed s", g->detect_s, 1, "%.2f");
    bt_printout_numf(o, NULL, "back s", g->recover_s, 1, "%.2f");
    bt_printout_numf(o, NULL, "slowest s", g->slowest_s, 1, "%.2f");
    bt_printout_int(o, NULL, "redone", g->redone);
    bt_printout_int(o, NULL, "rows lost", g->lost);
    if (g->skipped == g->n)
        bt_printout_cellf(o, "", "skipped: %s", g->why);
    else if (g->failed)
        bt_printout_cellf(o, "", "%d FAILED: %s", g->failed, g->why);
    else
        bt_printout_str(o, NULL, "", "ok");
    bt_printout_end(o);
}

static void put_fault(bt_printout *o, const bt_drill_row *r) {
    bt_printout_row(o);
    bt_printout_str(o, "fault", NULL, r->fault->id);
    bt_printout_str(o, "what", NULL, r->what);
    bt_printout_bool(o, "ok", r->ok);
    bt_printout_bool(o, "skipped", r->skipped);
    bt_printout_num(o, "detect_s", NULL, r->detect_s, BT_UNIT_NONE);
    bt_printout_num(o, "recover_s", NULL, r->recover_s, BT_UNIT_NONE);
    bt_printout_int(o, "at_step", NULL, r->at_step);
    bt_printout_int(o, "steps_redone", NULL, r->redone);
    bt_printout_int(o, "rows_lost", NULL, r->lost);
    bt_printout_str(o, "why", NULL, r->why);
    bt_printout_end(o);
}

/* JSON has a row for each fault; text has a line for all faults of a kind. */
static bt_code print_drill(const drill *d, bool ok, bt_err *err) {
    bt_printout o;
    group g;
    char hex[24], calm[24];
    snprintf(hex, sizeof hex, "%016" PRIx64, d->hash);
    snprintf(calm, sizeof calm, "%016" PRIx64, d->calm_hash);
    bt_printout_begin(&o, d->cfg.json);
    bt_printout_bool(&o, "ok", ok);
    bt_printout_int(&o, "seed", NULL, d->cfg.seed);
    bt_printout_int(&o, "steps", NULL, d->last_step + 1);
    bt_printout_str(&o, "hash", NULL, d->hashed ? hex : NULL);
    bt_printout_str(&o, "calm_hash", NULL, d->hashed ? calm : NULL);
    bt_printout_int(&o, "other_losses", NULL, d->other_loss);
    bt_printout_rows(&o, "faults");
    for (size_t i = 0; i < d->n_rows; i++) {
        if (o.json)
            put_fault(&o, &d->row[i]);
        else if (sum_fault_group(d, i, &g))
            put_fault_group(&o, &g);
    }
    bt_printout_rows_end(&o, "");
    if (d->hashed)
        bt_printout_line(
            &o, "%" PRId64 " steps; weights and optimizer %s, of the undisturbed run %s: %s\n",
            d->last_step + 1, hex, calm, d->hash == d->calm_hash ? "equal" : "DIFFERENT");
    if (d->other_loss)
        bt_printout_line(&o, "%" PRId64 " steps have another loss, step %" PRId64 " first\n",
                         d->other_loss, d->first_other);
    else if (d->hashed)
        bt_printout_line(&o, "every loss is that of the undisturbed run, bit for bit\n");
    return bt_printout_print(&o, err);
}

/* ---- command --------------------------------------------------------------------------------- */

static bt_code rehearse_faults(drill *d, bt_err *err) {
    BT_TRY(bt_drill_start(&d->hurt, false, err));
    BT_TRY(bt_drill_wait_step(&d->hurt, 0, START_S, err));
    BT_TRY(d->range.max ? resize_and_kill(d, err) : inject_each_fault(d, err));
    BT_TRY(end_disturbed_run(d, err));
    BT_TRY(run_undisturbed(d, err));
    return compare_weights(d, err);
}

static void clean_up_drill(drill *d) {
    if (d->row) { /* the folder was created, so every process with this folder in its arguments belongs to this drill */
        bt_drill_kill_all(&d->hurt);
        bt_drill_kill_all(&d->calm);
    }
    bt_db_close(d->hurt.db);
    bt_db_close(d->calm.db);
    free(d->row);
    if (!d->hurt.folder[0]) return;
    if (d->cfg.keep)
        fprintf(stderr, "kept: %s\n", d->hurt.folder);
    else
        bt_drill_remove(d->hurt.folder);
}

static bt_code check_drill_options(const drill_cfg *c, bt_elastic *range, bt_err *err) {
    BT_TRY(bt_elastic_parse(c->elastic, range, err));
    if (range->max && c->quick)
        return bt_fail(err, BT_ARG, "--quick and --elastic are two drills: give one of them");
    if (range->max && c->steps < 2 * (c->resizes + c->kills))
        return bt_fail(err, BT_ARG,
                       "%" PRId64 " resizes and kills need %" PRId64 " steps or more (--steps)",
                       c->resizes + c->kills, 2 * (c->resizes + c->kills));
    return BT_OK;
}

static bt_code cmd_drill(bt_call *call, bt_err *err) {
    drill *d = calloc(1, sizeof *d);
    if (!d) return bt_fail(err, BT_NOMEM, "no memory for the drill");
    d->cfg = *(const drill_cfg *)call->cfg;
    bt_code code = check_drill_options(&d->cfg, &d->range, err);
    if (code == BT_OK) code = prepare_drill(d, err);
    bool ok = false;
    if (code == BT_OK) {
        signal(SIGINT, note_drill_signal);
        signal(SIGTERM, note_drill_signal);
        bt_err why = BT_ERR_INIT;
        code = rehearse_faults(d, &why);
        int failed = 0;
        for (size_t i = 0; i < d->n_rows; i++) failed += !d->row[i].ok && !d->row[i].skipped;
        ok = code == BT_OK && failed == 0 && bits_equal(d);
        bt_err unprinted = BT_ERR_INIT;
        const bt_code printed = d->n_rows ? print_drill(d, ok, &unprinted) : BT_OK;
        if (code == BT_OK && printed != BT_OK) code = printed, why = unprinted;
        if (told &&
            code !=
                BT_OK) { /* printed like an error, but with the exit code of the signal, because there is no result */
            fprintf(stderr, "bitrain drill: %s\n", why.msg[0] ? why.msg : "stopped");
            *call->exit_status = 128 + (int)told;
            code = BT_OK;
        } else if (code != BT_OK)
            *err = why;
        else if (failed)
            code = bt_fail(err, BT_CHECK,
                           "%d of %zu faults cost more than they may (--keep leaves logs "
                           "and database)",
                           failed, d->n_rows);
        else if (!ok)
            code = bt_fail(err, BT_CHECK, "the run is not the undisturbed one, bit for bit");
    }
    clean_up_drill(d);
    free(d);
    return code;
}

const bt_command bt_cmd_drill = {
    .name = "drill",
    .summary = "rehearse faults on this machine",
    .args = "",
    .examples =
        "bitrain drill --quick # every fault once, in about a minute\n"
        "bitrain drill --repeat 20 --json # medians of twenty repetitions\n"
        "bitrain drill --elastic 1:4 --resizes 20 --kills 20 # a run of 300 steps, and its weights "
        "compared\n",
    .options = BT_OPTION_SET(drill_opts, drill_cfg),
    .run = cmd_drill,
};
