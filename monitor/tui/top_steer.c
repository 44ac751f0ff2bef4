/* top_steer.c - executes keys that change a run: verbs of a live one, the start of an ended one,
 * notes, tags and removal, each after a confirmation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/tui/screens/top_state.h"

/* Executes the command that view.h proposes as the remedy (trouble), without a shell. */
static void resume_ended_run(bt_top *t) {
    char name[BT_NAME_MAX];
    const char *words[] = {"--resume", t->run};
    bt_err err = BT_ERR_INIT;
    snprintf(name, sizeof name, "%s", t->run);
    if (t->cfg.actions.start(t->cfg.actions.ctx, 2, words, name, &err) != BT_OK)
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    else
        bt_top_message(t, BT_C_GOOD, "%s: resumed", t->run);
    t->reload = true;
}

static void confirm_action(bt_top *t, bt_action what) {
    t->input = BT_INPUT_CONFIRM;
    t->confirm = what;
    t->asked_burst = t->burst;
}

/* verb of a key in this state; BT_VERB_COUNT: none */
static bt_verb verb_of_key(const bt_top *t, bt_action what) {
    static const struct {
        bt_action what;
        bt_verb verb;
    } of[] = {{BT_DO_CHECKPOINT, BT_VERB_CHECKPOINT}, {BT_DO_STOP, BT_VERB_STOP},
              {BT_DO_EVALUATE, BT_VERB_EVAL},         {BT_DO_RATE, BT_VERB_LR},
              {BT_DO_SAMPLE, BT_VERB_SAMPLE},         {BT_DO_PAUSE, BT_VERB_PAUSE}};
    if (what == BT_DO_PAUSE && t->view->head.state == BT_STATE_PAUSED) return BT_VERB_RESUME;
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        if (of[i].what == what) return of[i].verb;
    return BT_VERB_COUNT;
}

static void request_control(bt_top *t, bt_action what) {
    const bt_verb verb = verb_of_key(t, what);
    const bt_run_state state = t->view->head.state;
    if (t->has_run && what == BT_DO_PAUSE && t->view->head.trouble.resumes) {
        if (t->cfg.actions.start)
            confirm_action(t, what);
        else
            bt_top_message(t, BT_C_WARN, "no run can be started here: use '%s'",
                           t->view->head.trouble.command);
    } else if (!t->has_run || !t->view->head.live)
        bt_top_message(t, BT_C_LABEL, "the run is not live");
    else if (!bt_verb_offered(verb, state))
        bt_top_message(t, BT_C_WARN, "%s is %s: it takes no '%s' now", t->run,
                       bt_run_states[state].name, bt_verbs[verb].word);
    else if (!t->cfg.actions.control)
        bt_top_message(t, BT_C_WARN, "control is not available here: use 'bitrain ctl'");
    else if (what == BT_DO_RATE || what == BT_DO_SAMPLE)
        t->input = what == BT_DO_RATE ? BT_INPUT_RATE : BT_INPUT_PROMPT, t->line[0] = 0;
    else
        confirm_action(t, what);
}

typedef struct outcome {
    char title[sizeof((bt_top *)0)->message];
    int64_t seq;
} outcome;

static bool read_run_outcome(void *ctx, const bt_row *row) {
    outcome *o = ctx;
    o->seq = (int64_t)row->nums[0];
    snprintf(o->title, sizeof o->title, "%s", row->cells[1] ? row->cells[1] : "");
    return false;
}

/* Finds the first event of this kind, or the first refusal, after event number `after`. kind "": finds
 * the newest event of any kind. seq remains 0 if there is none. */
static bt_code find_event(bt_top *t, const char *run, int64_t after, const char *kind, outcome *o) {
    char from[24];
    const char *params[] = {run, from, kind};
    bt_err ignored = BT_ERR_INIT;
    snprintf(from, sizeof from, "%lld", (long long)after);
    return bt_db_query(
        t->cfg.db,
        &(bt_query){
            .sql = kind[0]
                       ? "SELECT seq, title FROM events WHERE run = ?1 AND seq > "
                         "CAST(?2 AS INTEGER) AND kind IN (?3, 'refused') AND "
                         /* excludes scheduled samples, which were not requested */
                         "(kind <> 'sample' OR json_valid(body) AND json_extract(body, '$.asked')) "
                         "ORDER BY seq LIMIT 1"
                       : "SELECT seq, title FROM events WHERE run = ?1 AND ?2 = ?2 "
                         "AND ?3 = ?3 ORDER BY seq DESC LIMIT 1",
            .params = params,
            .n_params = 3,
            .max_rows = 1,
            .max_s = 1},
        read_run_outcome, o, &ignored);
}

