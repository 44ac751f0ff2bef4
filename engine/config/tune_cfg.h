/* tune_cfg.h - interprets the settings of fine-tuning (tune.*). */
#ifndef BT_ENGINE_CONFIG_TUNE_CFG_H
#define BT_ENGINE_CONFIG_TUNE_CFG_H

#include "engine/config/run_cfg.h"
#include "engine/model/net/model.h"

/* Default learning rate of adapters, as in other LoRA tools. */
#define BT_LORA_LR 2e-4

/* Parses tune.targets into bits of bt_lora. Layer names of Hugging Face models (q_proj, ...) are accepted, too. BT_ARG:
 * the error names an unknown layer. */
bt_code bt_tune_targets_read(const char *text, unsigned *out, bt_err *err) BT_MUST_CHECK;
/* Returns the Hugging Face name of the layer of one bit; NULL: none. */
const char *bt_tune_hf_target(unsigned bit);
/* Writes the names of these bits. */
void bt_tune_targets_write(unsigned bits, char *out, size_t size);
bt_lora bt_tune_lora(const bt_run_cfg *c);
bt_dpo bt_tune_dpo(const bt_run_cfg *c);
/* Returns true if the loss of preferences has a reference, the base without its adapters (tune.preference). */
bool bt_tune_has_reference(const bt_run_cfg *c);
/* Counts parameters and operations. flop_token is the whole cost of a trained token, including the forward pass of the
 * reference for preferences, or of the teacher if tune.teacher_shape is known. */
bt_model_counts bt_tune_count(const bt_run_cfg *c);
/* Returns the number of teachers in tune.teacher_shape, which semicolons separate; 0: unknown. */
int bt_tune_teachers(const bt_run_cfg *c);
/* Parses the shape of teacher k: layers, width, heads, kv heads, head size, feed-forward width, vocabulary, and the
 * choices of model.norm, model.act, model.linear, model.tied and model.qk_norm as numbers. BT_ARG: another text. */
bt_code bt_tune_teacher_read(const bt_run_cfg *c, int k, bt_model_cfg *out, bt_err *err)
    BT_MUST_CHECK;
/* Appends a shape to the text in `out`. */
void bt_tune_teacher_write(const bt_model_cfg *m, char *out, size_t size);
/* Returns the setup of a teacher for a student with this setup: forward only, stored like the frozen base of adapters,
 * with the smallest possible adapter. The teacher has all its layers, in the student's tensor-parallel slice. */
bt_model_setup bt_tune_teacher_setup(const bt_model_cfg *teacher, const bt_model_setup *student);
/* Checks that tune.relation_heads divides the heads of the student or teacher `of`. */
bt_code bt_tune_relation_check(const bt_tune_settings *tune, const bt_model_cfg *of,
                               const char *whose, bt_err *err) BT_MUST_CHECK;
/* Returns the width of the widest residual stream that a tensor-parallel group exchanges, of the model or a teacher. */
size_t bt_tune_widest(const bt_run_cfg *c);
/* Checks tune.* against model and layout, and sets settings that depend on them. The model's shape must be known. */
bt_code bt_tune_resolve(bt_run_cfg *c, bt_text *faults, bt_err *err) BT_MUST_CHECK;

#endif
