/* train_parts.h - the pieces of `bitrain train`: settings, a run's identity, output before and after the run. */
#ifndef BT_CLI_TRAIN_TRAIN_PARTS_H
#define BT_CLI_TRAIN_TRAIN_PARTS_H

#include <limits.h>

#include "engine/config/agree/job_agreement.h"
#include "engine/config/elastic.h"
#include "engine/config/run_cfg.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/plan/time_model.h"
#include "engine/train/trainer.h"
#include "monitor/job/health/alert_rules.h"
#include "monitor/job/supervisor.h"
#include "store/store.h"

/* Sizes of the data as rank 0 will read them; all zero if only other hosts have the data. */
typedef struct bt_train_data {
    bool seen;
    int64_t tokens, val_tokens; /* -1: endless */
    /* tokens that count in a loss; -1: all tokens, or the data are texts or preferences */
    int64_t counted, val_counted;
    /* tokens of the steps of one epoch, including the padding of packed documents */
    int64_t epoch_tokens;
} bt_train_data;

/* Recorded speed of this machine with as many ranks and threads; run "": none. */
typedef struct bt_train_speed {
    char run[BT_NAME_MAX];
    bool same; /* the recorded run had as many operations per token and tokens per step */
    double flop_per_s, tokens_per_s, seconds; /* seconds: for the remaining steps */
} bt_train_speed;

typedef struct bt_train_plan {
    bt_opts opts;
    bt_run_cfg cfg;       /* resolved settings */
    bt_run_cfg given;     /* settings before automatic values were found */
    bt_elastic elastic;   /* range of --elastic; 0, 0: none */
    bt_isa_agreement isa; /* kernel set of this rank; all zero before the ranks exist */
    int ranks;
    int world; /* number of ranks of the MPI job of this process; 0: this process starts the ranks */
    char run[BT_NAME_MAX];
    char store[PATH_MAX], out[PATH_MAX];
    char out_made
        [PATH_MAX];       /* topmost folder of `out` that this command created; "": `out` is kept */
    bool resume;          /* the run exists and is continued */
    bool complete;        /* --continue of a finished run: nothing is trained */
    bt_resume_point from; /* checkpoint to start from */
    /* lock of the folder, taken before the checkpoint is chosen; -1: none yet */
    int run_lock;
    char reason[160]; /* why this attempt was started */
    bt_text place;    /* launch.* and mesh.* settings adopted from the record, as flags */
    bt_text why;      /* skipped checkpoints, one per line */
    bt_text recorded; /* settings of the resumed run, as JSON */
    bt_text before;   /* settings before this attempt, also if a checkpoint folder is resumed */
    bt_text
        tokenizer_of; /* serialised tokenizer of the resumed checkpoint or of model.init_from; empty: none */
    int64_t began_ns; /* start of the time of --minutes; 0: no time budget */
    bt_text recipe;   /* lines about the plan of --minutes and its reasons */
    bt_text layout,
        layout_notes; /* line about the choice of --layout auto; lines about its rates */
    bt_text config_json, argv;
    bt_alert_rules alerts;
    char curl[PATH_MAX]; /* path of curl for alert.webhook; "": not needed */
} bt_train_plan;

void bt_train_plan_release(bt_train_plan *p);

/* True for --print-config and --dry-run. */
static inline bool bt_train_only_prints(const bt_train_plan *p) {
    return p->cfg.run.print_config || p->cfg.run.dry_run;
}

/* train_settings.c: parses the command line. world: number of ranks of the MPI job of this process; 0: this process
 * starts the ranks. */
bt_code bt_train_make_plan(bt_train_plan *p, int argc, char **argv, int world, bool *help,
                           bt_err *err) BT_MUST_CHECK;

/* train_resume.c: --resume RUN|last|DIR adds the stored settings with lower priority than the current flags
 * (p->opts, not yet resolved). Refuses changes of fixed settings (BT_BUSY). Fills run, out, resume, from, reason. */
