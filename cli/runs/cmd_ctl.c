/* cmd_ctl.c - `bitrain ctl`: sends a request to a live run. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/common/verbs.h"
#include "engine/base/clock.h"
#include "engine/base/tables/verb.h"
#include "store/wire/control_client.h"

typedef struct ctl_cfg {
    char store[1024];
    bool json, wait, force;
} ctl_cfg;

/* maximum wait, in which a large model can be saved; after it the command returns */
enum { WAIT_S = 60, EVERY_MS = 50 };

static const bt_opt ctl_opts[] = {
    BT_ROW_FLAG(ctl_cfg, json, "--json", "one JSON object: run, verb, answer"),
    BT_ROW_BOOL(ctl_cfg, wait, "--wait", "true",
                "stop: wait until the checkpoint is written and the run has ended; sample: "
                "wait for the text (--no-wait: return at once)"),
    BT_ROW_FLAG(ctl_cfg, force, "--force",
                "set: allow a learning rate above 10 times the configured peak"),
    BT_ROW_STORE(ctl_cfg),
};

/* Prints the reply to `status`, an object, as a sentence. */
static void put_status(bt_printout *to, const char *run, const char *answer) {
    json_t *o = json_loads(answer, 0, NULL);
    char since[32];
    const json_int_t step = json_integer_value(json_object_get(o, "step")),
                     ranks = json_integer_value(json_object_get(o, "ranks")),
                     restarts = json_integer_value(json_object_get(o, "restarts"));
    const char *state = json_string_value(json_object_get(o, "state"));
    bt_printout_line(
        to, "%s: %s, %lld step%s done, %lld rank%s, %lld restart%s, last record %s ago%s\n", run,
        state ? state : "?", (long long)step + 1, step ? "s" : "", (long long)ranks,
        ranks == 1 ? "" : "s", (long long)restarts, restarts == 1 ? "" : "s",
        bt_duration(since, sizeof since, json_number_value(json_object_get(o, "silence_s"))),
        json_is_true(json_object_get(o, "late")) ? ": longer than usual" : "");
    json_decref(o);
}

static bt_code print_ctl_reply(const char *run, const char *verb, const char *answer, bool json,
                               bt_err *err) {
    const bool object = answer[0] == '{';
    bt_printout o;
    bt_printout_begin(&o, json);
    bt_printout_str(&o, "run", NULL, run);
    bt_printout_str(&o, "verb", NULL, verb);
    if (json && object)
        bt_json_raw(&o.j, "answer", answer);
    else if (object)
        put_status(&o, run, answer);
    else
        bt_printout_str(&o, "answer", NULL, answer);
    if (!object && strcmp(answer, verb) == 0)
        bt_printout_line(&o, "%s: %s requested, to %s\n", run, answer,
                         bt_verbs[bt_verb_find(verb)].help);
    else if (!object)
        bt_printout_line(&o, "%s: %s\n", run, answer);
    return bt_printout_print(&o, err);
}

/* Refuses a run without data.mixture here, because its ranks could report the fault only as an event. */
static bt_code check_has_mixture(bt_db *db, const char *run, bt_err *err) {
    double given = 1;
    BT_TRY(bt_db_value(db,
                       "SELECT count(*) FROM configs WHERE run = ?1 AND key = 'data.mixture' AND "
                       "value <> ''",
                       run, &given, err));
    if (given > 0) return BT_OK;
    return bt_fail(
        err, BT_ARG,
        "run '%s' was begun without data.mixture: its sources are read one after another, "
        "and have no weights",
        run);
}

typedef struct end {
    char out[PATH_MAX], state[32];
    double steps;
} end;

static bool read_run_end(void *ctx, const bt_row *row) {
    end *e = ctx;
    snprintf(e->out, sizeof e->out, "%s", row->cells[0] ? row->cells[0] : "");
    snprintf(e->state, sizeof e->state, "%s", row->cells[1] ? row->cells[1] : "");
    e->steps = row->nums[2];
    return false;
}

/* True if a process of this host trains in the folder. */
static bool is_folder_in_use(const char *out) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/run.lock", out);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