void bt_top_steer_outcome(bt_top *t) {
    outcome o = {.seq = 0};
    if (!t->sent.run[0]) return;
    if (strcmp(t->sent.run, t->run) != 0) {
        t->sent.run[0] = 0; /* another run is displayed */
        return;
    }
    const char *kind = bt_events[bt_verbs[t->sent.verb].outcome].name;
    if (find_event(t, t->run, t->sent.seq, kind, &o) != BT_OK || o.seq == 0) return;
    t->sent.run[0] = 0;
    bt_top_message(t, BT_C_GOOD, "%s: %s", t->run, o.title);
}

static void send_control_verb(bt_top *t, const char *verb, const char *value) {
    char reply[200] = "";
    bt_err err = BT_ERR_INIT;
    outcome before = {.seq = 0};
    const bt_verb known = bt_verb_find(verb);
    t->sent.run[0] = 0;
    if (known < BT_VERB_COUNT && bt_verbs[known].outcome < BT_EVENT_COUNT &&
        find_event(t, t->run, 0, "", &before) == BT_OK) {
        snprintf(t->sent.run, sizeof t->sent.run, "%s", t->run);
        t->sent.verb = known;
        t->sent.seq = before.seq;
    }
    if (t->cfg.actions.control(t->cfg.actions.ctx, t->run, verb, value, reply, sizeof reply,
                               &err) != BT_OK) {
        t->sent.run[0] = 0;
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    } else if (!reply[0] || strcmp(reply, verb) == 0)
        bt_top_message(t, BT_C_GOOD, "%s: %s asked for", t->run, verb);
    else
        bt_top_message(t, BT_C_GOOD, "%s", reply);
    t->reload = true;
}

static void remove_shown_run(bt_top *t, bool checkpoints) {
    char reply[320] = "";
    bt_err err = BT_ERR_INIT;
    if (t->cfg.actions.remove(t->cfg.actions.ctx, t->run, checkpoints, reply, sizeof reply, &err) !=
        BT_OK) {
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
        return;
    }
    bt_top_message(t, BT_C_GOOD, "%s", reply);
    t->has_run = false;
    t->run[0] = t->cursor_run[0] = 0;
    t->screen = BT_SCREEN_RUNS;
    t->reload = true;
}

bool bt_top_steer_accepts(const bt_top *t, int32_t key) {
    return key == 'y' || key == 'Y' || (t->confirm == BT_DO_REMOVE && (key == 'c' || key == 'C'));
}

void bt_top_steer_confirmed(bt_top *t, int32_t key) {
    if (t->confirm == BT_DO_REMOVE)
        remove_shown_run(t, key == 'c' || key == 'C');
    else if (t->confirm == BT_DO_PAUSE && t->view->head.trouble.resumes)
        resume_ended_run(t);
    else
        send_control_verb(t, bt_verbs[verb_of_key(t, t->confirm)].word, NULL);
}

static void record_user_event(bt_top *t, int64_t step, bt_event_kind kind, const char *text,
                              const char *done) {
    bt_err err = BT_ERR_INIT;
    if (t->cfg.actions.mark(t->cfg.actions.ctx, t->run, step, kind, text, &err) != BT_OK)
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    else
        bt_top_message(t, BT_C_GOOD, "%s", done);
    t->reload = true;
}

static void open_note_line(bt_top *t, bt_action what) {
    char text[64];
    if (!t->has_run)
        bt_top_message(t, BT_C_LABEL, "no run is chosen");
    else if (!t->cfg.actions.mark)
        bt_top_message(t, BT_C_WARN, "notes are not available here");
    else if (what == BT_DO_ANNOTATE)
        t->input = BT_INPUT_NOTE, t->line[0] = 0;
    else if (t->view->head.alerts == 0)
        bt_top_message(t, BT_C_LABEL, "no alerts to acknowledge");
    else {
        snprintf(text, sizeof text, "%d alert%s acknowledged", t->view->head.alerts,
                 t->view->head.alerts == 1 ? "" : "s");
        record_user_event(t, -1, BT_EVENT_ACKNOWLEDGED, text, text);
    }
}

typedef struct note_text {
    char text[sizeof((bt_top *)0)->line];
    bool cut; /* the input line is too short for the whole note */
} note_text;

static bool record_step_note(void *ctx, const bt_row *row) {
    note_text *n = ctx;
    const char *all = row->cells[0] ? row->cells[0] : "";
    n->cut = strlen(all) >= sizeof n->text;
    snprintf(n->text, sizeof n->text, "%s", all);
    return false;
}

/* The head of the view has only the beginning of the note. */
static bt_code read_note(bt_top *t, note_text *n, bt_err *err) {
    const char *run = t->run;
    return bt_db_query(t->cfg.db,
                       &(bt_query){.sql = "SELECT note FROM runs WHERE run = ?1",
                                   .params = &run,
                                   .n_params = 1,
                                   .max_rows = 1,
                                   .max_s = 1},
                       record_step_note, n, err);
}

