/* verb.c - descriptors of the rows of verbs.def and states.def. */
#include "engine/base/tables/verb.h"

#include <stdio.h>
#include <string.h>

#define BT_STATE(id, name, live, help) {#id, name, live, help},
const bt_run_state_row bt_run_states[BT_STATE_COUNT] = {
#include "engine/base/tables/states.def"
};
#undef BT_STATE

enum { RANKS = true, SUPERVISOR = false };
#define BT_IN(state) (UINT32_C(1) << BT_STATE_##state)
#define BT_VERB(id, word, argument, who, offered, key, outcome, label, help) \
    {word, argument, who, offered, key, BT_EVENT_##outcome, label, help},
const bt_verb_row bt_verbs[BT_VERB_COUNT] = {
#include "engine/base/tables/verbs.def"
};
#undef BT_VERB

bt_verb bt_verb_find(const char *word) {
    int v = 0;
    while (v < BT_VERB_COUNT && strcmp(bt_verbs[v].word, word) != 0) v++;
    return (bt_verb)v;
}

bool bt_verb_offered(bt_verb verb, bt_run_state state) {
    return (unsigned)verb < BT_VERB_COUNT && bt_verbs[verb].offered >> state & 1;
}

bt_verb bt_verb_of_key(char key, bt_run_state state) {
    int found = BT_VERB_COUNT;
    for (int v = BT_VERB_COUNT - 1; key && v >= 0; v--) {
        if (bt_verbs[v].key != key) continue;
        bool better = bt_verb_offered((bt_verb)v, state) || !bt_verb_offered((bt_verb)found, state);
        if (better) found = v;
    }
    return (bt_verb)found;
}

const char *bt_verb_list(char *buf, size_t size, const char *between, bool arguments) {
    size_t n = 0;
    buf[0] = '\0';
    for (int v = 0; v < BT_VERB_COUNT && n < size; v++) {
        const char *argument = arguments ? bt_verbs[v].argument : "";
        n += (size_t)snprintf(buf + n, size - n, "%s%s%s%s", v ? between : "", bt_verbs[v].word,
                              argument[0] ? " " : "", argument);
    }
    return buf;
}
