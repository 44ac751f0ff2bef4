/* teacher.h - the teacher of a distillation: a model from any model file, stored in the packed format of a frozen base,
 * which only passes forward; or several models as one ensemble; or a file of logits. Threads: the training thread. */
#ifndef BT_ENGINE_TUNE_TEACHER_H
#define BT_ENGINE_TUNE_TEACHER_H

#include "engine/config/run_cfg.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/model/net/model.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/tune/logit_file.h"

typedef struct bt_teacher {
    bt_model *model;       /* NULL: none */
    int64_t hash;          /* hash of the teacher's weights, or of the file */
    bt_logit_file *logits; /* NULL: none */
} bt_teacher;

/* Loads the teacher that the settings select, for the micro-batches of `student`, on the ranks that have a head (for a
 * slice of the
 * student: the same slice). Does nothing if none is selected. notes: receives lines about the file. Collective. BT_ARG:
 * another tokenizer or vocabulary, only adapters, or different teachers on the ranks. */
bt_code bt_teacher_find(bt_teacher *t, const bt_run_cfg *c, const bt_model_setup *student,
                        bt_comm *world, bt_text *notes, bt_err *err) BT_MUST_CHECK;
bt_distil bt_teacher_distil(const bt_teacher *t, const bt_tune_settings *tune);
void bt_teacher_release(bt_teacher *t);

#endif