/* Opens an input line that begins with the current text. */
static void open_input_line(bt_top *t, bt_input input, const char *now, bool can) {
    if (!can) {
        bt_top_message(t, BT_C_WARN, "not available here: use 'bitrain runs'");
        return;
    }
    t->input = input;
    bt_text_plain(t->line, sizeof t->line, now);
}

static void open_run_note_line(bt_top *t) {
    note_text n = {.cut = false};
    bt_err err = BT_ERR_INIT;
    if (read_note(t, &n, &err) != BT_OK)
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    else if (n.cut)
        bt_top_message(t, BT_C_WARN, "the note is longer than this line: 'bitrain runs note %s'",
                       t->run);
    else
        open_input_line(t, BT_INPUT_RUN_NOTE, n.text, t->cfg.actions.note != NULL);
}

static void confirm_record_removal(bt_top *t, bt_action what) {
    if (!t->has_run)
        bt_top_message(t, BT_C_LABEL, "no run is chosen");
    else if (what == BT_DO_NOTE)
        open_run_note_line(t);
    else if (what == BT_DO_RENAME && t->view->head.live)
        bt_top_message(t, BT_C_WARN, "%s is live: it keeps its name", t->run);
    else if (what == BT_DO_RENAME)
        open_input_line(t, BT_INPUT_RENAME, t->run, t->cfg.actions.rename != NULL);
    else if (what == BT_DO_TAGS && t->cfg.actions.tag)
        t->input = BT_INPUT_TAGS, t->line[0] = 0;
    else if (what == BT_DO_TAGS || !t->cfg.actions.remove)
        bt_top_message(t, BT_C_WARN, "not available here: use 'bitrain runs'");
    else if (t->view->head.live)
        bt_top_message(t, BT_C_WARN, "%s is live: stop it first", t->run);
    else
        confirm_action(t, what);
}

void bt_top_steer(bt_top *t, bt_action what) {
    if (what == BT_DO_ACKNOWLEDGE || what == BT_DO_ANNOTATE)
        open_note_line(t, what);
    else if (what == BT_DO_TAGS || what == BT_DO_REMOVE || what == BT_DO_NOTE ||
             what == BT_DO_RENAME)
        confirm_record_removal(t, what);
    else
        request_control(t, what);
}

static void set_peak_rate(bt_top *t) {
    char *end, value[64];
    const double peak = strtod(t->line, &end);
    if (end == t->line || (*end && strcmp(end, ",force") != 0) || !(peak > 0)) {
        bt_top_message(t, BT_C_WARN, "'%s' is no learning rate", t->line);
        return;
    }
    snprintf(value, sizeof value, "lr=%.40s", t->line);
    send_control_verb(t, "set", value);
}

static void tag_run(bt_top *t) {
    char tags[300] = "";
    bt_err err = BT_ERR_INIT;
    if (t->cfg.actions.tag(t->cfg.actions.ctx, t->run, t->line, tags, sizeof tags, &err) != BT_OK)
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    else
        bt_top_message(t, BT_C_GOOD, "%s: %s", t->run, tags[0] ? tags : "no tags");
    t->reload = true;
}

static void note_run(bt_top *t) {
    bt_err err = BT_ERR_INIT;
    if (t->cfg.actions.note(t->cfg.actions.ctx, t->run, t->line, &err) != BT_OK)
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    else
        bt_top_message(t, BT_C_GOOD, t->line[0] ? "%s: noted" : "%s has no note", t->run);
    t->reload = true;
}

static void rename_shown_run(bt_top *t) {
    bt_err err = BT_ERR_INIT;
    if (strcmp(t->line, t->run) == 0) return;
    if (t->cfg.actions.rename(t->cfg.actions.ctx, t->run, t->line, &err) != BT_OK) {
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
        return;
    }
    bt_top_message(t, BT_C_GOOD, "%s is %s now", t->run, t->line);
    snprintf(t->run, sizeof t->run, "%.*s", (int)sizeof t->run - 1, t->line);
    snprintf(t->cursor_run, sizeof t->cursor_run, "%s", t->run);
    t->reload = true;
}

void bt_top_steer_line(bt_top *t, bt_input was) {
    if (was == BT_INPUT_RUN_NOTE) note_run(t); /* an empty line removes the note */
    if (!t->line[0] || was == BT_INPUT_RUN_NOTE) return;
    if (was == BT_INPUT_NOTE)
        record_user_event(t, t->view->head.step, BT_EVENT_ANNOTATION, t->line,
                          "noted at this step");
    else if (was == BT_INPUT_RATE)
        set_peak_rate(t);
    else if (was == BT_INPUT_PROMPT)
        send_control_verb(t, "sample", t->line);
    else if (was == BT_INPUT_RENAME)
        rename_shown_run(t);
    else
        tag_run(t);
}
