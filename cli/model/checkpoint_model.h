/* checkpoint_model.h - opens a trained model from a run, "last", a checkpoint folder, or a model of another program
 * (engine/interop); or several of these as one ensemble. One process, no MPI. */
#ifndef BT_CLI_MODEL_CHECKPOINT_MODEL_H
#define BT_CLI_MODEL_CHECKPOINT_MODEL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/text.h"
#include "engine/ckpt/ckpt.h"
#include "engine/config/run_cfg.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/model_file.h"
#include "engine/model/net/model.h"

typedef struct bt_trained bt_trained;
struct bt_trained {
    char path[PATH_MAX]; /* folder of the checkpoint */
    bt_ckpt_meta meta;
    bt_run_cfg cfg; /* settings of the training */
    bt_tokenizer *tokenizer;
    bt_model_file *file; /* source of the weights; NULL when the model has been created */
    bt_text passed_over; /* newer damaged checkpoints, one per line */
    bt_model *model;     /* quantised, forward only */
    bt_text notes;       /* notes from reading the files, one per line, already printed */
    bt_prec prec;        /* requested precision; bt_trained_precision returns the one in use */
    /* For an ensemble this struct is the first member, whose settings are in use; `others` are the remaining members,
     * meta.run is the name of the ensemble, and `model` owns the models of the other members. */
    bt_trained *others;
    size_t n_others;
    char member[128]; /* name or path of this member, shortened; "" without an ensemble */
};

typedef struct bt_trained_how {
    const char
        *which; /* RUN, "last", a folder or a file; or words that name an ensemble (members.h) */
    const char *store; /* "": the default */
    const char *isa;   /* "": auto, independently of the run's setting */
    /* for adapters: their base model, in the form of `which`; NULL or "": the recorded one */
    const char *base;
    /* for adapters: factor of their product (default 1), and further adapters of the same base whose products are added
     * (RUN[:WEIGHT],..; NULL or "": none) */
    double weight;
    const char *add;
    const char
        *tokenizer; /* file, for a model of another program without a tokenizer; NULL or "": none */
    int64_t threads; /* 0: all cores */
    /* bt_prec of the products. 0 is fp32, with which a run, its checkpoints and its exports give the same results on
     * every processor, whatever the precision of the training */
    int precision;
    int B;       /* number of sequences at the same time; 0: the run's micro-batch */
    bool quiet;  /* no progress bar while the model is loaded */
    int T;       /* length of sequences if less than the model's; 0: the model's */
    bool newest; /* true: a damaged newest checkpoint is an error instead of a warning */
} bt_trained_how;

/* options of every command that uses a trained model */
typedef struct bt_trained_opts {
    char base[1024], add[2048], tokenizer[1024], isa[16];
    double weight;
    int64_t threads;
    int precision;
} bt_trained_opts;

/* Rows of an option table for a struct s with a member bt_trained_opts trained. */
/* clang-format off */
#define BT_TRAINED_OPTS(s) \
    {"threads", "--threads", BT_OPT_INT, BT_FIELD(s, trained.threads), "0", 0, 1024, NULL, NULL, \
     "threads (0: all cores)"}, \
    {"tokenizer", "--tokenizer", BT_OPT_TEXT, BT_FIELD(s, trained.tokenizer), "", 0, 0, NULL, NULL, \
     "tokenizer for a model without one"}, \
    {"base", "--base", BT_OPT_TEXT, BT_FIELD(s, trained.base), "", 0, 0, NULL, NULL, \
     "base model of the adapters, RUN or path (default: the recorded one)"}, \
    {"add", "--add", BT_OPT_TEXT, BT_FIELD(s, trained.add), "", 0, 0, NULL, NULL, \
     "additional adapters of the same base, RUN[:WEIGHT],.."}, \
    {"weight", "--weight", BT_OPT_REAL, BT_FIELD(s, trained.weight), "1", -100, 100, NULL, NULL, \
     "weight of the first adapters"}, \
    {"precision", "--precision", BT_OPT_ENUM, BT_FIELD(s, trained.precision), "fp32", 0, 0, "fp32|bf16|fp16", NULL, \
     "number format of floating-point products; bf16 is faster on processors with bf16 instructions"}, \
    {"isa", "--isa", BT_OPT_TEXT, BT_FIELD(s, trained.isa), "auto", 0, 0, NULL, NULL, \
     "fastest kernel set allowed"}
/* clang-format on */

/* which, store and the texts of `o` are borrowed. */
bt_trained_how bt_trained_how_of(const bt_trained_opts *o, const char *which, const char *store);

/* Opens everything except the model, which bt_trained_model creates; or both. */
bt_code bt_trained_open(bt_trained *t, const bt_trained_how *how, bt_err *err) BT_MUST_CHECK;
bt_code bt_trained_model(bt_trained *t, const bt_trained_how *how, bt_err *err) BT_MUST_CHECK;
bt_code bt_trained_load(bt_trained *t, const bt_trained_how *how, bt_err *err) BT_MUST_CHECK;
/* Prints on standard error the tokens, if any, that the tokenizer adds around each text. */
void bt_trained_report_affixes(const bt_trained *t);
/* adds the members of an ensemble to a JSON printout as an array "members" */
void bt_trained_put_members(const bt_trained *t, bt_json *j);
void bt_trained_release(bt_trained *t);
/* Gives a model file without a tokenizer the one in `path` (bitrain's or Hugging Face's format); "" has no effect.
 * BT_ARG: the model has a tokenizer, or fewer tokens. */
bt_code bt_trained_tokenizer(bt_model_file *s, const char *path, bt_err *err) BT_MUST_CHECK;
/* Returns the precision of computation, "fp32", "bf16" or "fp16": fp32 if the processor has no faster products. */
const char *bt_trained_precision(const bt_trained *t);

#endif
