/* parts.h - the trainer from inside: its fields, and the functions its files share. Included by
 * engine/train only. */
#ifndef BT_ENGINE_TRAIN_PARTS_H
#define BT_ENGINE_TRAIN_PARTS_H

#include "engine/data/shards/loader.h"
#include "engine/model/net/model.h"
#include "engine/observe/meter.h"
#include "engine/observe/telemetry.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/link.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/pp/pipe.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/train/balance.h"
#include "engine/train/codes.h"
#include "engine/train/evaluate.h"
#include "engine/train/guard.h"
#include "engine/train/loss_scale.h"
#include "engine/train/trainer.h"
#include "engine/train/weights.h"

/* What every rank learns from rank 0 and from each other, once a step, together with the arrival
 * times. Rank 0 alone fills CONTROL and LR; FINGER and FINGER_NEG carry one number up and down, so
 * that two different numbers show. */
enum {
    NOTE_CONTROL,
    NOTE_LR,
    NOTE_BAD_LOSS,
    NOTE_GRAD_FINGERPRINT,
    NOTE_GRAD_FINGERPRINT_NEG,
    NOTE_COUNT
};
/* beside the bits of run_request.h: rank 0's clock says a checkpoint is due */
enum { REQ_CKPT_DUE = 1 << 16 };

/* of a tensor: codes by kind, squares of the step's change and of the weights before it, and its
 * scale, once */
enum {
    COUNT_ZERO,
    COUNT_POS,
    COUNT_FLIP,
    COUNT_SIGN_FLIP,
    COUNT_BACK,
    COUNT_NEAR,
    COUNT_CHANGE,
    COUNT_BEFORE,
    COUNT_SCALE,
    COUNTS
};

typedef struct bt_progress { /* what a checkpoint keeps besides tensors */
    /* steps done, applied or skipped; also the data cursor */
    int64_t step;
    /* steps applied: the optimizer's and the schedule's clock */
    int64_t updates;
    int64_t tokens;
    double lr_factor; /* asked for by people; 1 otherwise */
} bt_progress;

typedef struct bt_step_outcome {
    double loss; /* this rank's mean over its tokens */
    /* of all ranks, added in a fixed order; NaN when not reproducible */
    double global_loss;
    double grad_norm, lr, weight_decay, loss_scale;
    bool applied;
} bt_step_outcome;

typedef struct bt_pipeline bt_pipeline;

struct bt_trainer {
    bt_run_cfg cfg;
    bt_model_cfg model_cfg;
    bt_request_box *requests;
    bt_place *place, own_place; /* own_place: when nobody looks */
    int attempt;

    bt_mesh mesh;
    int rank, n_ranks;
    int64_t sequences, micros;    /* of a step */
    int64_t first_micro, n_micro; /* this rank's micro-batches in the step's order */
    bt_balance_kind balance;
    /* (2, data-parallel ranks) micro-batches of each; room for the next plan */
    int64_t *shares;
    double *costs; /* (data-parallel ranks) seconds a micro-batch */
    bt_balance_meter pace;
    int64_t compute_ns; /* of this step's micro-batches, here */
    /* 1, or more: sleep as if the processor were slower */
    double slow;
    /* (micros) sums of token losses: reproducible training adds them in order */
    double *micro_losses;

    bt_tp_group *tp_group;     /* NULL: no tensor parallelism */
    int64_t tp_ns, tp_wait_ns; /* of its exchanges, those the meter knows of */
    bt_pipeline *pipeline;     /* NULL: one stage */
    bt_model *model;
    bt_params table;      /* the tensors of all stages */
    bt_optim_span *spans; /* one per tensor */
    bt_shards shards;     /* one shard: everything is one piece */
    /* (n_pieces) this rank's, one per stripe; may be empty */
    bt_range *pieces;
    bt_optim **optims; /* (n_pieces) their moments */
    size_t n_pieces;
    bt_weights *weights;
    double *norm_blocks, *tensor_squares, *tp_norms; /* squares: (table.n) */
    bt_schedule schedule;
    bt_loader *loader;
    bt_evaluator *evaluator; /* NULL: no validation data */
    bt_reducer *reducer;
    bt_meter meter;
    bt_profile profile;
    /* before a profile measured the machine; 0: not yet */
    double rss_peak_mib;
    bt_telemetry telemetry;
    bt_guard guard;
    bt_loss_scale loss_scale;
    /* 1 / the loss scale of the gradients that are there */
    double unscale;
    double bytes_per_token;

