/* run_cfg.h - the settings of a run: those of all folders, presets, checks between settings, and automatic values.
 * Functions of other folders receive only the struct of their own settings if that is sufficient. */
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
    /* A member for each part of training with settings, named after its folder. */
#define BT_SETTINGS_TABLE <part_fields.def>
#include "engine/base/tables/opt_fields.def"
    bt_parallel_settings parallel;
    bt_comm_settings comm;
    bt_islands_settings islands;
    bt_optim_settings optim;
    bt_ckpt_settings ckpt;
    bt_mesh_settings mesh;
    /* Not a setting: int8 attention is slower than float on a rank of this job (bt_isa_agreement_apply). */
    bool int8_attention_slow;
} bt_run_cfg;

/* Values of train.grad (AUTO does not occur after resolving), tune.mode and tune.base_type. */
enum { BT_GRAD_AUTO, BT_GRAD_FLOAT, BT_GRAD_INT8 };
/* Values of train.attention; AUTO does not occur after resolving. */
enum { BT_ATTENTION_AUTO, BT_ATTENTION_FLOAT, BT_ATTENTION_INT8 };
enum { BT_TUNE_FULL, BT_TUNE_LORA };
enum { BT_BASE_AUTO, BT_BASE_Q8 };
/* Values of data.form, equal to bt_form_kind in engine/data. */
enum { BT_FORMED_TEXT, BT_FORMED_COMPLETION, BT_FORMED_PREFERENCE = 5, BT_FORMED_LABEL = 6 };
/* Values of data.packing, equal to bt_packing in engine/data; AUTO does not occur after resolving. */
enum { BT_PACKED_AUTO, BT_PACKED_STREAM, BT_PACKED_PAD, BT_PACKED_DOCUMENTS };
/* Values of data.bad_rows. */
enum { BT_BAD_ROWS_REFUSE, BT_BAD_ROWS_SKIP };
/* Values of launch.layout. */
enum { BT_LAYOUT_GIVEN, BT_LAYOUT_AUTO };
/* Values of parallel.gather. */
enum { BT_GATHER_LAYER, BT_GATHER_STEP, BT_GATHER_FLIPS };
const char *bt_gather_name(int64_t gather); /* the setting's value as text */
/* Values of comm.pipe. */
enum { BT_PIPE_FP32, BT_PIPE_BF16 };
enum { BT_CKPT_MEMORY_AUTO, BT_CKPT_MEMORY_OFF };

extern const bt_opt_removed bt_run_removed[];
extern const size_t bt_run_removed_n;
extern const bt_opt bt_run_opts[];
extern const size_t bt_run_opts_n;

/* Reads all sources except automatic values, in `bitrain train` and in ranks: defaults of the tables, options in argv
 * (whose only positional word is a configuration file), that file, the environment, and the preset. *help: --help was
 * given. */
bt_code bt_run_cfg_read(bt_opts *o, bt_run_cfg *cfg, int argc, char *const *argv, bool *help,
                        bt_err *err) BT_MUST_CHECK;
/* Applies the preset to settings that nothing else has set (origin preset). */
bt_code bt_run_cfg_preset(bt_opts *o, bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Computes optim.lr again after the shape of the model has changed, unless it was given. */
bt_code bt_run_cfg_preset_rate(bt_opts *o, const bt_run_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Called after bt_run_cfg_preset for a tokenizer that was trained on text: applies the preset's values for this case to
 * settings that nothing else has set. The step size changes only if the run uses the preset without changes to the
 * batch, and `ranks` ranks can divide it. learned: the tokenizer was trained on the run's own text, which is long; then
 * AdamW with tied weights has further values. */
bt_code bt_run_cfg_words(bt_opts *o, const bt_run_cfg *cfg, int ranks, bool learned, bt_err *err)
    BT_MUST_CHECK;
/* Checks settings against each other and computes automatic values for `world_size` ranks; afterwards every number is
 * final. BT_ARG: the error contains the numbers. */
bt_code bt_run_cfg_resolve(bt_run_cfg *cfg, int world_size, bt_err *err) BT_MUST_CHECK;
/* Like bt_run_cfg_resolve, and marks automatic values in `o` ("auto"). */
bt_code bt_run_cfg_resolve_opts(bt_opts *o, bt_run_cfg *cfg, int world_size, bt_err *err)
    BT_MUST_CHECK;
/* Sets an automatic launch.threads to this rank's share of the cores of its host. In a process that starts ranks on
 * several hosts it remains automatic. Resolving includes this; a rank calls it for settings that another process has
 * resolved. */
void bt_run_cfg_threads(bt_run_cfg *cfg, int world_size);
/* Returns the number of ranks to start: --ranks, else the size of the mesh, else two if there are two cores and a step
 * has an even number of sequences. cores: number of cores that this process may use. */
int bt_run_cfg_ranks(const bt_run_cfg *cfg, int cores);
/* Writes {"optim.lr": {"value": 0.002, "origin": "preset", "where": "preset nano"}, ...}: config_json in the record. */
void bt_run_cfg_json(const bt_opts *o, bt_text *out);
/* Writes every setting as text: {"optim.lr": "0.002", ...} (run_cfg_texts.c). */
void bt_run_cfg_texts(const bt_run_cfg *cfg, bt_text *out);
/* Calls `set` for each setting of such a text until it fails. BT_FORMAT: the text is not a JSON object. */
typedef bt_code bt_set_text(void *ctx, const char *key, const char *value, bt_err *err);
bt_code bt_run_cfg_each_text(const char *texts, bt_set_text *set, void *ctx, bt_err *err)
    BT_MUST_CHECK;
/* Parses the settings of such a text. Settings of a resolved run are resolved and need no bt_run_cfg_resolve. */
bt_code bt_run_cfg_from_texts(bt_run_cfg *cfg, const char *texts, bt_err *err) BT_MUST_CHECK;
int64_t bt_run_cfg_tokens(const bt_run_cfg *cfg);
bool bt_run_cfg_is_reward_model(const bt_run_cfg *cfg);
/* Returns the number of names in data.labels, 1 for a reward model, 0 for a model that predicts tokens. */
int bt_run_cfg_classes(const bt_run_cfg *cfg);
/* Returns the setting because of which the run does not train a new model on text; NULL: none. */
const char *bt_run_cfg_not_from_text(const bt_run_cfg *cfg);
/* Changes the settings to those of steps with BT_RUN_DENSE (run_property.h). */
void bt_run_cfg_make_dense(bt_run_cfg *cfg);
void bt_run_cfg_model(const bt_run_cfg *cfg, bt_model_cfg *out);
void bt_run_cfg_mesh(const bt_run_cfg *cfg, bt_mesh_shape *out);

#endif
