/* sample_text.h - what the model writes now: at every validation it goes on from one fixed prompt,
 * with the same noise, so that two samples differ by what was learned between them.
 *
 * The prompt is a setting (@FILE: one on each line of a file, all of which are written), or the first tokens of
 * the validation data. Every rank takes part in every
 * token, in any layout; rank 0 alone has the words. There is no key-value cache: a sample of n
 * tokens costs n forward passes of up to prompt + n tokens.
 *
 * A prompt may also be given on request, for one sample (for_prompt).
 *
 * Order:    create -> run* -> destroy. create and run are collective over all ranks.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_TRAIN_SAMPLE_TEXT_H
#define BT_ENGINE_TRAIN_SAMPLE_TEXT_H

#include "engine/base/text.h"
#include "engine/config/run_cfg.h"
#include "engine/model/net/model.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/pp/pipe.h"
#include "engine/update/weights.h"

typedef struct bt_sample_text bt_sample_text;

/* *out is NULL where nothing is to be written: train.sample_tokens is 0, or the data are no text.
 * beginning: n tokens that stand in for a prompt, on world's rank 0. All borrowed but the tokens.
 * BT_ARG: a prompt is not of the model's vocabulary, or leaves no room in a sequence; the file has none. */
bt_code bt_sample_text_create(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                              const int32_t *beginning, size_t n, bt_err *err) BT_MUST_CHECK;
/* The same with a prompt that somebody asked for, which rank 0 alone has (elsewhere it is ignored);
 * train.sample_tokens of 0 counts as 64. BT_ARG, on all ranks: the prompt is empty, is not of the
 * model's vocabulary or leaves no room; BT_UNSUPPORTED: the model writes no text. Collective. */
bt_code bt_sample_text_for_prompt(bt_sample_text **out, const bt_run_cfg *cfg, bt_comm *world,
                                  const char *prompt, bt_err *err) BT_MUST_CHECK;
/* model: quantised. pipe: NULL where it is whole. Then `prompt` and `text` have the words, on rank 0
 * only; a NUL is a space there, other bytes that are no UTF-8 stay as they are. */
bt_code bt_sample_text_run(bt_sample_text *s, bt_model *model, bt_pipe *pipe, bt_weights *weights,
                           bt_text *prompt, bt_text *text, bt_err *err) BT_MUST_CHECK;
/* of the next prompt; NULL: there is none */
bt_sample_text *bt_sample_text_next(const bt_sample_text *s);
void bt_sample_text_destroy(bt_sample_text *s); /* and those that follow it; accepts NULL */

#endif
