/* tune_cfg.h - the settings of fine-tuning (tune.*): what trains, and the low-rank adapters of a model.
 */
#ifndef BT_ENGINE_CONFIG_TUNE_CFG_H
#define BT_ENGINE_CONFIG_TUNE_CFG_H

#include "engine/config/run_cfg.h"
#include "engine/model/net/model.h"

/* learning rate of adapters where none is given: what the tools for fine-tuning take for LoRA */
#define BT_LORA_LR 2e-4

/* tune.targets as bits of bt_lora; BT_ARG names what is no layer. The names that the layers have in Hugging Face's
 * models (q_proj, ...) mean the same */
bt_code bt_tune_targets_read(const char *text, unsigned *out, bt_err *err) BT_MUST_CHECK;
/* the name in Hugging Face's models of the layer of one bit; NULL: there is none */
const char *bt_tune_hf_target(unsigned bit);
/* of a configuration that has been resolved; all zero: no adapters */
void bt_tune_targets_write(unsigned bits, char *out, size_t size);
bt_lora bt_tune_lora(const bt_run_cfg *c);
bt_dpo bt_tune_dpo(const bt_run_cfg *c);
/* counts of the model, and in flop_token what a token of training takes in all: with preferences also the
 * reference's forward pass, with a teacher also the teacher's (where tune.teacher_shape is known) */
bt_model_counts bt_tune_count(const bt_run_cfg *c);
/* the shape of the teacher as tune.teacher_shape says it: layers, width, heads, kv heads, head size,
 * feed-forward width, vocabulary, and the choices of model.norm, model.act, model.linear, model.tied and
 * model.qk_norm as numbers. BT_ARG: the text is none */
bt_code bt_tune_teacher_read(const bt_run_cfg *c, bt_model_cfg *out, bt_err *err) BT_MUST_CHECK;
void bt_tune_teacher_write(const bt_model_cfg *m, char *out, size_t size);
/* The model that the teacher is made as beside a student of this setup: forward only, kept as the frozen
 * base of adapters is, of which it has the least there can be. All layers, and of them the tensor-parallel
 * slice that the student has */
bt_model_setup bt_tune_teacher_setup(const bt_model_cfg *teacher, const bt_model_setup *student);
/* columns of the widest residual that a tensor-parallel group exchanges: the model's or its teacher's */
size_t bt_tune_widest(const bt_run_cfg *c);
/* lambda of a step (from 0), a function of the settings alone: 0 for train.dense_steps, then evenly up to
 * 1, as min(step / train.lambda_steps, 1) */
double bt_tune_lambda(const bt_run_cfg *c, int64_t step);
/* it is between 0 and 1 at some step (train.lambda_steps): layers fade in. train.dense_steps alone makes
 * the model anew instead (bt_run_cfg_dense), in any layout */
bool bt_tune_fades(const bt_run_cfg *c);
/* Checks train.lambda_steps against model, layout and length, all resolved */
bt_code bt_tune_check_lambda(const bt_run_cfg *c, bt_err *err) BT_MUST_CHECK;
/* Checks tune.* against the model and the layout, and settles what depends on it. After the model's
 * shape is known. faults: as for bt_collect_fault */
bt_code bt_tune_resolve(bt_run_cfg *c, bt_text *faults, bt_err *err) BT_MUST_CHECK;

#endif