/* Waits for the end, because a stopped run is usually resumed or evaluated next. */
static bt_code wait_for_end(const char *store, const char *run, end *e, bool *ended, bt_err *err) {
    const int64_t began = bt_now_ns();
    *ended = false;
    while (!*ended && bt_now_ns() - began < (int64_t)WAIT_S * 1000000000) {
        bt_db *db = NULL;
        *e = (end){0};
        BT_TRY(bt_cli_open(&db, store, err));
        bt_code code =
            bt_db_query(db,
                        &(bt_query){.sql = "SELECT out_dir, state, steps FROM runs WHERE run = ?1",
                                    .params = (const char *const[]){run},
                                    .n_params = 1,
                                    .max_rows = 1,
                                    .max_s = 5},
                        read_run_end, e, err);
        bt_db_close(db);
        BT_TRY(code);
        *ended = strcmp(e->state, "running") != 0 && strcmp(e->state, "paused") != 0 &&
                 !is_folder_in_use(e->out);
        if (!*ended) bt_sleep_ns((int64_t)EVERY_MS * 1000000);
    }
    return BT_OK;
}

static bt_code stop_and_wait(const ctl_cfg *cfg, const char *run, char *answer, size_t size,
                             bt_err *err) {
    end e;
    bool ended;
    BT_TRY(wait_for_end(cfg->store, run, &e, &ended, err));
    if (ended)
        snprintf(answer, size, "%s after step %.0f", e.state, e.steps);
    else
        snprintf(answer, size, "stop requested; after %d s it is still saving", WAIT_S);
    return BT_OK;
}

typedef struct sample {
    bool there, refused;
    bt_text text; /* the text, or why there is none */
} sample;

static bool read_sample_event(void *ctx, const bt_row *row) {
    sample *s = ctx;
    s->there = true;
    s->refused = row->cells[0] && strcmp(row->cells[0], "refused") == 0;
    bt_text_put(&s->text, row->cells[1] ? row->cells[1] : "");
    return false;
}

static bt_code find_sample(const char *store, const char *run, const char *since, sample *s,
                           bt_err *err) {
    bt_db *db = NULL;
    BT_TRY(bt_cli_open(&db, store, err));
    bt_code code = bt_db_query(
        db,
        &(bt_query){.sql = "SELECT kind, CASE kind WHEN 'sample' THEN json_extract(body, "
                           "'$.text') ELSE title END FROM events WHERE run = ?1 AND seq > "
                           "CAST(?2 AS INTEGER) AND (kind = 'refused' OR kind = 'sample' AND "
                           "json_extract(body, '$.asked')) ORDER BY seq LIMIT 1",
                    .params = (const char *const[]){run, since},
                    .n_params = 2,
                    .max_rows = 1,
                    .max_s = 5},
        read_sample_event, s, err);
    bt_db_close(db);
    return code;
}

/* Waits for the text of a sample, which the ranks write at the end of their step. since: time of the newest event
 * before the request. */
static bt_code wait_for_sample(const ctl_cfg *cfg, const char *run, double since, char *answer,
                               size_t size, bt_err *err) {
    const int64_t began = bt_now_ns();
    char seq[32];
    sample s = {0};
    bt_code code = BT_OK;
    snprintf(seq, sizeof seq, "%.0f", since);
    while (code == BT_OK && !s.there && bt_now_ns() - began < (int64_t)WAIT_S * 1000000000) {
        code = find_sample(cfg->store, run, seq, &s, err);
        if (code == BT_OK && !s.there) bt_sleep_ns((int64_t)EVERY_MS * 1000000);
    }
    if (code == BT_OK && s.refused)
        code = bt_fail(err, BT_ARG, "%.200s", bt_text_str(&s.text));
    else if (code == BT_OK && s.there)
        snprintf(answer, size, "%s", bt_text_str(&s.text));
    else if (code == BT_OK)
        snprintf(answer, size,
                 "requested; after %d s there is no text yet (bitrain top %s shows it)", WAIT_S,
                 run);
    bt_text_release(&s.text);
    return code;
}

