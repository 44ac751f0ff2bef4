/* run_cfg.h - the settings of a run: those of all folders, presets, checks between settings, and automatic values. A
 * function of another folder receives only the struct of its own settings if that is sufficient. */
#ifndef BT_ENGINE_CONFIG_RUN_CFG_H
#define BT_ENGINE_CONFIG_RUN_CFG_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/opt.h"
#include "engine/config/settings/alert_settings.h"
#include "engine/config/settings/ckpt_settings.h"
#include "engine/config/settings/comm_settings.h"
#include "engine/config/settings/islands_settings.h"
#include "engine/config/settings/launch_settings.h"
#include "engine/config/settings/parallel_settings.h"
#include "engine/config/settings/run_settings.h"
#include "engine/config/settings/train_settings.h"
#include "engine/config/settings/tune_settings.h"
#include "engine/data/shards/data_settings.h"
#include "engine/model/shape/config.h"
#include "engine/model/shape/model_settings.h"
#include "engine/optim/optim_settings.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/mpi/mesh_settings.h"

typedef struct bt_run_cfg {
    bt_run_settings run;
    bt_alert_settings alert;
    bt_launch_settings launch;
    bt_model_settings model;
    bt_tune_settings tune;
    bt_data_settings data;
    bt_train_settings train;
    /* one field for each part of training with its own settings, named after its folder */
#define BT_SETTINGS_TABLE <part_fields.def>
#include "engine/base/tables/opt_fields.def"
    bt_parallel_settings parallel;
    bt_comm_settings comm;
    bt_islands_settings islands;
    bt_optim_settings optim;
    bt_ckpt_settings ckpt;
    bt_mesh_settings mesh;
    /* not a setting: int8 attention is slower than float on a rank of this job (bt_isa_agreement_apply) */
    bool int8_attention_slow;
} bt_run_cfg;

/* train.grad; never AUTO once resolved */
enum { BT_GRAD_AUTO, BT_GRAD_FLOAT, BT_GRAD_INT8 };
/* train.attention; never AUTO once resolved */
enum { BT_ATTENTION_AUTO, BT_ATTENTION_FLOAT, BT_ATTENTION_INT8 };
/* tune.mode */
enum { BT_TUNE_FULL, BT_TUNE_LORA };
/* tune.base_type */
enum { BT_BASE_AUTO, BT_BASE_Q8 };
/* data.form, as bt_form_kind of engine/data */
enum { BT_FORMED_TEXT, BT_FORMED_COMPLETION, BT_FORMED_PREFERENCE = 5, BT_FORMED_LABEL = 6 };
/* data.packing; never AUTO once resolved. As bt_packing of engine/data */
enum { BT_PACKED_AUTO, BT_PACKED_STREAM, BT_PACKED_PAD, BT_PACKED_DOCUMENTS };
/* data.bad_rows */
enum { BT_BAD_ROWS_REFUSE, BT_BAD_ROWS_SKIP };
/* launch.layout */
enum { BT_LAYOUT_GIVEN, BT_LAYOUT_AUTO };
/* parallel.gather */
enum { BT_GATHER_LAYER, BT_GATHER_STEP, BT_GATHER_FLIPS };
const char *bt_gather_name(int64_t gather); /* the setting's value as text */
/* comm.pipe */
enum { BT_PIPE_FP32, BT_PIPE_BF16 };
enum { BT_CKPT_MEMORY_AUTO, BT_CKPT_MEMORY_OFF };

extern const bt_opt_removed bt_run_removed[];
extern const size_t bt_run_removed_n;
extern const bt_opt bt_run_opts[];
extern const size_t bt_run_opts_n;

/* Reads all sources except automatic values, in `bitrain train` and in ranks: table defaults, options in argv (its only
 * positional word is a configuration file), that file, the environment, and the preset. *help: --help was
 * given. */
bt_code bt_run_cfg_read(bt_opts *o, bt_run_cfg *cfg, int argc, char *const *argv, bool *help,
                        bt_err *err) BT_MUST_CHECK;
/* Applies the preset's values to settings that nothing else has set (origin preset). */
bt_code bt_run_cfg_preset(bt_opts *o, bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Computes optim.lr again, unless it was given, after the model's shape has changed. */
bt_code bt_run_cfg_preset_rate(bt_opts *o, const bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* After the preset, applies its values for a tokenizer that learned its tokens from text to settings that nothing else
 * has set. The size of a step changes only in an unmodified run of the preset, and if `ranks` ranks can divide it.
 * learned: the text is that of the run, and long; then AdamW with tied weights has further values. */
bt_code bt_run_cfg_words(bt_opts *o, const bt_run_cfg *cfg, int ranks, bool learned, bt_err *err)
    BT_MUST_CHECK;
/* Cross-field checks and automatic values for `world_size` ranks; afterwards every number is final. Fails with
 * BT_ARG; messages contain the numbers. */
bt_code bt_run_cfg_resolve(bt_run_cfg *cfg, int world_size, bt_err *err) BT_MUST_CHECK;
/* Resolves like bt_run_cfg_resolve and marks automatic values in `o` ("auto"). */
bt_code bt_run_cfg_resolve_opts(bt_opts *o, bt_run_cfg *cfg, int world_size, bt_err *err)
    BT_MUST_CHECK;
/* Sets an automatic launch.threads to this rank's share of the cores of its host. It remains automatic in a process
 * that starts ranks on several hosts. Part of resolving; a rank calls it for settings that another process
 * has resolved. */
void bt_run_cfg_threads(bt_run_cfg *cfg, int world_size);
/* Number of ranks to start: --ranks, else the size of the mesh, else two if there are two cores and a step has an even
 * number of sequences. cores: number of cores that this process may use. */
int bt_run_cfg_ranks(const bt_run_cfg *cfg, int cores);
/* {"optim.lr": {"value": 0.002, "origin": "preset", "where": "preset nano"}, ...}, the config_json
 * of a run's record */
void bt_run_cfg_json(const bt_opts *o, bt_text *out);
/* run_cfg_texts.c: {"optim.lr": "0.002", ...}, every setting as text */
void bt_run_cfg_texts(const bt_run_cfg *cfg, bt_text *out);
/* Calls `set` for each setting of such a text until it fails. BT_FORMAT: the text has no settings. */
typedef bt_code bt_set_text(void *ctx, const char *key, const char *value, bt_err *err);
bt_code bt_run_cfg_each_text(const char *texts, bt_set_text *set, void *ctx, bt_err *err)
    BT_MUST_CHECK;
/* Parses the settings of such a text. Those of a resolved run are resolved, and need no bt_run_cfg_resolve. */
bt_code bt_run_cfg_from_texts(bt_run_cfg *cfg, const char *texts, bt_err *err) BT_MUST_CHECK;
/* tokens of all steps of a resolved run */
int64_t bt_run_cfg_tokens(const bt_run_cfg *cfg);
bool bt_run_cfg_is_reward_model(const bt_run_cfg *cfg);
/* Returns the number of names in data.labels, 1 for a reward model, 0 for a model that predicts tokens. */
int bt_run_cfg_classes(const bt_run_cfg *cfg);
/* Returns the setting because of which the run does not learn text from nothing, or NULL. */
const char *bt_run_cfg_not_from_text(const bt_run_cfg *cfg);
/* the settings of steps with BT_RUN_DENSE (run_property.h) */
void bt_run_cfg_make_dense(bt_run_cfg *cfg);
void bt_run_cfg_model(const bt_run_cfg *cfg, bt_model_cfg *out);
void bt_run_cfg_mesh(const bt_run_cfg *cfg, bt_mesh_shape *out);

#endif
