/* api_control.c - actions of a page with --control: verbs of a live run (verbs.def), restarting an ended run, editing
 * its tags, note and notes at steps, and removing it.
 *
 *     {"run": "demo", "verb": "checkpoint"}            {"run": "demo", "verb": "set", "value": "lr=2e-4"}
 *     {"run": "demo", "verb": "sample", "value": "Once upon a time"}
 *     {"run": "demo", "verb": "rename", "value": "final"}
 *     {"run": "demo", "verb": "tag", "value": "+paper -draft"}     {..., "verb": "note", "value": "no warm-up"}
 *     {"run": "demo", "verb": "annotate", "value": "here", "step": 41}
 *     {"run": "demo", "verb": "remove", "value": "records"}       or "records and checkpoints" */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/tables/verb.h"
#include "store/wire/control_client.h"
#include "store/write/manage.h"
#include "web/api/api.h"

/* maximum wait for the database, because one event-loop thread serves all pages */
#define LOCK_S 1.0
enum { VALUE_MOST = BT_PROMPT_MAX, TAGS_MOST = 16 };

typedef struct request {
    char run[BT_NAME_MAX], verb[32], value[VALUE_MOST + 1];
    bool has_value;
    int64_t step; /* -1: none given */
} request;

static bt_code control_tag(bt_api *a, const request *q, char *reply, size_t size, bt_err *err) {
    char copy[VALUE_MOST + 1], tags[256], *rest = copy, *word;
    const char *words[TAGS_MOST];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", q->value);
    while ((word = strsep(&rest, " ,")) != NULL) {
        if (!*word) continue;
        if (n == TAGS_MOST) return bt_fail(err, BT_ARG, "at most %d tags at once", TAGS_MOST);
        words[n++] = word;
    }
    BT_TRY(bt_run_tag(bt_api_store(a), q->run, words, n, LOCK_S, tags, err));
    snprintf(reply, size, tags[0] ? "tags of %s: %s" : "%s has no tags%s", q->run, tags);
    return BT_OK;
}

static bt_code control_note(bt_api *a, const request *q, char *reply, size_t size, bt_err *err) {
    BT_TRY(bt_run_note(bt_api_store(a), q->run, q->value, LOCK_S, err));
    snprintf(reply, size, q->value[0] ? "%s: noted" : "%s has no note", q->run);
    return BT_OK;
}

static bt_code control_rename(bt_api *a, const request *q, char *reply, size_t size, bt_err *err) {
    BT_TRY(bt_run_rename(bt_api_store(a), q->run, q->value, LOCK_S, err));
    snprintf(reply, size, "%s is %s now", q->run, q->value);
    return BT_OK;
}

static bt_code annotate_run(bt_api *a, const request *q, char *reply, size_t size, bt_err *err) {
    if (!q->value[0]) return bt_fail(err, BT_ARG, "'value' is missing: the words of the note");
    BT_TRY(
        bt_run_mark(bt_api_store(a), q->run, q->step, BT_EVENT_ANNOTATION, q->value, LOCK_S, err));
    if (q->step >= 0)
        snprintf(reply, size, "noted at step %lld", (long long)q->step + 1);
    else
        snprintf(reply, size, "noted at this moment");
    return BT_OK;
}

static bt_code acknowledge_events(bt_api *a, const request *q, char *reply, size_t size,
                                  bt_err *err) {
    BT_TRY(bt_run_mark(bt_api_store(a), q->run, -1, BT_EVENT_ACKNOWLEDGED, "seen on the page",
                       LOCK_S, err));
    snprintf(reply, size, "warnings and errors of %s are marked as seen", q->run);
    return BT_OK;
}

static bt_code control_remove(bt_api *a, const request *q, char *reply, size_t size, bt_err *err) {
    const bt_api_allows allows = bt_api_allowed(a);
    const bool all = strcmp(q->value, "records and checkpoints") == 0;
    if (!all && strcmp(q->value, "records") != 0)
        return bt_fail(err, BT_ARG, "'value' must be 'records' or 'records and checkpoints'");
    if (!allows.remove)
        return bt_fail(err, BT_UNSUPPORTED, "this server removes nothing: use 'bitrain runs rm %s'",
                       q->run);
    return allows.remove(allows.resume_ctx, q->run, all, reply, size, err);
}

static const struct {
    const char *verb;
    bt_code (*run)(bt_api *a, const request *q, char *reply, size_t size, bt_err *err);
} records[] = {{"tag", control_tag},
               {"note", control_note},
               {"rename", control_rename},
               {"annotate", annotate_run},
               {"acknowledge", acknowledge_events},
               {"remove", control_remove}};
enum { RECORDS = sizeof records / sizeof records[0] };

static size_t record_verb(const char *verb) {
    size_t i = 0;
    while (i < RECORDS && strcmp(records[i].verb, verb) != 0) i++;
    return i;
}

