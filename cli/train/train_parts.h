/* train_parts.h - the pieces of `bitrain train`: settings, a run's identity, what is printed before
 * and after. */
#ifndef BT_CLI_TRAIN_TRAIN_PARTS_H
#define BT_CLI_TRAIN_TRAIN_PARTS_H

#include <limits.h>

#include "engine/config/elastic.h"
#include "engine/config/job_agreement.h"
#include "engine/config/run_cfg.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/plan/time_model.h"
#include "engine/train/trainer.h"
#include "monitor/job/health/alert_rules.h"
#include "monitor/job/supervisor.h"
#include "store/store.h"

/* the data as rank 0 will see it; all-zero where only other hosts have it */
typedef struct bt_train_data {
    bool seen;
    int64_t tokens, val_tokens; /* -1: endless */
    /* tokens that count in a loss; -1: all of them, or the data are texts or preferences */
    int64_t counted, val_counted;
    /* tokens of the steps of one epoch, with the padding of packed documents */
    int64_t epoch_tokens;
} bt_train_data;

/* Recorded speed of this machine with as many ranks and threads; run "": none. */
typedef struct bt_train_speed {
    char run[BT_NAME_MAX];
    bool same; /* the run had as many operations a token and tokens a step */
    double flop_per_s, tokens_per_s, seconds; /* seconds of the steps that are left */
} bt_train_speed;

typedef struct bt_train_plan {
    bt_opts opts;
    bt_run_cfg cfg;       /* settled */
    bt_run_cfg given;     /* before automatic values were found */
    bt_elastic elastic;   /* --elastic; 0, 0: none */
    bt_isa_agreement isa; /* kernel set of this rank; all-zero if the ranks do not exist yet */
    int ranks;
    int world; /* ranks of the job this process is one of; 0: it starts them */
    char run[BT_NAME_MAX];
    char store[PATH_MAX], out[PATH_MAX];
    char out_made
        [PATH_MAX]; /* topmost folder of `out` that this command made; "": the run keeps `out` */
    bool resume;    /* true: the record of the run exists and is continued */
    bool complete;  /* --continue of a run that has done its steps: nothing is trained */
    bt_resume_point from; /* checkpoint to start from */
    /* held from before the checkpoint is chosen; -1: not (yet) */
    int run_lock;
    char reason[160]; /* reason of the attempt */
    bt_text place;    /* place settings (launch.*, mesh.*) taken from the record, as flags */
    bt_text why;      /* skipped checkpoints, one line each */
    bt_text recorded; /* settings of the resumed run, as JSON */
    bt_text before;   /* the same, also where a checkpoint's folder is resumed */
    bt_text
        tokenizer_of; /* serialised: of the checkpoint that is resumed, or of model.init_from; empty: none */
    int64_t began_ns;             /* start of the time of --minutes; 0: there is no such budget */
    bt_text recipe;               /* --minutes: the plan and why, lines */
    bt_text layout, layout_notes; /* --layout auto: the choice and why; lines about its rates */
    bt_text config_json, argv;
    bt_alert_rules alerts;
    char curl[PATH_MAX]; /* path of curl for alert.webhook; "": not needed */
} bt_train_plan;

void bt_train_plan_release(bt_train_plan *p);

/* --print-config or --dry-run */
static inline bool bt_train_only_prints(const bt_train_plan *p) {
    return p->cfg.run.print_config || p->cfg.run.dry_run;
}

/* train_settings.c: the plan of this command line. world: ranks of the job that this process is one of; 0: it starts
 * them */
bt_code bt_train_make_plan(bt_train_plan *p, int argc, char **argv, int world, bool *help,
                           bt_err *err) BT_MUST_CHECK;

/* train_resume.c: --resume RUN|last|DIR puts the stored settings under the flags of now (p->opts
 * read, not yet settled); refuses what cannot change (BT_BUSY). Fills run, out, resume, from,
 * reason. */
