/* rates.h - measured times of the parts of a step on this machine: forward and backward pass of a layer for each shape,
 * the head, optimizers, codecs, memory, and messages between groups of ranks.
 *
 * Rates belong to one machine (host, processor, cores), one build of this program and one use of the machine (ranks
 * that compute at the same time, threads of each, host file, kernel set). rates_probe.h measures them; this module
 * stores, finds and scales them. A shape that was not measured gets the rate of the nearest measured one, scaled by
 * operations and bytes.
 * Seconds of computing are processor seconds of one rank that has its cores for itself; a plan with more threads than
 * cores multiplies them (time_model.h).
 * Threads: one owner. Owns: its lists. */
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

/* One layer (or final norm, head, loss and embedding) of one micro-batch, in the slice of tensor-parallel rank 0 of
 * tp. Sizes are those of the whole model as in bt_model_cfg. A head has no H, KV, D, F; a layer has no V. */
typedef struct bt_part_shape {
    bt_part_kind kind;
    int32_t C, H, KV, D, F, V, T, B;
    int32_t norm, act, linear, qk_norm, precision;
    int32_t grad_int8; /* 2 for a layer whose attention uses it too */
    int32_t recompute;
    /* sequence: a rank has the residual stream of its own tokens only; 0 without tp */
    int32_t tp, sequence;
    /* With a frozen base: rank of the adapters (1 for a head, which has none), adapted layers (BT_LORA_* and
     * BT_PART_DORA) and form of the base. All are 0 if every weight is trained. */
    int32_t lora, targets, lean, base8;
} bt_part_shape;
enum { BT_PART_DORA = BT_LORA_ALL + 1 };

typedef struct bt_part_rate {
    bt_part_shape shape;
    double fwd_s, bwd_s;           /* for all B x T tokens */
    double attn_fwd_s, attn_bwd_s; /* part of attention, which grows with T x T */
    double quantise_s; /* latent weights to codes and packed weights, after each update */
} bt_part_rate;

/* for display: operations per second of one kind of product */
typedef struct bt_op_rate {
    char op[24], unit[8];
    double rate;
} bt_op_rate;

#define BT_SHARED_S 0.2
#define BT_SHARED_OFTEN_S 0.02

/* Messages in a group of n ranks, `stride` apart, of a job of `world` ranks, while all such groups send: latency of
 * a round, and bytes per second that a rank sends. A zero rate is unknown. */
typedef struct bt_link_rate {
    int32_t world, n, stride;
    double latency_s, bytes_per_s;
    double agree_s; /* agreement of all ranks of the group once a step */
    /* exchange of rows in a tensor-parallel group (tp_group.h); 0 if not measured */
    double meet_s, rows_bytes_per_s;
    /* Exchange of uncoded gradients through memory that the ranks of a host share (reducer.h), including the digest:
     * processor seconds of a rank per array element, until the owner has the sum, and from then until all ranks have
     * it. 0 if they do not share memory. */
    double grads_sum_s, grads_back_s;
    /* All ranks of a job that has more ranks than its host has cores: processor time including waiting ranks that
     * still occupy their core, over computing time, if ranks synchronise every BT_SHARED_S, and every
     * BT_SHARED_OFTEN_S, of processor time. 0 if not measured. */
    double shared_x, shared_often_x;
} bt_link_rate;

/* Wall time of one layer, forward and backward, on all ranks of a job of `world` at once: in real tensor-parallel
 * groups of shape.tp neighbours, and alternately the same without exchanges. The difference beyond the exchanges is
 * waiting for slower ranks; other programs affect both times alike. */
typedef struct bt_group_rate {
    int32_t world;
    bt_part_shape shape;
    double pass_s, alone_s;
} bt_group_rate;

/* Measured step of a layout. key: hash of everything that it depends on (layout_search.h). */
typedef struct bt_trial_rate {
    char key[24];
    double step_s;
    double load; /* tasks of other programs per processor before the trial; NaN if unknown */
} bt_trial_rate;

/* seconds per element in arrays that fit the caches, and in arrays that do not */
enum { BT_ELEMS_SMALL = 1 << 18, BT_ELEMS_LARGE = 1 << 23 };
typedef struct bt_elem_rate {
    double small_s, large_s;
} bt_elem_rate;

typedef struct bt_codec_rate {
    double wire_bytes;                       /* bytes per element */
    double encode_s, decode_s, decode_add_s; /* seconds per element */
} bt_codec_rate;