static bt_code fail_control_verb(bt_err *err) {
    char words[240];
    bt_verb_list(words, sizeof words, ", ", false);
    for (size_t i = 0; i < RECORDS; i++) {
        const size_t n = strlen(words);
        snprintf(words + n, sizeof words - n, ", %s", records[i].verb);
    }
    return bt_fail(err, BT_ARG, "'verb' must be one of %s", words);
}

static bt_code check_control_value(const request *q, const char *value, bt_err *err) {
    const bt_verb known = bt_verb_find(q->verb);
    if (value && strlen(value) > VALUE_MOST)
        return bt_fail(err, BT_ARG, "'value' has %zu bytes, at most %d are possible", strlen(value),
                       (int)VALUE_MOST);
    /* only a prompt may contain several lines */
    if (value && known != BT_VERB_SAMPLE && strpbrk(value, "\n\r"))
        return bt_fail(err, BT_ARG, "'value' must be one line");
    if (record_verb(q->verb) < RECORDS) return BT_OK;
    if (known == BT_VERB_COUNT) return fail_control_verb(err);
    if (value && known != BT_VERB_SAMPLE && strchr(value, '#'))
        return bt_fail(err, BT_ARG, "'value' of '%s' has no '#'", q->verb);
    if (bt_verbs[known].argument[0] && !value)
        return bt_fail(err, BT_ARG, "'value' is missing: %s", bt_verbs[known].argument);
    return BT_OK;
}

static bt_code read_control_request(const char *body, request *q, bt_err *err) {
    json_error_t why;
    json_t *root = json_loads(body ? body : "", JSON_REJECT_DUPLICATES, &why);
    const char *name = json_string_value(json_object_get(root, "run")),
               *verb = json_string_value(json_object_get(root, "verb")),
               *value = json_string_value(json_object_get(root, "value"));
    const json_t *step = json_object_get(root, "step");
    bt_code code = BT_OK;
    *q = (request){.step = -1};
    if (json_is_integer(step) && json_integer_value(step) >= 0) q->step = json_integer_value(step);
    if (!root)
        code = bt_fail(err, BT_ARG, "the body is not JSON: %s", why.text);
    else if (!name || !bt_name_ok(name))
        code = bt_fail(err, BT_ARG, "'run' must be a run's name");
    else if (!verb)
        code = fail_control_verb(err);
    else {
        snprintf(q->run, sizeof q->run, "%s", name);
        snprintf(q->verb, sizeof q->verb, "%s", verb); /* a truncated name is not a valid verb */
        code = check_control_value(q, value, err);
        q->has_value = value != NULL;
        snprintf(q->value, sizeof q->value, "%s", value && code == BT_OK ? value : "");
    }
    json_decref(root);
    return code;
}

/* Restarts an ended run, which has no supervisor, with the command that its view suggests. */
static bt_code resume_ended(bt_api *a, const char *wanted, bool *done, char *reply, size_t size,
                            bt_err *err) {
    const bt_api_allows allows = bt_api_allowed(a);
    char run[BT_NAME_MAX];
    bt_view_request ask;
    bt_view_request_init(&ask);
    *done = false;
    BT_TRY(bt_db_run(bt_api_db(a, err), wanted, run, err));
    bt_view *v = bt_api_view(a, run, err);
    if (!v) return err->code;
    ask.run = run;
    BT_TRY(bt_view_load(v, &ask, err));
    if (!v->head.trouble.resumes) return BT_OK;
    if (!allows.resume)
        return bt_fail(err, BT_UNSUPPORTED, "this server starts no runs: use '%s'",
                       v->head.trouble.command);
    BT_TRY(allows.resume(allows.resume_ctx, run, err));
    snprintf(reply, size, "%s is started again", run);
    *done = true;
    return BT_OK;
}

bt_code bt_api_control(bt_api *a, const bt_req *r, const char *unused, bt_answer *out,
                       bt_err *err) {
    (void)unused;
    char reply[BT_CONTROL_LINE] = "", line[BT_CONTROL_LINE];
    request q;
    bt_db *db = bt_api_db(a, err);
    if (!db) return err->code;
    bool done = false;
    BT_TRY(read_control_request(r->body, &q, err));
    const size_t record = record_verb(q.verb);
    if (record < RECORDS) {
        char run[BT_NAME_MAX];
        BT_TRY(bt_db_run(db, q.run, run, err));
        BT_TRY(records[record].run(a, &q, reply, sizeof reply, err));
        done = true;
    } else if (strcmp(q.verb, bt_verbs[BT_VERB_RESUME].word) == 0)
        BT_TRY(resume_ended(a, q.run, &done, reply, sizeof reply, err));
    if (!done) {
        BT_TRY(bt_control_line(line, sizeof line, q.verb, q.has_value ? q.value : NULL, "dashboard",
                               err));
        BT_TRY(bt_control_request(db, q.run, line, reply, sizeof reply, err));
    }
    bt_json j;
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_bool(&j, "ok", true);
    bt_json_str(&j, "reply", reply);
    bt_json_end(&j, '}');
    return BT_OK;
}
