/* rates.h - what this machine needs for the parts of a step, measured: a layer's forward and
 * backward pass for each shape of it, the head, the optimizer, codecs, memory, and the messages
 * between groups of ranks.
 *
 * Rates belong to one machine (host, processor, cores), one build of this program and one way to
 * use the machine (ranks that compute at the same time, threads of each, host file, kernel set).
 * rates_probe.h measures them; here they are kept, looked up and scaled. A shape that was not
 * measured takes the rate of the nearest measured one, by operations and bytes.
 * Seconds of compute are processor seconds of one rank that has its cores for itself: a plan that
 * has more threads than cores multiplies them (time_model.h).
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

/* One layer (or the final norm, head, loss and embedding) of one micro-batch, as tensor-parallel rank
 * 0 of tp computes its slice of it; numbers of the whole as in bt_model_cfg. A head has no H, KV, D,
 * F; a layer has no V. */
typedef struct bt_part_shape {
    bt_part_kind kind;
    int32_t C, H, KV, D, F, V, T, B;
    int32_t norm, act, linear, qk_norm, precision;
    int32_t grad_int8; /* of a layer 2 more: attention too */
    int32_t recompute;
    int32_t tp, sequence; /* sequence: a rank has the residual of its own tokens; 0 without tp */
    /* beside a frozen base: the adapters' rank (a head has none: 1) and layers (BT_LORA_*), and how the base
     * is kept; all 0: every weight trains */
    int32_t lora, targets, lean, base8;
} bt_part_shape;

typedef struct bt_part_rate {
    bt_part_shape shape;
    double fwd_s, bwd_s;           /* of all B x T tokens */
    double attn_fwd_s, attn_bwd_s; /* of them attention, which grows with T x T */
    double quantise_s; /* latent weights to codes and packed weights, each time they change */
} bt_part_rate;

/* what the parts consist of, for people: operations a second of each kind of product */
typedef struct bt_op_rate {
    char op[24], unit[8];
    double rate;
} bt_op_rate;

#define BT_SHARED_S 0.2
#define BT_SHARED_OFTEN_S 0.02

/* Messages in a group of n ranks of a job of `world`, `stride` apart, while all such groups send:
 * latency of a round, bytes a second a rank sends. Zero rates: not known. And the exchange of gradients where
 * that does not go in messages. */
typedef struct bt_link_rate {
    int32_t world, n, stride;
    double latency_s, bytes_per_s;
    double agree_s; /* of a step's agreement among all ranks of the group */
    /* a tensor-parallel group's own exchange of rows (tp_group.h); 0 where it was not measured */
    double meet_s, rows_bytes_per_s;
    /* gradients as they are, not encoded, through memory that the ranks of a host share (reducer.h), their digest
     * included: processor seconds of a rank for an element of the array, until its owner has its sum, and then until
     * all have it. 0: they do not share memory */
    double grads_sum_s, grads_back_s;
    /* all ranks of a job, where they are more than their host's cores: processor time of all, in which those that
     * wait for the last one still have their core, over what they compute; of ranks that meet every BT_SHARED_S, and
     * every BT_SHARED_OFTEN_S, of their processor time. 0: not measured */
    double shared_x, shared_often_x;
} bt_link_rate;

/* One layer, forward and backward, all ranks of a job of `world` at once, by the clock: in real
 * tensor-parallel groups of shape.tp neighbours, and, pass by pass in turn, the same without exchanges. What
 * it takes beyond computing and exchanging is how unevenly ranks come to their meetings; what other
 * programs take is in both times. */
typedef struct bt_group_rate {
    int32_t world;
    bt_part_shape shape;
    double pass_s, alone_s;
} bt_group_rate;

/* A step of a layout, tried; key: a hash of all that it depends on (layout_search.h) */
typedef struct bt_trial_rate {
    char key[24];
    double step_s;
    double load; /* tasks of other programs for each processor before the trial; NaN: not known */
} bt_trial_rate;

/* seconds an element, in arrays that the caches hold and in arrays that they do not */
enum { BT_ELEMS_SMALL = 1 << 18, BT_ELEMS_LARGE = 1 << 23 };
typedef struct bt_elem_rate {
    double small_s, large_s;
} bt_elem_rate;

typedef struct bt_codec_rate {
    double wire_bytes;                       /* of an element */
    double encode_s, decode_s, decode_add_s; /* an element */
} bt_codec_rate;

