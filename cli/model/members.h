/* members.h - the models that words of a command line or a setting select: runs, paths, and groups of runs, which
 * together are one ensemble. */
#ifndef BT_CLI_MODEL_MEMBERS_H
#define BT_CLI_MODEL_MEMBERS_H

#include <stddef.h>

#include "engine/base/sink.h"
#include "engine/base/status.h"
#include "engine/base/text.h"

enum { BT_MEMBERS_MOST = 64 };

typedef struct bt_members {
    char *words[BT_MEMBERS_MOST]; /* a run ("RUN", "RUN@best") or a path for each model; owned */
    size_t n;
    char name[BT_NAME_MAX]; /* name of the ensemble: its group, or the words on the command line */
} bt_members;

/* Words are separated by '\n'. A word is a run or a path, as for bt_trained_folder; else a group ("GROUP",
 * "GROUP@best"), whose finished runs are the members, ordered by name; else several runs or paths separated by commas.
 * Prints a line about the unfinished runs of a group. BT_NOTFOUND: none of these exists; BT_BUSY: no run of the group
 * is finished;
 * BT_ARG: a model occurs twice, or there are more than BT_MEMBERS_MOST. The caller releases *out in any case. */
bt_code bt_members_find(bt_members *out, const char *words, const char *store, bt_err *err)
    BT_MUST_CHECK;
void bt_members_release(bt_members *m);
/* Joins the words of a command line in the form that bt_members_find reads; no words: "last". */
void bt_members_join(bt_text *out, const char *const *words, size_t n);

#endif