typedef struct bt_rates {
    /* identity of machine, build and use; rates are never applied to another one */
    char machine[BT_RATE_KEY], build[BT_RATE_KEY], use[BT_RATE_KEY];
    int32_t ranks, threads, cores; /* ranks: number that measured at the same time on a host */
    double probe_s;                /* seconds of the probe */
    double rank_watts; /* power of a computing rank (observe/energy.h); 0 if not counted */
    double load;       /* tasks over cores during the measurement */
    double read_per_s, triad_per_s;      /* bytes per second that one rank reads from memory */
    double add_s;                        /* adding one element to another */
    bt_elem_rate norm, zero;             /* of gradients: sum of squares; zeroing */
    bt_elem_rate update[BT_OPTIM_COUNT]; /* the rule for parameters that are no layer's matrix */
    /* time of an update with smaller states, and with bf16 weights, over one with fp32 (AdamW); 0 if unknown */
    double states_bf16_x, states_log8_x, weights_bf16_x;
    double matrix_op_s; /* one multiplication or addition of Muon's products */
    /* seconds per element of a ternary matrix: codes to 2 bits, 2 bits to codes, codes to panels; fresh_s: until
     * freed pages of an array are available again */
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

/* shapes of a layer and of the last stage's head in groups of tp ranks */
bt_part_shape bt_part_layer(const bt_run_cfg *cfg, int tp);
bt_part_shape bt_part_head(const bt_run_cfg *cfg, int tp);
/* operations of a rank, forward and backward: without attention (frozen weights have no gradient), and of attention */
double bt_part_ops(const bt_part_shape *s);
double bt_part_attention_ops(const bt_part_shape *s);
bool bt_part_same(const bt_part_shape *a, const bt_part_shape *b);

/* Returns the rate of exactly this shape, or NULL. */
const bt_part_rate *bt_rates_part(const bt_rates *r, const bt_part_shape *s);
/* Writes the rate of this shape, or the nearest measured one scaled. Returns false if nothing of its kind was
 * measured; frozen parts beside adapters and trained parts are different kinds. */
bool bt_rates_part_near(const bt_rates *r, const bt_part_shape *s, bt_part_rate *out);
/* Scales `from` to another shape of its kind by operations and tokens. */
bt_part_rate bt_part_scaled(const bt_part_rate *from, const bt_part_shape *to);
/* Returns true if p took much longer than another number of sequences of the same shape predicts, so that other
 * programs may have disturbed it; false if there is none to compare. */
bool bt_rates_part_doubtful(const bt_rates *r, const bt_part_rate *p);
/* Adds or replaces a rate. A full list drops its oldest entry. */
void bt_rates_put_part(bt_rates *r, const bt_part_rate *p);
/* seconds per element in an array of n elements */
double bt_rates_elem(const bt_elem_rate *e, double n);
/* Returns the link of a group of n ranks `stride` apart in a job of `world`, else of the nearest group; NULL if no
 * link was measured. */
const bt_link_rate *bt_rates_link(const bt_rates *r, int world, int n, int stride);
/* true if links of a job of `world` ranks were measured */
bool bt_rates_has_links(const bt_rates *r, int world);
/* Replaces the links of this world; those of other worlds are kept while there is room. */
void bt_rates_put_links(bt_rates *r, const bt_link_rate *links, size_t n);

/* Returns the measured group most similar to this shape in a job of `world`, or NULL. A shape is `like` another
 * regardless of its tokens. */
const bt_group_rate *bt_rates_group(const bt_rates *r, int world, const bt_part_shape *s);
bool bt_rates_group_like(const bt_group_rate *g, int world, const bt_part_shape *s);
void bt_rates_put_group(bt_rates *r, const bt_group_rate *g); /* see bt_rates_put_part */

const bt_trial_rate *bt_rates_trial(const bt_rates *r, const char *key); /* NULL if never tried */
void bt_rates_put_trial(bt_rates *r, const bt_trial_rate *t);

/* Write and parse "layer C=192 ..." on one line, the form in which shapes are passed to the ranks that measure. */
void bt_part_put(bt_text *out, const bt_part_shape *s);
bool bt_part_parse(const char *text, bt_part_shape *s);

/* ---- rates_file.c ---------------------------------------------------------------------------- */

/* Sets the identity: host, processor, cores; hash of this program; use. */
bt_code bt_rates_identify(bt_rates *r, const bt_launch_settings *launch, int ranks, bt_err *err)
    BT_MUST_CHECK;
/* Ranks of a host that can compute at the same time, the value for `ranks`. */
int bt_rates_concurrent(const bt_launch_settings *launch, int ranks_per_host);
void bt_rates_put_json(const bt_rates *r, bt_text *out);
/* Fails with BT_FORMAT if the text is invalid. */
bt_code bt_rates_take_json(bt_rates *r, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;
/* Writes DIR/rates/RANKSxTHREADS-HASH.json; the hash covers host and use. */
void bt_rates_path(const bt_rates *r, const char *dir, char *out, size_t size);
/* Loads the rates of a file if it belongs to the machine, build and use of `r`; otherwise *refused is the reason (""
 * if the file is used). Returns BT_OK without rates if there is no file. */
bt_code bt_rates_load(bt_rates *r, const char *path, char *refused, size_t size, bt_err *err)
    BT_MUST_CHECK;
/* Replaces the file atomically. */
bt_code bt_rates_save(const bt_rates *r, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
