/* rates.h - measured times of the parts of a step on this machine: forward and backward pass of a layer for each shape,
 * the head, optimizers, codecs, memory, and messages between groups of ranks.
 *
 * Rates belong to one machine (host, processor, cores), one build of this program and one use of the machine (ranks
 * that compute at the same time, threads of each, host file, kernel set). rates_probe.h measures them; this module
 * stores, finds and scales them. For a shape that was not measured, the rate of the nearest measured shape is scaled by
 * operations and bytes. Seconds of computing are processor seconds of a rank that does not share its cores; a plan with
 * more threads than cores multiplies them (time_model.h). Threads: one owner. Owns: its lists. */
#ifndef BT_ENGINE_PLAN_RATES_H
#define BT_ENGINE_PLAN_RATES_H

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/codec.h"

enum {
    BT_RATES_VERSION = 3,
    BT_RATES_MAX = 256,
    BT_RATES_LINKS = 64,
    BT_RATES_GROUPS = 32,
    BT_RATES_TRIALS = 64,
    BT_RATE_OPS = 12,
    BT_RATE_KEY = 160
};

typedef enum { BT_PART_LAYER, BT_PART_HEAD } bt_part_kind;

/* A layer, or final norm, head, loss and embedding together (kind head), of one micro-batch, in the slice of
 * tensor-parallel rank 0. Sizes are those of the whole model as in bt_model_cfg. A head has no H, KV, D, F; a layer has
 * no V. */
typedef struct bt_part_shape {
    bt_part_kind kind;
    int32_t C, H, KV, D, F, V, T, B;
    int32_t norm, act, linear, qk_norm, precision;
    int32_t grad_int8; /* 1: int8 gradients; 2: also in the attention of a layer */
    int32_t recompute;
    /* sequence: a rank has the residual stream of its own tokens only; 0 without tensor parallelism */
    int32_t tp, sequence;
    /* For a frozen base: rank of the adapters (1 for a head, which has none), adapted layers (BT_LORA_* and
     * BT_PART_DORA) and form of the base. All are 0 if every weight is trained. */
    int32_t lora, targets, lean, base8;
} bt_part_shape;
enum { BT_PART_DORA = BT_LORA_ALL + 1 };

typedef struct bt_part_rate {
    bt_part_shape shape;
    double fwd_s, bwd_s;           /* for all B x T tokens */
    double attn_fwd_s, attn_bwd_s; /* part of attention, which grows with T x T */
    /* conversion of latent weights to codes and packed weights, after each update */
    double quantise_s;
} bt_part_rate;

/* Operations per second of one kind of product; only displayed. */
typedef struct bt_op_rate {
    char op[24], unit[8];
    double rate;
} bt_op_rate;

#define BT_SHARED_S 0.2
#define BT_SHARED_OFTEN_S 0.02

/* Messages in a group of n ranks with the distance `stride`, in a job of `world` ranks, while all such groups send:
 * latency of a round, and bytes per second that a rank sends. 0: unknown. */
typedef struct bt_link_rate {
    int32_t world, n, stride;
    double latency_s, bytes_per_s;
    double agree_s; /* agreement (bt_agree) of all ranks in the group, once a step */
    /* Exchange of rows in a tensor-parallel group (tp_group.h); 0: not measured. */
    double meet_s, rows_bytes_per_s;
    /* Exchange of uncoded gradients through memory that the ranks of a host share (reducer.h), including the digest:
     * processor seconds of a rank per element, first until the owner has the sum, then until all ranks have it. 0: the
     * ranks do not share memory. */
    double grads_sum_s, grads_back_s;
    /* Slow-down in a job that has more ranks than its host has cores: processor time, including that of waiting ranks
     * that occupy a core, over computing time, if ranks synchronise every BT_SHARED_S, and every BT_SHARED_OFTEN_S, of
     * processor time. 0: not measured. */
    double shared_x, shared_often_x;
} bt_link_rate;

/* Wall time of one layer, forward and backward, on all ranks of a job of `world` at once: in real tensor-parallel
 * groups of shape.tp neighbouring ranks, and alternately without exchanges. The difference beyond the exchanges is
 * waiting for slower ranks; other programs affect both times alike. */
typedef struct bt_group_rate {
    int32_t world;
    bt_part_shape shape;
    double pass_s, alone_s;
} bt_group_rate;

/* Measured step time of a layout. key: hash of everything that affects it (layout_search.h). */
typedef struct bt_trial_rate {
    char key[24];
    double step_s;
    double load; /* tasks of other programs per processor before the trial; NaN if unknown */
} bt_trial_rate;

/* Seconds per element in arrays of these sizes: one fits the caches, one does not. */
enum { BT_ELEMS_SMALL = 1 << 18, BT_ELEMS_LARGE = 1 << 23 };
typedef struct bt_elem_rate {
    double small_s, large_s;
} bt_elem_rate;

typedef struct bt_codec_rate {
    double wire_bytes;                       /* bytes sent per element */
    double encode_s, decode_s, decode_add_s; /* seconds per element */
} bt_codec_rate;

