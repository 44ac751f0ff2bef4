/* sample_text.h - generates text at every validation from a fixed prompt with the same random numbers, so two samples
 * differ only by what the model learned between them.
 *
 * The prompt is a setting (@FILE: one sample for each line) or the first tokens of the validation data. Every rank
 * computes every token, in any layout; only rank 0 has the text. Without a key-value cache, a sample of n tokens costs
 * n forward passes of up to prompt + n tokens. A user may request one sample of another prompt (for_prompt).
 *
 * Order: create -> run* -> destroy. create and run are collective over all ranks.
 * Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_SAMPLE_TEXT_H
#define BT_ENGINE_TRAIN_SAMPLE_TEXT_H

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"
#include "engine/model/net/model.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/pp/pipe.h"
#include "engine/update/weights.h"

typedef struct bt_sample_text bt_sample_text;

/* Creates the samples; *out is NULL if train.sample_tokens is 0 or the data are not text. beginning: n tokens that
 * replace a missing prompt, on rank 0 of the world. Everything but the tokens is borrowed. Fails with BT_ARG if a
 * prompt is not in the model's vocabulary or leaves no room in a sequence, or if the file has no prompt. */
bt_code bt_sample_text_create(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                              const int32_t *beginning, size_t n, bt_err *err) BT_MUST_CHECK;
/* Creates a sample of a requested prompt, which only rank 0 reads; train.sample_tokens of 0 counts as 64. Fails on
 * all ranks with BT_ARG if the prompt is empty, not in the vocabulary or too long, and with BT_UNSUPPORTED if the
 * model writes no text. Collective. */
bt_code bt_sample_text_for_prompt(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                                  const char *prompt, bt_err *err) BT_MUST_CHECK;
/* Writes the prompt and the generated text on rank 0; NUL becomes a space, invalid UTF-8 is kept. model: quantised.
 * pipe: NULL if this rank has the whole model. */
bt_code bt_sample_text_run(bt_sample_text *s, bt_model *model, bt_pipe *pipe, bt_weights *weights,
                           bt_text *prompt, bt_text *text, bt_err *err) BT_MUST_CHECK;
/* Returns the sample of the next prompt, or NULL. */
bt_sample_text *bt_sample_text_next(const bt_sample_text *s);
void bt_sample_text_destroy(bt_sample_text *s); /* also destroys the following ones; accepts NULL */

#endif