static bool ctl_verb_help(size_t i, bt_verb_help *out) {
    if (i >= BT_VERB_COUNT) return false;
    *out = (bt_verb_help){
        .name = bt_verbs[i].word, .words = bt_verbs[i].argument, .summary = bt_verbs[i].help};
    out->options = ctl_opts;
    out->n_options = sizeof ctl_opts / sizeof *ctl_opts;
    return true;
}

static bt_code cmd_ctl(bt_call *call, bt_err *err) {
    ctl_cfg *cfg = call->cfg;
    const char *const *words = call->words;
    bt_db *db = NULL;
    char verbs[160];
    if (call->n < 2)
        return bt_fail(err, BT_ARG, "ctl needs a run and a verb: bitrain ctl RUN %s",
                       bt_verb_list(verbs, sizeof verbs, "|", true));
    bt_verb verb = bt_verb_find(words[1]);
    if (verb == BT_VERB_COUNT && bt_verb_find(words[0]) != BT_VERB_COUNT)
        return bt_fail(err, BT_ARG,
                       "the run comes before the verb (did you mean 'bitrain ctl %.64s %s'?)",
                       words[1], words[0]);
    if (verb == BT_VERB_COUNT) return bt_no_verb(call->command, words[1], err);
    const bt_verb_row *row = &bt_verbs[verb];
    if (call->n == 3 && !row->argument[0])
        return bt_fail(err, BT_ARG, "'%s' takes no value", words[1]);
    if (call->n < 3 && row->argument[0])
        return bt_fail(err, BT_ARG, "'%s' needs %s, to %s", words[1], row->argument, row->help);
    char request[BT_CONTROL_LINE], answer[16 * BT_CONTROL_LINE], name[BT_NAME_MAX];
    double since = 0;
    char forced[BT_CONTROL_LINE];
    const char *value = call->n == 3 ? words[2] : NULL;
    if (cfg->force && verb != BT_VERB_LR)
        return bt_fail(err, BT_ARG, "'%s' takes no --force: it confirms a learning rate", words[1]);
    if (cfg->force) {
        snprintf(forced, sizeof forced, "%.200s,force", value);
        value = forced;
    }
    BT_TRY(bt_control_line(request, sizeof request, words[1], value, "ctl", err));
    BT_TRY(bt_cli_open(&db, cfg->store, err));
    bt_code code = bt_db_run(db, words[0], name, err);
    if (code == BT_OK && verb == BT_VERB_SAMPLE)
        code = bt_db_value(db, "SELECT coalesce(max(seq), 0) FROM events WHERE run = ?1", name,
                           &since, err);
    if (code == BT_OK && verb == BT_VERB_MIXTURE) code = check_has_mixture(db, name, err);
    if (code == BT_OK) code = bt_control_request(db, name, request, answer, sizeof answer, err);
    bt_db_close(db);
    if (code == BT_OK && verb == BT_VERB_STOP && cfg->wait)
        code = stop_and_wait(cfg, name, answer, sizeof answer, err);
    if (code == BT_OK && verb == BT_VERB_SAMPLE && cfg->wait)
        code = wait_for_sample(cfg, name, since, answer, sizeof answer, err);
    if (code == BT_OK) code = print_ctl_reply(name, words[1], answer, cfg->json, err);
    return code;
}

const bt_command bt_cmd_ctl = {
    .name = "ctl",
    .summary = "control a live run",
    .args = "RUN VERB [VALUE]",
    .examples = "bitrain ctl last pause\n"
                "bitrain ctl last stop # its checkpoint is written when the prompt is back\n"
                "bitrain ctl last set lr=2e-4 # the peak learning rate; lr_factor=0.5 halves the "
                "schedule\n"
                "bitrain ctl last sample 'In the beginning' # the model continues this text\n"
                "bitrain ctl last mixture 3:1 # weights of two sources of data.path\n"
                "bitrain ctl last resize 4,tp=2\n",
    .options = BT_OPTION_SET(ctl_opts, ctl_cfg),
    .max_words = 3,
    .verb = ctl_verb_help,
    .verb_at = 1,
    .run = cmd_ctl,
};
