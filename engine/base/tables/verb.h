/* verb.h - requests to a live run (verbs.def) and states of a run (states.def). Threads: any; constant tables. */
#ifndef BT_ENGINE_BASE_TABLES_VERB_H
#define BT_ENGINE_BASE_TABLES_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/tables/event.h"

#define BT_STATE(id, name, live, help) BT_STATE_##id,
typedef enum {
#include "engine/base/tables/states.def"
    BT_STATE_COUNT
} bt_run_state;
#undef BT_STATE

typedef struct bt_run_state_row {
    const char *id, *name; /* "RUNNING", "running" */
    bool live;
    const char *help;
} bt_run_state_row;
extern const bt_run_state_row bt_run_states[BT_STATE_COUNT];

#define BT_VERB(id, word, argument, who, offered, key, outcome, label, help) BT_VERB_##id,
typedef enum {
#include "engine/base/tables/verbs.def"
    BT_VERB_COUNT
} bt_verb;
#undef BT_VERB

enum { BT_PROMPT_MAX = 512 }; /* size in bytes of the longest prompt for BT_VERB_SAMPLE */

typedef struct bt_verb_row {
    const char *word, *argument; /* "set", "KEY=VALUE" or "" */
    bool ranks;                  /* true: the ranks execute it; false: the supervisor */
    uint32_t offered;            /* one bit for each state in which it is offered */
    char key;                    /* key in `train`; 0: none */
    /* kind of event that reports the outcome; BT_EVENT_COUNT: the reply reports it */
    bt_event_kind outcome;
    const char *label, *help;
} bt_verb_row;
extern const bt_verb_row bt_verbs[BT_VERB_COUNT];

/* BT_VERB_COUNT: not found. */
bt_verb bt_verb_find(const char *word);
bool bt_verb_offered(bt_verb verb, bt_run_state state);
/* Returns the verb for a key of `train` in this state: the first offered verb with this key, or else the first with
 * this key; BT_VERB_COUNT: none. */
bt_verb bt_verb_of_key(char key, bt_run_state state);
/* Writes the words, "pause|resume|...|set KEY=VALUE|status", with their arguments if requested. Returns buf. */
const char *bt_verb_list(char *buf, size_t size, const char *between, bool arguments);

#endif