typedef struct bt_rates {
    /* Identity of machine, build and use; rates are valid only for an equal identity. */
    char machine[BT_RATE_KEY], build[BT_RATE_KEY], use[BT_RATE_KEY];
    int32_t ranks, threads,
        cores;         /* ranks: number of ranks on a host that measured at the same time */
    double probe_s;    /* seconds of the probe */
    double rank_watts; /* power of a computing rank (observe/energy.h); 0: not measured */
    double load;       /* tasks over cores during the measurement */
    double read_per_s, triad_per_s; /* bytes per second that one rank reads from memory */
    double add_s;                   /* adding one array to another */
    bt_elem_rate norm, zero;        /* gradients: sum of squares, and zeroing */
    /* update rule for parameters other than matrices of layers */
    bt_elem_rate update[BT_OPTIM_COUNT];
    /* Time of an AdamW update with smaller states, and with bf16 weights, over one with fp32; 0: unknown. */
    double states_bf16_x, states_log8_x, weights_bf16_x;
    double matrix_op_s; /* one multiplication or addition in Muon's matrix products */
    /* Seconds per element of a ternary matrix: codes to 2 bits, 2 bits to codes, codes to panels. fresh_s: until freed
     * pages of an array are usable again. */
    double tern_pack_s, tern_unpack_s, tern_panel_s, fresh_s;
    double disk_per_s; /* bytes written and synced per second */
    bt_codec_rate codec[BT_CODEC_COUNT];
    bt_part_rate parts[BT_RATES_MAX];
    size_t n_parts;
    bt_link_rate links[BT_RATES_LINKS];
    size_t n_links;
    bt_group_rate groups[BT_RATES_GROUPS];
    size_t n_groups;
    bt_trial_rate trials[BT_RATES_TRIALS];
    size_t n_trials;
    bt_op_rate ops[BT_RATE_OPS];
    size_t n_ops;
} bt_rates;

/* Return the shapes of a layer, and of the last stage's head, in groups of tp ranks. */
bt_part_shape bt_part_layer(const bt_run_cfg *cfg, int tp);
bt_part_shape bt_part_head(const bt_run_cfg *cfg, int tp);
/* Return the operations of a rank, forward and backward: without attention, and of attention alone. */
double bt_part_ops(const bt_part_shape *s);
double bt_part_attention_ops(const bt_part_shape *s);
bool bt_part_same(const bt_part_shape *a, const bt_part_shape *b);

const bt_part_rate *bt_rates_part(const bt_rates *r, const bt_part_shape *s);
/* Writes the rate of this shape, or the scaled rate of the nearest measured shape. Returns false if nothing of its kind
 * was measured. A frozen part with adapters and a trained part are different kinds. */
bool bt_rates_part_near(const bt_rates *r, const bt_part_shape *s, bt_part_rate *out);
/* Scales `from` to another shape of the same kind by operations and tokens. */
bt_part_rate bt_part_scaled(const bt_part_rate *from, const bt_part_shape *to);
/* Returns true if p took much longer than the rate for another number of sequences of the same shape predicts, so that
 * other programs may have disturbed the measurement. Without such a rate returns false. */
bool bt_rates_part_doubtful(const bt_rates *r, const bt_part_rate *p);
/* Adds or replaces a rate. A full list drops its oldest entry. */
void bt_rates_put_part(bt_rates *r, const bt_part_rate *p);
/* Returns the seconds per element in an array of n elements. */
double bt_rates_elem(const bt_elem_rate *e, double n);
/* Returns the link of a group of n ranks with the distance `stride` in a job of `world`, or else of the most similar
 * group. NULL: no link was measured. */
const bt_link_rate *bt_rates_link(const bt_rates *r, int world, int n, int stride);
bool bt_rates_has_links(const bt_rates *r, int world);
/* Replaces the links of this world. Links of other worlds are kept as long as there is room. */
void bt_rates_put_links(bt_rates *r, const bt_link_rate *links, size_t n);

/* Returns the measured group that is most similar to this shape in a job of `world`, or NULL. bt_rates_group_like
 * compares two shapes without their tokens. */
const bt_group_rate *bt_rates_group(const bt_rates *r, int world, const bt_part_shape *s);
bool bt_rates_group_like(const bt_group_rate *g, int world, const bt_part_shape *s);
void bt_rates_put_group(bt_rates *r, const bt_group_rate *g); /* see bt_rates_put_part */

const bt_trial_rate *bt_rates_trial(const bt_rates *r, const char *key); /* NULL: never tried */
void bt_rates_put_trial(bt_rates *r, const bt_trial_rate *t);

/* Write and parse one line such as "layer C=192 ...", by which shapes are passed to the ranks that measure. */
void bt_part_put(bt_text *out, const bt_part_shape *s);
bool bt_part_parse(const char *text, bt_part_shape *s);

/* Sets the identity of the rates: host, processor, cores; hash of this program; number of ranks and threads. */
bt_code bt_rates_identify(bt_rates *r, const bt_launch_settings *launch, int ranks, bt_err *err)
    BT_MUST_CHECK;
/* Returns the number of ranks on a host that can compute at the same time, to be passed as `ranks`. */
int bt_rates_concurrent(const bt_launch_settings *launch, int ranks_per_host);
void bt_rates_put_json(const bt_rates *r, bt_text *out);
/* BT_FORMAT: the text is invalid. */
bt_code bt_rates_take_json(bt_rates *r, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;
/* Writes the path DIR/rates/RANKSxTHREADS-HASH.json. The hash covers host and use. */
void bt_rates_path(const bt_rates *r, const char *dir, char *out, size_t size);
/* Loads the rates in a file if they have the same machine, build and use as `r`. Otherwise `refused` receives the
 * reason; "" if the file is used. If there is no file, returns BT_OK without rates. */
bt_code bt_rates_load(bt_rates *r, const char *path, char *refused, size_t size, bt_err *err)
    BT_MUST_CHECK;
/* Replaces the file atomically. */
bt_code bt_rates_save(const bt_rates *r, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