bt_code bt_train_resume(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Fills config_json with the settings to record. A setting adopted from the record keeps its recorded origin, so
 * that settings of a user remain distinct from defaults. */
bt_code bt_train_config_json(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;

/* Keeps a recorded prediction if layout, ranks, threads and tokens per step equal the recorded ones. Requires
 * resolved settings. */
bt_code bt_train_keep_prediction(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Warns if changed settings give the next step another learning rate than the recorded schedule gave the last one.
 * Requires resolved settings. Does nothing for a new run. */
void bt_train_warn_schedule(const bt_train_plan *p);
/* train_continue.c: --continue acts like --resume if the store has a run of this name or its folder has a
 * checkpoint, otherwise it starts a new run. */
bt_code bt_train_continue(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
void bt_train_print_complete(const bt_train_plan *p); /* on stdout */
/* Returns true if the folder `memory` has a state at least as new as every checkpoint in `out`. */
bool bt_train_in_memory(const char *out, const char *memory, bt_resume_point *p);
/* Finds the newest valid checkpoint of an output folder and its serialised tokenizer (may be NULL). BT_NOTFOUND if
 * there is none. */
bt_code bt_train_newest(const char *out, bt_resume_point *p, bt_text *tokenizer, bt_text *why,
                        bt_err *err) BT_MUST_CHECK;

/* train_tokenizer.c: replaces data.tokenizer=auto and bpe:N by "bytes" or by a tokenizer file, learned from the
 * training data and stored in the cache. Restores a deleted file from the resumed checkpoint. Called between reading
 * the settings and bt_train_vocab. Fails with BT_ARG if the tokenizer is not that of the initial weights. */
bt_code bt_train_tokenizer(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Returns true if bt_train_tokenizer learned the tokenizer from the training data. */
bool bt_train_learned_tokenizer(const bt_train_plan *p);
/* Stores a tokenizer in the cache under a key, for the ranks and later runs. */
bt_code bt_train_keep_tokenizer(const bt_train_plan *p, const bt_tokenizer *t, uint64_t key,
                                char *path, size_t size, bt_err *err) BT_MUST_CHECK;

/* Replaces a run's name in model.init_from by its folder. Settings of model and tokenizer that were not given are
 * adopted from the checkpoint. */
bt_code bt_train_init_from(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_init_foreign.c: adopts model settings and tokenizer from another program's model, a Hugging Face folder or a
 * GGUF file. */
bt_code bt_train_init_foreign(bt_train_plan *p, const char *path, bt_err *err) BT_MUST_CHECK;
/* train_vocab.c: sets model.vocab, unless given, to the number of tokens of the tokenizer or of the weights of
 * model.init_from. Called between reading and resolving the settings. */
bt_code bt_train_vocab(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_vocab.c: replaces data.template=auto of conversations by that of the base's tokenizer. BT_ARG: its template
 * is not in the table. Called after bt_train_tokenizer. */
bt_code bt_train_template(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_vocab.c: sets data.labels of a classifier, unless given, to those of its data. */
bt_code bt_train_labels(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_settings.c: calls the functions above in this order, and bt_train_fit_little_text, for every command that
 * plans a training. Called between reading the settings and bt_train_epochs. p->ranks: number of ranks, or 0 if this
 * machine's cores determine it. */
bt_code bt_train_follow_inputs(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;

/* train_folder.c: writes --out or, without it, runs/RUN beside the store. */
bt_code bt_train_out(const bt_train_plan *p, const char *run, char out[PATH_MAX], bt_err *err)
    BT_MUST_CHECK;
/* Writes data.cache or, without it, cache/ beside the store. */
bt_code bt_train_cache(const bt_train_plan *p, char out[PATH_MAX], bt_err *err) BT_MUST_CHECK;
/* Sets the output and cache folders, also in the settings. */
bt_code bt_train_choose_folder(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Creates the folder `out` and locks it for this run; a second call does nothing. BT_BUSY: another process trains
 * a run in this folder, or a new run finds checkpoints. Ranks other than 0 and printed plans take no lock. */
bt_code bt_train_lock(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Removes the folders that bt_train_lock created, if they contain only lock files, because the run did not begin. */
void bt_train_unmake_out(bt_train_plan *p);
/* train_resume.c: stores the records that a killed rank 0 left in a ring, before a resumed run starts. */
void bt_train_recover(const bt_train_plan *p, bt_writer *writer);
/* train_resume.c: records each skipped checkpoint as an event, and prints it if there is no greeting. */
void bt_train_record_passed(const bt_train_plan *p, const bt_sink *sink);
/* train_resume.c: withdraws a resumed start that recorded no step, and reports it. writer may be NULL. */
void bt_train_withdraw(const bt_train_plan *p, bt_writer *writer);
/* Creates the built-in corpus if the run uses it. */
bt_code bt_train_corpus(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Counts the sequences of one epoch of the training data, which it tokenises; -1: endless. c: resolved settings. */
bt_code bt_train_sequences(const bt_train_plan *p, const bt_run_cfg *c, int64_t *out, bt_err *err)
    BT_MUST_CHECK;
/* train_epochs.c: returns BT_ARG if both settings of a pair are given, such as train.epochs and train.steps. faults:
 * as for bt_collect_fault. */
bt_code bt_train_check_pairs(const bt_opts *o, bt_text *faults, bt_err *err) BT_MUST_CHECK;
/* train_epochs.c: converts train.epochs, train.evals_per_epoch and ckpt.saves_per_epoch to train.steps,
 * train.eval_every and ckpt.every. Called after the number of ranks is set, before the settings are resolved.
 * BT_ARG: both are given. */
bt_code bt_train_epochs(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_folder.c: counts the tokens of plain text, training and validation together, with the plan's tokenizer. */
bt_code bt_train_tokens(const bt_train_plan *p, int64_t *out, bt_err *err) BT_MUST_CHECK;
/* train_vocab.c: shortens the sequences and enlarges the validation share for a text of a few kilobytes if the
 * preset's do not fit, unless they were given. */
bt_code bt_train_fit_little_text(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_epochs.c: resolves the settings although the number of steps is open; the caller frees the result. */
bt_code bt_train_resolve_open(const bt_train_plan *p, bt_run_cfg **out, bt_err *err) BT_MUST_CHECK;
/* train_minutes.c: bt_train_minutes_begin checks --minutes and starts its clock, after the settings are read.
 * bt_train_minutes chooses model, steps and regularisers and fills p->recipe, after the number of ranks is set and
 * before the settings are resolved. */
bt_code bt_train_minutes_begin(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
bt_code bt_train_minutes(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* minutes of one training: an ensemble shares those of --minutes */
double bt_train_minutes_of_one(const bt_train_plan *p);
/* true if --minutes chose the value of setting i of p->opts */
bool bt_train_minutes_chose(const bt_train_plan *p, size_t i);
/* Writes the choices of --minutes into the folder of an ensemble, for the commands that continue it. */
bt_code bt_train_minutes_keep(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_step_time.c: runs some steps of these resolved settings on the ranks of the plan. *step_s: median step time. */
bt_code bt_train_measure_step(const bt_train_plan *p, const bt_run_cfg *resolved, int64_t steps,
                              double *step_s, bt_err *err) BT_MUST_CHECK;
/* Checks corpus, database and data, opened like in the ranks, so that errors are reported before a job starts. data:
 * sizes; may be NULL. */
bt_code bt_train_inputs(const bt_train_plan *p, bt_train_data *data, bt_err *err) BT_MUST_CHECK;

/* train_layout.c: --layout auto sets what the user left open to the planner's first choice. Called after the number
 * of ranks is set, before the settings are resolved. */
bt_code bt_train_choose_layout(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Predicts the time of a resolved plan from known rates without measuring. from: file of the rates and time of
 * measurement; on failure (false) the reason, or "". tried: stored trial of this layout, step_s 0: none. */
bool bt_train_predict(const bt_train_plan *p, bt_prediction *out, bt_trial_rate *tried,
                      bt_text *from);
/* train_time.c: source of the expected step time, for `plan` and `train --dry-run` */
typedef enum {
    BT_TIME_UNKNOWN,
    BT_TIME_TRIED,
    BT_TIME_SAME_RUN,  /* a recorded run with as many operations per token and tokens per step */
    BT_TIME_PREDICTED, /* measured rates of the machine */
    BT_TIME_OTHER_RUN  /* another recorded run, whose speed is scaled by the operations per token */
} bt_time_source;
typedef struct bt_train_time {
    bt_time_source source;
    bt_train_speed speed;
    double step_s, seconds, tokens_per_s; /* values from the source; NaN: unknown */
    /* predicted step time; NaN: the rates are unknown */
    double predicted_s;
    double trial_load; /* load of other programs; NaN: unknown */
} bt_train_time;
/* Chooses the best known source, in the order BT_TIME_TRIED .. BT_TIME_OTHER_RUN. predicted_s: NaN or 0 if unknown;
 * tried may be NULL. */
void bt_train_time_of(const bt_train_plan *p, double predicted_s, const bt_trial_rate *tried,
                      bt_train_time *out);
/* Names the source of the time: "trial", "rates", the name of a run, or "". */
const char *bt_train_time_source(const bt_train_time *t);
/* Writes the line "time ..." for a known source. rates: file of the rates, or "". */
void bt_train_time_put(const bt_train_time *t, int64_t steps, const char *rates, bt_text *out);

/* Records the choices of --minutes and --layout auto as events. */
void bt_train_record_layout(const bt_train_plan *p, const bt_sink *sink);

/* train_elastic.c: the current layout of the ranks and the settings sent to them */
typedef struct bt_train_layouts {
    const bt_train_plan *plan;
    bt_run_cfg now;
    bt_text settings; /* in the form of bt_run_cfg_texts */
} bt_train_layouts;
bt_code bt_train_layouts_open(bt_train_layouts *l, const bt_train_plan *p, bt_err *err)
    BT_MUST_CHECK;
void bt_train_layouts_close(bt_train_layouts *l); /* accepts all-zero */
/* Implements bt_job_setup.layout; ctx: bt_train_layouts. */
bt_code bt_train_layout(void *ctx, const bt_resize_request *w, bool take, bt_job_layout *out,
                        bt_err *err) BT_MUST_CHECK;
/* Parses --elastic and sets the initial number of ranks, inside its range. */
bt_code bt_train_first_ranks(bt_train_plan *p, int cores, bt_err *err) BT_MUST_CHECK;

/* train_detach.c: starts the same command in its own session and prints how to watch and stop the run. Errors of data
 * and settings were reported before this call. */
bt_code bt_train_detach(const bt_train_plan *p, int argc, char *const *argv, bt_err *err)
    BT_MUST_CHECK;

/* train_alerts.c: reads alert.rules and finds the program for alert.webhook. Called after the settings are read. */
bt_code bt_train_alerts(bt_train_plan *p, bt_err *err) BT_MUST_CHECK;

/* train_time.c: returns the speed of the newest recorded run of this host with as many ranks and threads. Runs with
 * `same` have priority. */
void bt_train_speed_here(const bt_train_plan *p, bt_train_speed *out);

/* train_plan.c: returns the expected duration of the run on this machine; NaN: unknown. */
double bt_train_seconds(const bt_train_plan *p);
/* train_plan.c: prints work, layout, memory of every rank and the mpirun command, as text or (run.json) as one JSON
 * object. */
bt_code bt_train_dry_run(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* Prints the output of --print-config or --dry-run. */
bt_code bt_train_print_plan(const bt_train_plan *p, bt_err *err) BT_MUST_CHECK;
/* train_print.c: returns the origin of a setting: "--lr", "conf.yaml:3", "preset nano", "auto". */
const char *bt_train_setting_where(const bt_train_plan *p, const char *key);
/* Writes a line if a resumed run takes its ranks, threads or hosts from its record. */
void bt_train_folder_line(const bt_train_plan *p, bt_text *out);
/* Writes the lines printed at the start of the run, including skipped checkpoints. */
void bt_train_greeting(const bt_train_plan *p, bt_text *out);
/* Prints the end of a run. result_json: result of rank 0, may be NULL. state: "done", "stopped", "failed". */
void bt_train_summary(const bt_train_plan *p, const char *state, int attempt,
                      const char *result_json);
/* Returns true if the result of rank 0 has this flag set or this text, which is copied to buf unless NULL. */
bool bt_train_result_get(const char *result_json, const char *key, char *buf, size_t size);
/* Writes the reason for which the run is complete before its last step; returns false if it is not. */
bool bt_train_early(const char *result_json, char *buf, size_t size);
void bt_train_fill_start(const bt_train_plan *p, bt_run_start *s, char host[BT_HOST_MAX],
                         char user[64]);

#endif