    bt_progress at;
    /* of this attempt; stop_at: where stop_after ends it */
    int64_t first_step, stop_at;
    int64_t notes[NOTE_COUNT]; /* as agreed in the last exchange */
    /* of the last step's gradients: must be the same on all ranks */
    int64_t grad_fingerprint;
    bool stop, stopped;
    int64_t ckpt_step, ckpt_at_ns; /* last checkpoint of this attempt */
    char ckpt_path[1024];
    char ckpt_trouble[240]; /* why the newest save failed, "" when it did not */
    double val_loss, val_bits_per_byte;
    bt_layer_record *layer_records; /* (table.n) for the ternary statistics */
    double (*layer_values)[BT_ML_COUNT];
    double (*layer_counts)[COUNTS]; /* (table.n) of all ranks */
    bt_codes_cfg slices;            /* of each tensor this rank looks at one */
    bt_codes *codes;                /* NULL: no statistics */
    bt_code_counts *code_counts;    /* (tensors) */
    bt_comm_record *comm_records;   /* on rank 0: (ranks, kinds of exchange) */
    /* (kinds), on rank 0 (ranks, kinds) */
    double (*comm_mine)[BT_MC_COUNT], (*comm_all)[BT_MC_COUNT];
    /* of the newest such records: theirs begin after it */
    int64_t comm_step, pair_step;
    int64_t samples; /* statistics of this attempt */
    /* on rank 0: (ranks, ranks); NULL in a world that is too large for a picture */
    bt_pair_record *pair_records;
    /* (ranks), on rank 0 (ranks, ranks) */
    double (*pair_mine)[BT_MP_COUNT], (*pair_all)[BT_MP_COUNT];
    /* of the axes along which ranks exchange directly */
    bt_link links[BT_AXIS_COUNT];
};

/* step.c */
bt_code bt_train_step(bt_trainer *t, bt_step_outcome *out, bt_err *err) BT_MUST_CHECK;
/* the next micro-batch's tokens */
bt_code bt_step_batch(bt_trainer *t, bt_batch *out, bt_err *err) BT_MUST_CHECK;
/* before backward of micro-batch i: where its gradients go */
bt_grad_ready_fn bt_step_unit(bt_trainer *t, int64_t i);
bt_code bt_step_unit_done(bt_trainer *t, int64_t i, bt_err *err) BT_MUST_CHECK;
/* after a pass of the model, which bt_layout_meter_tp preceded */
bt_code bt_step_computed(bt_trainer *t, bt_micro_times *took, bt_err *err) BT_MUST_CHECK;

/* pipeline.c: stages (mesh.pp > 1) */
/* that create takes */
size_t bt_pipeline_bytes(const bt_model_setup *s, const bt_mesh_shape *shape);
bt_code bt_pipeline_create(bt_trainer *t, const bt_model_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_pipeline_release(bt_trainer *t);
/* NULL: one stage */
bt_pipe *bt_pipeline_pipe(const bt_trainer *t);
/* all of a step; losses to every stage */
bt_code bt_pipeline_micros(bt_trainer *t, double scale, bt_err *err) BT_MUST_CHECK;
/* the embedding's new values to the last stage's head */
bt_code bt_pipeline_tie(bt_trainer *t, int64_t *comm_ns, bt_err *err) BT_MUST_CHECK;

/* share.c: this rank's micro-batches */
bt_code bt_share_plan(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* collective: the exchange of gradients for the plan as it is */
bt_code bt_share_reducer(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_share_release(bt_trainer *t);
/* collective, after a step: parallel.balance=auto */
bt_code bt_share_adjust(bt_trainer *t, bt_err *err) BT_MUST_CHECK;

/* layout.c: what depends on who holds what. Only grad_norm, update and tensor_squares
 * communicate */
/* its time since the last call, to the meter and added; NULL: to nobody */
void bt_layout_meter_tp(bt_trainer *t, int64_t *total_ns);
bt_code bt_layout_take_pieces(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_layout_release(bt_trainer *t);
void bt_layout_zero_grads(bt_trainer *t);
bt_code bt_layout_grad_norm(bt_trainer *t, double *norm, bt_err *err) BT_MUST_CHECK;
void bt_layout_init_weights(bt_trainer *t);
/* before the first step */
bt_code bt_layout_quantise(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* optimizer, weights to all who need them, quantisation; adds its times to the meter */
bt_code bt_layout_update(bt_trainer *t, float grad_scale, float lr, float decay, bt_err *err)
    BT_MUST_CHECK;
/* (table.n) of the gradients of all stages */
bt_code bt_layout_tensor_squares(bt_trainer *t, const double **out, bt_err *err) BT_MUST_CHECK;

/* train_control.c: requests in, agreed controls out */
/* rank 0: the box into the notes */
void bt_control_ask(bt_trainer *t);
/* all ranks: act on the agreed notes */
bt_code bt_control_obey(bt_trainer *t, bt_err *err) BT_MUST_CHECK;

/* stats.c */
bt_code bt_stats_plan(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_stats_release(bt_trainer *t);
/* collective: what the links can do */
bt_code bt_stats_links(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* the first step comes */
void bt_stats_begin(bt_trainer *t);
/* collective, after the step */
bt_code bt_stats_record(bt_trainer *t, int64_t step, const bt_step_outcome *o, bt_err *err)
    BT_MUST_CHECK;

/* state.c: checkpoints of a trainer */
/* collective */
bt_code bt_state_save(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* collective; weights, moments, progress */
bt_code bt_state_resume(bt_trainer *t, const char *dir, bt_err *err) BT_MUST_CHECK;
/* collective; weights only */
bt_code bt_state_init_from(bt_trainer *t, const char *dir, bt_err *err) BT_MUST_CHECK;

/* facts.c: what is true of the whole run, told once */
/* collective */
bt_code bt_facts_tell(bt_trainer *t, bt_err *err) BT_MUST_CHECK;

/* trainer.c */
/* collective */
bt_code bt_trainer_evaluate(bt_trainer *t, bt_err *err) BT_MUST_CHECK;

#endif