typedef struct bt_rates {
    /* machine, build and use, as text: rates are used by no other */
    char machine[BT_RATE_KEY], build[BT_RATE_KEY], use[BT_RATE_KEY];
    int32_t ranks, threads, cores;  /* ranks: that measured at the same time on a host */
    double probe_s;                 /* how long measuring took */
    double rank_watts;              /* of a rank that computes (observe/energy.h); 0: not counted */
    double load;                    /* of the machine while they were measured, tasks over cores */
    double read_per_s, triad_per_s; /* bytes of memory a second, one rank of those that run */
    double add_s;                   /* an element added to another */
    bt_elem_rate norm, zero;        /* of the gradients: sum of squares; to zero */
    bt_elem_rate update[BT_OPTIM_COUNT]; /* of the rule for what is no matrix of a layer */
    /* an update with states in fewer bytes, and with weights in bf16, over one with fp32 (of AdamW; 0: not known) */
    double states_bf16_x, states_log8_x, weights_bf16_x;
    double matrix_op_s; /* a multiply or an add of Muon's products */
    /* an element of a ternary matrix: codes to 2 bits, 2 bits to codes, codes into panels; and of an
     * array whose pages were given back to the system, until they are there again */
    double tern_pack_s, tern_unpack_s, tern_panel_s, fresh_s;
    double disk_per_s; /* bytes written and synced */
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

/* of a layer, and of the last stage's head, in groups of tp ranks */
bt_part_shape bt_part_layer(const bt_run_cfg *cfg, int tp);
bt_part_shape bt_part_head(const bt_run_cfg *cfg, int tp);
/* operations of a rank, forward and backward, without attention (frozen weights have no gradient); of
 * attention */
double bt_part_ops(const bt_part_shape *s);
double bt_part_attention_ops(const bt_part_shape *s);
bool bt_part_same(const bt_part_shape *a, const bt_part_shape *b);

/* The rate of exactly this shape; NULL: not measured. */
const bt_part_rate *bt_rates_part(const bt_rates *r, const bt_part_shape *s);
/* The same, or the nearest measured one scaled; false: nothing of its kind was measured. Parts that are
 * frozen, beside adapters, are another kind than parts that train. */
bool bt_rates_part_near(const bt_rates *r, const bt_part_shape *s, bt_part_rate *out);
/* what `from` says of another shape of its kind, by operations and tokens */
bt_part_rate bt_part_scaled(const bt_part_rate *from, const bt_part_shape *to);
/* It was measured to take much longer than what the same with more or fewer sequences says: something else may have
 * been at work. false where no such is known */
bool bt_rates_part_doubtful(const bt_rates *r, const bt_part_rate *p);
/* the latest is kept; a full list forgets its oldest */
void bt_rates_put_part(bt_rates *r, const bt_part_rate *p);
/* seconds an element in an array of n */
double bt_rates_elem(const bt_elem_rate *e, double n);
/* of a group of n ranks `stride` apart in a job of `world`, else of the nearest kind. NULL: no link
 * was measured */
const bt_link_rate *bt_rates_link(const bt_rates *r, int world, int n, int stride);
/* links of a job of so many ranks were measured */
bool bt_rates_has_links(const bt_rates *r, int world);
/* those of other sizes stay, as far as there is room */
void bt_rates_put_links(bt_rates *r, const bt_link_rate *links, size_t n);

/* of groups like this one in a job of `world`, else of the nearest kind; NULL: none was measured. A shape is
 * `like` another whatever its tokens are. */
const bt_group_rate *bt_rates_group(const bt_rates *r, int world, const bt_part_shape *s);
bool bt_rates_group_like(const bt_group_rate *g, int world, const bt_part_shape *s);
void bt_rates_put_group(bt_rates *r, const bt_group_rate *g); /* as bt_rates_put_part */

const bt_trial_rate *bt_rates_trial(const bt_rates *r, const char *key); /* NULL: never tried */
void bt_rates_put_trial(bt_rates *r, const bt_trial_rate *t);

/* "layer C=192 ..." on one line, and back: how a list of shapes travels to the ranks that measure */
void bt_part_put(bt_text *out, const bt_part_shape *s);
bool bt_part_parse(const char *text, bt_part_shape *s);

/* ---- rates_file.c ---------------------------------------------------------------------------- */

/* host, processor, cores; the bytes of this program; and how it is used */
bt_code bt_rates_identify(bt_rates *r, const bt_run_cfg *cfg, int ranks, bt_err *err) BT_MUST_CHECK;
/* ranks of a host that can compute at the same time: what `ranks` should be */
int bt_rates_concurrent(const bt_run_cfg *cfg, int ranks_per_host);
void bt_rates_put_json(const bt_rates *r, bt_text *out);
/* BT_FORMAT says what is wrong with the text */
bt_code bt_rates_take_json(bt_rates *r, const char *json, size_t n, bt_err *err) BT_MUST_CHECK;
/* DIR/rates/RANKSxTHREADS-HASH.json; the hash is of host and use */
void bt_rates_path(const bt_rates *r, const char *dir, char *out, size_t size);
/* Fills what a file holds for the machine, build and use that `r` has been identified as. *refused
 * says why a file that is there is not used ("" otherwise). No file: BT_OK and no rates. */
bt_code bt_rates_load(bt_rates *r, const char *path, char *refused, size_t size, bt_err *err)
    BT_MUST_CHECK;
/* beside it, then renamed: a reader never finds half of it */
bt_code bt_rates_save(const bt_rates *r, const char *path, bt_err *err) BT_MUST_CHECK;

#endif