bt_code bt_train_resume(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Fills config_json, the settings as they will be recorded. A setting that a resumed run takes from its record keeps
 * the origin that the record gives it, so that settings of a person remain distinct from defaults. */
bt_code bt_train_config_json(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;

/* Keeps a recorded prediction if the layout, ranks, threads and tokens of a step are the recorded ones. Call it
 * after the settings are settled. */
bt_code bt_train_keep_prediction(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Warns where changed settings give the next step another learning rate than the recorded schedule gave the last one.
 * After the settings are settled; nothing unless a run or a checkpoint is resumed */
void bt_train_warn_schedule(const bt_train_plan *p);
/* train_continue.c: --continue as --resume, where the store has a run of this very name or its folder a
 * checkpoint; else as a new run */
bt_code bt_train_continue(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
void bt_train_print_complete(const bt_train_plan *p); /* on stdout */
/* true: the folder `memory` has a state that is at least as new as every checkpoint in `out` */
bool bt_train_in_memory(const char *out, const char *memory, bt_resume_point *p);
/* newest checkpoint of an out folder that holds, and its serialised tokenizer (may be NULL); BT_NOTFOUND when there
 * is none at all */
bt_code bt_train_newest(const char *out, bt_resume_point *p, bt_text *tokenizer, bt_text *why,
                        bt_err *err) BT_MUST_CHECK;

/* train_tokenizer.c: replaces data.tokenizer=auto and bpe:N by "bytes" or by the file of a tokenizer that was
 * trained on the training data and is kept in the cache. A file that was deleted is restored from the checkpoint
 * that is resumed. Call it after the settings are read and before bt_train_vocab. Fails with BT_ARG if it is not
 * the tokenizer of the initial weights. */
bt_code bt_train_tokenizer(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Saves a tokenizer in the cache under a key, where the ranks and later runs find it. */
bt_code bt_train_keep_tokenizer(const bt_train_plan *p, const bt_tokenizer *t, uint64_t key,
                                char *path, size_t size, bt_err *err) BT_MUST_CHECK;

/* train_vocab.c: model.vocab, unless it was given, becomes the number of tokens of the tokenizer, or
 * of the weights that model.init_from names. After the settings are read, before they are settled */
/* Replaces a run's name in model.init_from by its folder; settings of the model and of the tokenizer that were not
 * given follow the checkpoint. */
bt_code bt_train_init_from(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_init_foreign.c: the same of a model of another program, a folder of Hugging Face or a GGUF file */
bt_code bt_train_init_foreign(bt_train_plan *p, const char *path, bt_err *err) BT_MUST_CHECK;
bt_code bt_train_vocab(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_vocab.c: data.template=auto of conversations becomes the row of the base's tokenizer. BT_ARG: that has a
 * template which is no row. After bt_train_tokenizer */
bt_code bt_train_template(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_vocab.c: data.labels of a classifier, unless they were given, become those of its data */
bt_code bt_train_labels(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_settings.c: calls the functions above in this order, and bt_train_fit_little_text, for every command that plans
 * a training. After the settings are read, before bt_train_epochs. p->ranks: ranks of the run, or 0 if this machine's
 * cores decide */
bt_code bt_train_follow_inputs(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;

/* train_folder.c */
/* --out, else runs/RUN beside the store */
bt_code bt_train_out(const bt_train_plan *p, const char *run, char out[PATH_MAX], bt_err *err)
    BT_MUST_CHECK;
/* data.cache, else cache/ beside the store */
bt_code bt_train_cache(const bt_train_plan *p, char out[PATH_MAX], bt_err *err) BT_MUST_CHECK;
/* out and cache folders, as settings too */
bt_code bt_train_choose_folder(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Makes the folder `out` and locks it for this run; the second call does nothing. BT_BUSY: another process trains
 * there, or a new run finds checkpoints there. Ranks other than 0, and plans that are only printed, take no lock. */
bt_code bt_train_lock(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Removes the folders that bt_train_lock made, where they hold nothing but lock files: the run did not begin. */
void bt_train_unmake_out(bt_train_plan *p);
/* train_resume.c: before a resumed run starts: stores the rows that its killed rank 0 left in a ring */
void bt_train_recover(const bt_train_plan *p, bt_writer *writer);
/* train_resume.c: each skipped checkpoint as an event, and on stderr where the greeting is not shown */
void bt_train_record_passed(const bt_train_plan *p, const bt_sink *sink);
/* train_resume.c: withdraws a resumed start that recorded no step, and reports it. writer may be NULL */
void bt_train_withdraw(const bt_train_plan *p, bt_writer *writer);
/* Creates the built-in corpus if the run uses it. */
bt_code bt_train_corpus(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* sequences of an epoch of the training data, which are tokenised for it; -1: endless. c: resolved settings */
bt_code bt_train_sequences(const bt_train_plan *p, const bt_run_cfg *c, int64_t *out, bt_err *err)
    BT_MUST_CHECK;
/* train_epochs.c: BT_ARG: two settings that answer one question are given, as train.epochs and train.steps. faults: as
 * for bt_collect_fault */
bt_code bt_train_check_pairs(const bt_opts *o, bt_text *faults, bt_err *err) BT_MUST_CHECK;
/* train_epochs.c: train.epochs, train.evals_per_epoch and ckpt.saves_per_epoch become train.steps, train.eval_every and
 * ckpt.every. After the number of ranks is known, before the settings are settled. BT_ARG: both are given */
bt_code bt_train_epochs(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_folder.c: tokens of plain text, training and validation together, by the tokenizer of the plan */
bt_code bt_train_tokens(const bt_train_plan *p, int64_t *out, bt_err *err) BT_MUST_CHECK;
/* train_vocab.c: a text of a few kilobytes gets shorter sequences and a larger held-out share, where the preset's
 * would not fit it and none was given. */
bt_code bt_train_fit_little_text(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_epochs.c: the settings as they will be, with the number of steps still open; caller frees */
bt_code bt_train_resolve_open(const bt_train_plan *p, bt_run_cfg **out, bt_err *err) BT_MUST_CHECK;
/* train_minutes.c: begin checks --minutes and starts its clock, after the settings are read. The second chooses
 * model, steps and regularisers and fills p->recipe, after the number of ranks is known and before the settings are
 * settled. */
bt_code bt_train_minutes_begin(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
bt_code bt_train_minutes(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_step_time.c: runs so many steps of these resolved settings on the ranks of the plan. *step_s: median time of
 * one */
bt_code bt_train_measure_step(const bt_train_plan *p, const bt_run_cfg *resolved, int64_t steps,
                              double *step_s, bt_err *err) BT_MUST_CHECK;
/* Checks the corpus, the database and the data, which are opened as the ranks will open them, so that faults are
 * reported before a job starts. data: sizes; may be NULL. */
bt_code bt_train_inputs(const bt_train_plan *p, bt_train_data *data, bt_err *err) BT_MUST_CHECK;

/* train_layout.c: --layout auto sets what the user left open to the planner's first choice. After the
 * ranks are known, before the settings are settled */
bt_code bt_train_choose_layout(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* The time of a settled plan, by rates that are known: nothing is measured. `from` takes the file of
 * the rates and when they were measured; false: why there are none, or nothing. tried: the kept trial of this
 * layout, step_s 0: none. */
bool bt_train_predict(const bt_train_plan *p, bt_prediction *out, bt_trial_rate *tried,
                      bt_text *from);
/* train_time.c: how long the steps take, for `plan` and `train --dry-run` alike */
typedef enum {
    BT_TIME_UNKNOWN,
    BT_TIME_TRIED,     /* real steps of this layout */
    BT_TIME_SAME_RUN,  /* a recorded run of the same work */
    BT_TIME_PREDICTED, /* measured rates of the machine */
    BT_TIME_OTHER_RUN  /* a recorded run of other work */
} bt_time_source;
typedef struct bt_train_time {
    bt_time_source source;
    bt_train_speed speed;                 /* speed of a recorded run; run "": none */
    double step_s, seconds, tokens_per_s; /* figures of the source; NaN: unknown */
    /* predicted time of a step; NaN: the rates are not known */
    double predicted_s;
    double trial_load; /* load of other programs; NaN: not known */
} bt_train_time;
/* Chooses the best known source: first a trial, then a run of the same work, then the prediction, then a run of
 * other work. predicted_s: NaN or 0 if unknown; tried may be NULL. */
void bt_train_time_of(const bt_train_plan *p, double predicted_s, const bt_trial_rate *tried,
                      bt_train_time *out);
/* "trial", "rates", the name of a run, or "" */
const char *bt_train_time_source(const bt_train_time *t);
/* the line "time ..." of a source that is known. rates: their file, or "" */
void bt_train_time_put(const bt_train_time *t, int64_t steps, const char *rates, bt_text *out);

/* the choices of --minutes and --layout auto as events; nothing without them */
void bt_train_record_layout(const bt_train_plan *p, const bt_sink *sink);

/* train_elastic.c */
/* the layout that the ranks have, and the settings that they receive in it */
typedef struct bt_train_layouts {
    const bt_train_plan *plan;
    bt_run_cfg now;
    bt_text settings; /* as bt_run_cfg_texts */
} bt_train_layouts;
bt_code bt_train_layouts_open(bt_train_layouts *l, const bt_train_plan *p, bt_err *err)
    BT_MUST_CHECK;
void bt_train_layouts_close(bt_train_layouts *l); /* accepts all-zero */
/* bt_job_setup.layout; ctx: bt_train_layouts */
bt_code bt_train_layout(void *ctx, const bt_resize_request *w, bool take, bt_job_layout *out,
                        bt_err *err) BT_MUST_CHECK;
/* reads --elastic, and sets the number of ranks to start with: inside its range */
bt_code bt_train_first_ranks(bt_train_plan *p, int cores, bt_err *err) BT_MUST_CHECK;

/* train_detach.c: starts the same command in a session of its own and prints how to watch and stop the run. Faults
 * of data and settings are reported before. */
bt_code bt_train_detach(const bt_train_plan *p, int argc, char *const *argv, bt_err *err)
    BT_MUST_CHECK;

/* train_alerts.c: reads alert.rules, and finds what alert.webhook needs. After the settings are read */
bt_code bt_train_alerts(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;

/* train_time.c: by the newest recorded run of this host that did the same work, else that used as many
 * ranks and threads */
void bt_train_speed_here(const bt_train_plan *p, bt_train_speed *out);

/* train_plan.c: expected duration of the run on this machine; NaN: unknown */
double bt_train_seconds(const bt_train_plan *p);
/* train_plan.c: work, layout, memory of every rank, command of mpirun; as text or (run.json) as one
 * JSON object */
bt_code bt_train_dry_run(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Prints the output of --print-config or --dry-run. */
bt_code bt_train_print_plan(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_print.c */
/* Returns the origin of a setting: "--lr", "conf.yaml:3", "preset nano", "auto". */
const char *bt_train_setting_where(const bt_train_plan *p, const char *key);
/* a line, where a resumed run takes its ranks, threads or hosts from its record */
void bt_train_folder_line(const bt_train_plan *p, bt_text *out);
/* lines: the beginning of the run, and skipped checkpoints */
void bt_train_greeting(const bt_train_plan *p, bt_text *out);
/* Prints the end of a run. result_json: the result of rank 0, may be NULL. state: "done" "stopped" "failed" */
void bt_train_summary(const bt_train_plan *p, const char *state, int attempt,
                      const char *result_json);
/* True for a flag that is true, or a text that exists (copied into buf unless NULL), in the result of rank 0. */
bool bt_train_result_get(const char *result_json, const char *key, char *buf, size_t size);
/* the reason to record for a run that is complete before its last step; false: it is not */
bool bt_train_early(const char *result_json, char *buf, size_t size);
void bt_train_fill_start(const bt_train_plan *p, bt_run_start *s, char host[BT_HOST_MAX],
                         char user[64]);

#endif
