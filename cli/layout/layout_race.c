/* layout_race.c - one rank of a race of layouts. */
#include "cli/layout/layout_race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/quiet_settings.h"
#include "cli/common/run_shown.h"
#include "engine/base/clock.h"
#include "engine/base/system/json_fields.h"
#include "engine/base/threads.h"
#include "engine/config/part_rules.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/plan/trial_length.h"
#include "engine/plan/trial_race.h"
#include "engine/train/trainer.h"
#include "monitor/job/machine/cpu_binding.h"

enum { WORDS = 2, RACER_WORDS = 4, STEPS_MOST = 1 << 20 };

typedef struct racer {
    bt_opts opts;
    bt_run_cfg cfg; /* settings for the largest number of steps */
    int64_t steps;
    double predicted_s,
        factor; /* predicted seconds of a whole step; ratio of a whole step to the measured step */
    bt_trainer *trainer; /* NULL: not created */
} racer;

typedef struct layouts {
    racer *at;
    size_t n;
    bool keep;
    double budget_s;
    int64_t began_ns;
} layouts;

static int find_next_race_word(int argc, char **argv, int from) {
    while (from < argc && strcmp(argv[from], BT_RACE_WORD) != 0) from++;
    return from;
}

static bt_code read_racer(racer *x, int argc, char **argv, bt_err *err) {
    if (argc < RACER_WORDS) return bt_fail(err, BT_ARG, "a layout to be tried has no settings");
    x->steps = atoll(argv[1]);
    x->predicted_s = strtod(argv[2], NULL);
    x->factor = strtod(argv[3], NULL);
    if (x->steps < 1 || !(x->factor > 0))
        return bt_fail(err, BT_ARG, "a layout to be tried has no steps");
    return bt_quiet_settings_read(&x->opts, &x->cfg, argc - RACER_WORDS, argv + RACER_WORDS, false,
                                  STEPS_MOST, 0, err);
}

static bt_code resolve_racer_settings(racer *x, const bt_isa_agreement *isa, bt_err *err) {
    bt_isa_agreement_apply(isa, &x->cfg);
    BT_TRY(bt_quiet_settings_settle(&x->opts, &x->cfg, bt_comm_size(bt_comm_world()), err));
    x->cfg.train.steps = STEPS_MOST;
    const bt_forced *part;
    for (size_t i = 0; (part = bt_forced_at(BT_FORCE_STEP_TIME, i)); i++)
        BT_TRY(bt_opts_set(&x->opts, part->key, part->value, BT_FROM_FLAG, "race", err));
    return BT_OK;
}

static bt_code read_race_words(layouts *l, int argc, char **argv, bt_err *err) {
    int at = find_next_race_word(argc, argv, 0), n = 0;
    for (int i = at; i < argc; i = find_next_race_word(argc, argv, i + 1)) n++;
    if (at != WORDS || n < 2 || n > BT_RACE_MOST)
        return bt_fail(err, BT_ARG, "a race is of 2 to %d layouts", (int)BT_RACE_MOST);
    *l = (layouts){.budget_s = strtod(argv[0], NULL),
                   .keep = strcmp(argv[1], "keep") == 0,
                   .at = calloc((size_t)n, sizeof *l->at),
                   .began_ns = bt_now_ns()};
    if (!l->at) return bt_fail(err, BT_NOMEM, "no memory for %d layouts", n);
    while (at < argc) {
        const int end = find_next_race_word(argc, argv, at + 1);
        BT_TRY(read_racer(&l->at[l->n++], end - at, argv + at, err));
        at = end;
    }
    return BT_OK;
}

static bt_code create_racer(racer *x, bt_err *err) {
    const bt_trainer_setup setup = {.cfg = &x->cfg, .resume_dir = ""};
    double took_s;
    if (x->trainer) return BT_OK;
    BT_TRY(bt_trainer_create(&x->trainer, &setup, err));
    return bt_trainer_steps(x->trainer, BT_RACE_WARM, &took_s, err);
}

static void destroy_racer(racer *x) {
    bt_trainer_destroy(x->trainer);
    x->trainer = NULL;
}

static bt_code elapsed_of_slowest_rank(int64_t then_ns, double *seconds, bt_err *err) {
    *seconds = (double)(bt_now_ns() - then_ns) / 1e9;
    return bt_all_reduce_f64(bt_comm_world(), seconds, 1, BT_MAX, err);
}

static void print_race_progress(const layouts *l, double spent_s, const char *note) {
    bt_run_shown_progress(fmin(1, spent_s / l->budget_s), note);
}

