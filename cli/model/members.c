/* members.c - resolves words to the models of an ensemble. */
#include "cli/model/members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/database.h"
#include "cli/common/run_name.h"
#include "cli/model/checkpoint_folder.h"

static bt_code add_member_word(bt_members *m, const char *word, size_t n, bt_err *err) {
    if (m->n == BT_MEMBERS_MOST)
        return bt_fail(err, BT_ARG, "an ensemble has at most %d models", BT_MEMBERS_MOST);
    char *copy = strndup(word, n);
    if (!copy) return bt_fail(err, BT_NOMEM, "no memory for the names of models");
    m->words[m->n++] = copy;
    for (size_t i = 0; i + 1 < m->n; i++)
        if (strcmp(m->words[i], copy) == 0)
            return bt_fail(err, BT_ARG, "'%.100s' occurs twice in one ensemble", copy);
    return BT_OK;
}

typedef struct group_runs {
    bt_members *m;
    bool best; /* the best checkpoint of each run */
    size_t unfinished;
    char one[BT_NAME_MAX], state[24]; /* name and state of the first unfinished run */
    bt_code code;
    bt_err *err;
} group_runs;

static bool add_group_run(void *ctx, const bt_row *row) {
    group_runs *g = ctx;
    char word[BT_NAME_MAX + 8];
    const char *run = bt_cli_cell(row, "run"), *state = bt_cli_cell(row, "state");
    if (strcmp(state, "done") == 0) {
        snprintf(word, sizeof word, "%s%s", run, g->best ? "@best" : "");
        g->code = add_member_word(g->m, word, strlen(word), g->err);
    } else if (g->unfinished++ == 0) {
        snprintf(g->one, sizeof g->one, "%s", run);
        snprintf(g->state, sizeof g->state, "%s", state);
    }
    return g->code == BT_OK;
}

/* *found: a run belongs to this group. */
static bt_code add_group_runs(bt_members *m, const char *group, bool best, const char *store,
                              bool *found, bt_err *err) {
    static char told[BT_NAME_MAX]; /* a command that looks a group up twice reports it once */
    bt_db *db = NULL;
    const size_t before = m->n;
    group_runs g = {.m = m, .best = best, .err = err};
    BT_TRY(bt_cli_open(&db, store, err));
    bt_code code = bt_db_query(
        db,
        &(bt_query){.sql = "SELECT run, state FROM runs WHERE bt_setting(config, 'run.group') "
                           "= ?1 ORDER BY run",
                    .params = &group,
                    .n_params = 1},
        add_group_run, &g, err);
    bt_db_close(db);
    if (code == BT_OK) code = g.code;
    *found = m->n > before || g.unfinished;
    if (code != BT_OK || !g.unfinished) return code;
    if (m->n == before)
        return bt_fail(err, BT_BUSY,
                       "group '%.60s' has no finished run: '%s' is %s (of %zu runs; bitrain train "
                       "--resume RUN continues one)",
                       group, g.one, g.state, g.unfinished);
    if (strcmp(told, group) != 0)
        fprintf(stderr, "group %s: %zu unfinished run%s left out (%s is %s)\n", group, g.unfinished,
                g.unfinished == 1 ? " is" : "s are", g.one, g.state);
    snprintf(told, sizeof told, "%s", group);
    return BT_OK;
}

static bt_code resolve_word(bt_members *m, const char *word, const char *store, bt_err *err);

/* "a,b@best,c" */
static bt_code resolve_word_list(bt_members *m, const char *list, const char *store, bt_err *err) {
    char *copy = strdup(list);
    bt_code code = copy ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the names of models");
    for (char *rest = copy, *word; code == BT_OK && (word = strsep(&rest, ",")) != NULL;)
        if (*word) code = resolve_word(m, word, store, err);
    free(copy);
    return code;
}

static bt_code resolve_word(bt_members *m, const char *word, const char *store, bt_err *err) {
    char name[BT_NAME_MAX], run[BT_NAME_MAX];
    bt_err why = BT_ERR_INIT;
    bool is_path, found = false;
    const bool best = bt_trained_split_best(word, name, sizeof name);
    const bt_code code = bt_run_or_path(store, word, name, &is_path, run, &why);
    if (code == BT_OK && !(is_path && strchr(word, ',') && access(word, F_OK) != 0))
        return add_member_word(m, word, strlen(word), err);
    if (code == BT_NOTFOUND) {
        bt_err none = BT_ERR_INIT;
        const bt_code grouped = add_group_runs(m, name, best, store, &found, &none);
        if (found && grouped != BT_OK) *err = none;
        if (found) return grouped;
    }
    if (strchr(word, ',')) return resolve_word_list(m, word, store, err);
    *err = why;
    return code;
}

bt_code bt_members_find(bt_members *out, const char *words, const char *store, bt_err *err) {
    bt_text name = {0};
    bt_code code = BT_OK;
    *out = (bt_members){0};
    for (const char *at = words; *at && code == BT_OK;) {
        const size_t n = strcspn(at, "\n");
        char *word = strndup(at, n);
        code = word ? resolve_word(out, word, store, err)
                    : bt_fail(err, BT_NOMEM, "no memory for the names of models");
        bt_text_printf(&name, "%s%s", name.len ? "," : "", word ? word : "");
        free(word);
        at += n + (at[n] == '\n');
    }
    snprintf(out->name, sizeof out->name, "%s", bt_text_str(&name));
    bt_text_release(&name);
    if (code == BT_OK && out->n == 0) code = bt_fail(err, BT_ARG, "no model is named");
    return code;
}

void bt_members_release(bt_members *m) {
    for (size_t i = 0; i < m->n; i++) free(m->words[i]);
    *m = (bt_members){0};
}

void bt_members_join(bt_text *out, const char *const *words, size_t n) {
    if (n == 0) bt_text_put(out, "last");
    for (size_t i = 0; i < n; i++) bt_text_printf(out, "%s%s", i ? "\n" : "", words[i]);
}