static bt_code time_racer(void *ctx, size_t i, double *took_s, double *spent_s, bt_err *err) {
    layouts *l = ctx;
    racer *x = &l->at[i];
    char note[48];
    double all_s;
    const int64_t start = bt_now_ns();
    BT_TRY(create_racer(x, err));
    BT_TRY(bt_trainer_steps(x->trainer, x->steps, took_s, err));
    *took_s *= x->factor;
    if (!l->keep) destroy_racer(x);
    BT_TRY(elapsed_of_slowest_rank(start, spent_s, err));
    BT_TRY(elapsed_of_slowest_rank(l->began_ns, &all_s, err));
    snprintf(note, sizeof note, "layout %zu of %zu", i + 1, l->n);
    print_race_progress(l, all_s, note);
    return BT_OK;
}

/* Returns whether creating another trainer, and a round of all, would exceed the time, if n of them took spent_s
 * seconds. Creating a trainer and its first step take longer than a later turn of this trainer. */
static bool exceeds_race_time(const layouts *l, size_t n, double spent_s) {
    const double each_s = spent_s / (double)n;
    return n >= 2 && spent_s + (double)(n + 2) * each_s > l->budget_s;
}

static bt_code run_race_rounds(layouts *l, bt_race *r, bt_err *err) {
    double spent_s = 0;
    *r = (bt_race){.run = time_racer, .ctx = l};
    while (r->n < l->n && !(l->keep && exceeds_race_time(l, r->n, spent_s))) {
        racer *x = &l->at[r->n];
        print_race_progress(l, spent_s, "making the layouts");
        if (l->keep) BT_TRY(create_racer(x, err));
        r->racer[r->n++].predicted_s = x->predicted_s;
        BT_TRY(elapsed_of_slowest_rank(l->began_ns, &spent_s, err));
        if (l->keep && r->n == 1 && 2 * spent_s > l->budget_s)
            return bt_fail(err, BT_BUSY,
                           "making the first layout took %.0f s of the %.0f that there are (the "
                           "machine does other work)",
                           spent_s, l->budget_s);
    }
    r->budget_s = l->budget_s - spent_s;
    return bt_race_run(r, err);
}

static void put_race_result(const bt_race *r) {
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    BT_JSON_FIELDS(&j, r, F(rounds), F(spent_s), F(settled), F(loss_frac));
    BT_JSON_ROWS(&j, "racers", r->racer, r->n, F_AS("step_s", time_s), F(runs), F(out));
    bt_json_end(&j, '}');
    printf(BT_RUN_ONCE_RESULT "%s\n", bt_text_str(&out));
    fflush(stdout);
    bt_text_release(&out);
}

/* Binds this rank's threads as a training does. Ranks of the largest tensor-parallel group are neighbours. */
static bt_code bind_racer(const layouts *l, bt_err *err) {
    const int threads = (int)(l->at[0].cfg.launch.threads > 1 ? l->at[0].cfg.launch.threads : 1);
    int64_t group = 1;
    for (size_t i = 0; i < l->n; i++)
        group = l->at[i].cfg.mesh.tp > group ? l->at[i].cfg.mesh.tp : group;
    const bt_binding_job binding = {.ranks = bt_comm_local_size(),
                                    .rank = bt_comm_local_rank(),
                                    .threads = threads,
                                    .group = (int)group};
    (void)bt_bind_rank(&binding);
    return bt_threads_init(threads, err);
}

static bt_code prepare_race(layouts *l, int argc, char **argv, bt_err *err) {
    bt_comm *world = bt_comm_world();
    bt_isa_agreement isa;
    BT_TRY(bt_agree(world, read_race_words(l, argc, argv, err), err));
    BT_TRY(bt_agree_isa(world, l->at[0].cfg.launch.isa, &isa, err));
    for (size_t i = 0; i < l->n; i++) {
        BT_TRY(bt_agree(world, resolve_racer_settings(&l->at[i], &isa, err), err));
        BT_TRY(bt_agree_settings(world, &l->at[i].cfg, err));
    }
    bt_code code = bt_kernels_select(isa.isa, err);
    if (code == BT_OK) code = bind_racer(l, err);
    return bt_agree(world, code, err);
}

bt_code bt_layout_race_rank(int argc, char **argv, int *exit_status, bt_err *err) {
    layouts l = {0};
    bt_race r;
    if (!bt_comm_am_rank())
        return bt_fail(err, BT_ARG, "'" BT_LAYOUT_RACE_WORD "' is started by 'bitrain plan' only");
    BT_TRY(bt_comm_init(err));
    bt_code code = prepare_race(&l, argc, argv, err);
    if (code == BT_OK) code = run_race_rounds(&l, &r, err);
    if (code == BT_OK && bt_comm_rank(bt_comm_world()) == 0) put_race_result(&r);
    for (size_t i = 0; i < l.n && code == BT_OK; i++) destroy_racer(&l.at[i]);
    free(l.at);
    bt_threads_release();
    if (code == BT_OK) {
        bt_comm_finalize();
        return BT_OK;
    }
    bt_run_shown_fail(code, err, exit_status);
    return BT_OK;
}
