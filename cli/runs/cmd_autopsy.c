/* cmd_autopsy.c - explains the end of a run: cause, time, step, evidence and remedy. The command reads only the
 * database and the run's folder; the sentences are those of the views (view_summary.c). */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "engine/base/clock.h"
#include "monitor/job/machine/memory_kills.h"
#include "store/view/view.h"

typedef struct autopsy_cfg {
    char store[1024];
    bool json, all;
} autopsy_cfg;

static const bt_opt autopsy_opts[] = {
    BT_ROW_JSON(autopsy_cfg),
    BT_ROW_FLAG(autopsy_cfg, all, "--all",
                "the evidence of every attempt, not only of the last failed one"),
    BT_ROW_STORE(autopsy_cfg),
};

enum {
    ATTEMPTS_MOST = 1000,
    LOG_BYTES = 64 * 1024,
    LOG_LINES = 12,
    EVENTS_MOST = 12,
    OOM_LINES = 3
};

typedef struct attempt {
    int number, world_size;
    int64_t from_step, last_step; /* -1: no step was recorded */
    double started_s, ended_s;    /* seconds since 1970; NaN: not recorded */
    char began[160];              /* reason for the start */
    char kind[64];    /* kind of end as recorded by the writer: "signal", "resized" or "" */
    char ended[320];  /* newest recorded failure, or "" */
    int rank;         /* rank of that failure; -1: none */
    char places[220]; /* hosts and steps of the attempt's ranks, or "" */
} attempt;

typedef struct autopsy {
    bt_db *db;
    const char *run;
    char out[PATH_MAX], host[BT_HOST_MAX];
    attempt *list;
    int n;
    int at; /* attempt to be explained: the last one that failed, else the last */
    bt_view *view;
    char *log; /* lines of that attempt */
    char oom[OOM_LINES][BT_KERNEL_LINE];
    int n_oom;
    double free_mib; /* free space of the file system with the run's checkpoints; NaN: unknown */
} autopsy;

/* ---- the database ---------------------------------------------------------------------------- */

static void copy_column(char *out, size_t size, const bt_row *r, int i) {
    bt_text_plain(out, size, r->cells[i] ? r->cells[i] : "");
}

static int64_t integer_column(double x, int64_t none) { return isnan(x) ? none : (int64_t)x; }

static bool add_attempt_row(void *ctx, const bt_row *r) {
    autopsy *a = ctx;
    attempt *t = &a->list[a->n++];
    *t = (attempt){.number = (int)integer_column(r->nums[0], 0),
                   .world_size = (int)integer_column(r->nums[1], 0),
                   .from_step = integer_column(r->nums[2], 0),
                   .last_step = integer_column(r->nums[3], -1),
                   .started_s = r->nums[4],
                   .ended_s = r->nums[5],
                   .rank = (int)integer_column(r->nums[9], -1)};
    copy_column(t->began, sizeof t->began, r, 6);
    copy_column(t->kind, sizeof t->kind, r, 7);
    copy_column(t->ended, sizeof t->ended, r, 8);
    copy_column(t->places, sizeof t->places, r, 10);
    return a->n < ATTEMPTS_MOST;
}

static bool read_run_row(void *ctx, const bt_row *r) {
    autopsy *a = ctx;
    snprintf(a->out, sizeof a->out, "%s", r->cells[0] ? r->cells[0] : "");
    copy_column(a->host, sizeof a->host, r, 1);
    return false;
}

static bt_code query_autopsy(autopsy *a, const char *sql, bt_row_fn fn, void *ctx, bt_err *err) {
    return bt_db_query(a->db,
                       &(bt_query){.sql = sql, .params = &a->run, .n_params = 1, .max_s = 10}, fn,
                       ctx, err);
}

static bt_code load_autopsy(autopsy *a, bt_err *err) {
    bt_view_request which;
    bt_view_request_init(&which);
    which.run = a->run;
    BT_TRY(bt_view_open(&a->view, a->db, err));
    BT_TRY(bt_view_load(a->view, &which, err));
    BT_TRY(query_autopsy(a, "SELECT out_dir, host FROM runs WHERE run = ?1", read_run_row, a, err));
    a->list = calloc(ATTEMPTS_MOST, sizeof *a->list);
    if (!a->list) return bt_fail(err, BT_NOMEM, "no memory for the attempts");
    BT_TRY(query_autopsy(
        a,
        "SELECT a.attempt, a.world_size, a.from_step, (SELECT max(step) FROM all_steps s WHERE "
        "s.run = a.run AND s.attempt = a.attempt), a.started_s, a.ended_s, a.reason, "
        "a.exit_kind, e.title, e.rank, CASE WHEN json_valid(e.body) THEN json_extract(e.body, "
        "'$.places') END FROM attempts a LEFT JOIN events e ON e.seq = (SELECT "
        "max(seq) FROM events f WHERE f.run = a.run AND f.attempt = a.attempt AND f.kind = "
        "'failure') WHERE a.run = ?1 ORDER BY a.attempt LIMIT 1000",
        add_attempt_row, a, err));
    a->at = a->n - 1;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->list[i].ended[0]) {
            a->at = i;
            break;
        }
    return BT_OK;
}

/* ---- the folder, the kernel ------------------------------------------------------------------ */

static bool ran_on_this_host(const autopsy *a) {
    char name[BT_HOST_MAX] = "";
    gethostname(name, sizeof name - 1);
    return strcmp(name, a->host) == 0;
}

/* Returns the end of a regular file, malloc'ed; NULL: it cannot be read. */
static char *read_file_tail(const char *path, size_t most) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? malloc(most + 1) : NULL;
    if (text) {
        const off_t from = st.st_size > (off_t)most ? st.st_size - (off_t)most : 0;
        const ssize_t n = pread(fd, text, most, from);
        text[n > 0 ? n : 0] = '\0';
        for (ssize_t i = 0; i < n; i++)
            if (!text[i]) text[i] = ' ';
    }
    if (fd >= 0) close(fd);
    return text;
}

/* Returns the last lines of an attempt: those between its first line and that of the next attempt. */
static char *find_attempt_lines(char *text, int number) {
    char head[48];
    snprintf(head, sizeof head, "--- attempt %d\n", number);
    char *at = NULL, *next;
    /* a resumed run may contain the same number in the log of an earlier start */
    for (char *p = text; (p = strstr(p, head)); p++) at = p;
    if (at) {
        at += strlen(head);
        if ((next = strstr(at, "--- attempt "))) *next = '\0';
    } else
        at = text;
    size_t n = strlen(at);
    while (n > 0 && at[n - 1] == '\n') at[--n] = '\0';
    int lines = 0;
    for (char *p = at + n; p > at; p--)
        if (p[-1] == '\n' && ++lines == LOG_LINES) {
            at = p;
            break;
        }
    return at;
}

static void read_log(autopsy *a) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/log.txt", a->out);
    char *text = a->out[0] && a->n ? read_file_tail(path, LOG_BYTES) : NULL;
    if (text) a->log = strdup(find_attempt_lines(text, a->list[a->at].number));
    free(text);
}

enum { PIDS_MOST = 256 };
typedef struct pid_list {
    int pid[PIDS_MOST];
    size_t n;
} pid_list;

static bool append_rank_pid(void *ctx, const bt_row *r) {
    pid_list *l = ctx;
    if (l->n < PIDS_MOST) l->pid[l->n++] = (int)integer_column(r->nums[0], 0);
    return l->n < PIDS_MOST;
}

/* Reads the kernel's messages about the ranks of the attempt, if this user may read them. Lines about other
 * programs are no evidence. */
static void read_kernel_messages(autopsy *a) {
    const attempt *t = &a->list[a->at];
    char sql[200];
    pid_list pids = {.n = 0};
    bt_err ignored = BT_ERR_INIT;
    snprintf(sql, sizeof sql,
             "SELECT k.pid FROM ranks k JOIN runs r ON r.run = k.run AND r.host = k.host WHERE "
             "k.run = ?1 AND k.attempt = %d",
             t->number);
    if (query_autopsy(a, sql, append_rank_pid, &pids, &ignored) != BT_OK || isnan(t->started_s))
        return;
    const double age_s = (double)bt_wall_us() / 1e6 - t->started_s;
    const int64_t since_ns = bt_now_ns() - (int64_t)(age_s * 1e9);
    const int n = bt_memory_kill_lines(pids.pid, pids.n, since_ns, a->oom, OOM_LINES);
    a->n_oom = n > 0 ? n : 0;
}

static void read_run_folder(autopsy *a) {
    struct statvfs v;
    a->free_mib = NAN;
    if (!ran_on_this_host(a)) return;
    read_log(a);
    if (a->n && strcmp(a->list[a->at].kind, "out of memory") == 0) read_kernel_messages(a);
    if (a->out[0] && statvfs(a->out, &v) == 0)
        a->free_mib = (double)v.f_bavail * (double)v.f_frsize / 1048576;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns what ended the attempt; "": it is running. */
static const char *cause_of_end(const autopsy *a, const attempt *t) {
    const bool newest = t == &a->list[a->n - 1];
    if (t->ended[0]) return t->ended;
    if (t->kind[0]) return t->kind;
    if (!isnan(t->ended_s)) return "in order";
    return newest && a->view->head.live ? "" : bt_run_states[BT_STATE_LOST].name;
}

static bool put_event(void *ctx, const bt_row *r) {
    bt_printout *o = ctx;
    bt_printout_row(o);
    bt_printout_num(o, "time_s", NULL, r->nums[0], BT_UNIT_NONE);
    bt_printout_str(o, "kind", NULL, r->cells[1]);
    bt_printout_str(o, "title", NULL, r->cells[2]);
    bt_printout_num(o, "rank", NULL, r->nums[3], BT_UNIT_NONE);
    bt_printout_num(o, "step", NULL, r->nums[4], BT_UNIT_NONE);
    bt_printout_end(o);
    bt_printout_line(o, "  %8.1f s  %-13s %s\n", r->nums[0], bt_text_shown(r->cells[1]),
                     bt_text_shown(r->cells[2]));
    return true;
}

/* the newest events of the attempt, in ascending order, because the cause of the end is among the last ones */
static const char events_sql[] = "SELECT time_s, kind, title, rank, step FROM (SELECT * FROM "
                                 "events WHERE run = ?1 AND attempt = "
                                 "CAST(?2 AS INTEGER) AND kind NOT IN ('checkpoint', 'evaluation', "
                                 "'sample', 'profile') ORDER BY "
                                 "seq DESC LIMIT 12) ORDER BY seq";

static bt_code query_attempt_events(autopsy *a, const attempt *t, bt_row_fn fn, void *ctx,
                                    bt_err *err) {
    char number[16];
    snprintf(number, sizeof number, "%d", t->number);
    const char *const params[] = {a->run, number};
    return bt_db_query(a->db,
                       &(bt_query){.sql = events_sql, .params = params, .n_params = 2, .max_s = 10},
                       fn, ctx, err);
}

static bool put_rank_evidence(void *ctx, const bt_row *r) {
    bt_printout *o = ctx;
    bt_printout_row(o);
    bt_printout_num(o, "rank", NULL, r->nums[0], BT_UNIT_NONE);
    bt_printout_str(o, "host", NULL, r->cells[1]);
    bt_printout_num(o, "pid", NULL, r->nums[2], BT_UNIT_NONE);
    bt_printout_num(o, "steps", NULL, r->nums[3], BT_UNIT_NONE);
    bt_printout_end(o);
    bt_printout_line(o, "  rank %.0f: %s, pid %.0f, last recorded step %s\n", r->nums[0],
                     r->cells[1] ? bt_text_shown(r->cells[1]) : "?", r->nums[2],
                     r->cells[3] ? bt_text_shown(r->cells[3]) : "none");
    return true;
}

static const char rank_sql[] =
    "SELECT k.rank, k.host, k.pid, (SELECT max(step) + 1 FROM rank_steps s WHERE s.run = k.run AND "
    "s.attempt = k.attempt AND s.rank = k.rank) FROM ranks k WHERE k.run = ?1 AND k.attempt = "
    "CAST(?2 "
    "AS INTEGER) AND (CAST(?3 AS INTEGER) < 0 OR k.rank = CAST(?3 AS INTEGER)) ORDER BY k.rank "
    "LIMIT "
    "16";

static bt_code query_attempt_ranks(autopsy *a, const attempt *t, bt_row_fn fn, void *ctx,
                                   bt_err *err) {
    char number[16], rank[16];
    snprintf(number, sizeof number, "%d", t->number);
    snprintf(rank, sizeof rank, "%d", t->rank);
    const char *const params[] = {a->run, number, rank};
    return bt_db_query(a->db,
                       &(bt_query){.sql = rank_sql, .params = params, .n_params = 3, .max_s = 10},
                       fn, ctx, err);
}

static void put_evidence_lines(bt_printout *o, const char *text) {
    char plain[1100];
    while (text && *text) {
        const size_t n = strcspn(text, "\n");
        char one[1024];
        snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), text);
        bt_text_plain(plain, sizeof plain, one);
        if (plain[0]) bt_printout_line(o, "  %s\n", plain);
        text += n + (text[n] == '\n');
    }
}

static void put_cause_and_remedy(bt_printout *o, const autopsy *a) {
    const bt_view_head *h = &a->view->head;
    const bt_view_trouble *t = &h->trouble;
    char line[200];
    bt_printout_str(o, "run", NULL, a->run);
    bt_printout_str(o, "state", NULL, bt_run_states[h->state].name);
    bt_printout_str(o, "what", NULL, t->any ? t->what : NULL);
    bt_printout_str(o, "why", NULL, t->any ? t->why : NULL);
    bt_printout_num(o, "when_s", NULL, t->any ? t->when_s : NAN, BT_UNIT_NONE);
    bt_printout_int(o, "step", NULL, h->newest_step);
    bt_printout_str(o, "advice", NULL, t->any ? t->advice : NULL);
    bt_printout_str(o, "command", NULL, t->any && t->command[0] ? t->command : NULL);
    if (!t->any) {
        bt_printout_line(o, "%s: %s, nothing ended it\n", bt_text_shown(a->run),
                         bt_run_states[h->state].name);
        return;
    }
    bt_printout_line(o, "%s: %s\n", bt_text_shown(a->run),
                     bt_text_shown(bt_view_trouble_line(t, line, sizeof line)));
    if (t->why[0]) bt_printout_line(o, "  why      %s\n", bt_text_shown(t->why));
    if (t->advice[0]) bt_printout_line(o, "  do       %s\n", bt_text_shown(t->advice));
    if (t->command[0]) bt_printout_line(o, "  command  %s\n", bt_text_shown(t->command));
}

static bt_code put_evidence(bt_printout *o, autopsy *a, const attempt *t, bt_err *err) {
    bt_printout_line(o, "\nattempt %d: %s\n", t->number,
                     cause_of_end(a, t)[0] ? bt_text_shown(cause_of_end(a, t)) : "still running");
    bt_printout_rows(o, "who");
    bt_code code = query_attempt_ranks(a, t, put_rank_evidence, o, err);
    bt_printout_rows_end(o, "");
    if (t->places[0]) bt_printout_line(o, "  when it ended %s\n", bt_text_shown(t->places));
    bt_printout_rows(o, "events");
    if (code == BT_OK) code = query_attempt_events(a, t, put_event, o, err);
    bt_printout_rows_end(o, "");
    return code;
}

static bt_code print_attempt(bt_printout *o, autopsy *a, const attempt *t, bool evidence,
                             bt_err *err) {
    char when[32];
    bt_code code = BT_OK;
    bt_printout_row(o);
    bt_printout_int(o, "attempt", "attempt", t->number);
    bt_printout_str(o, NULL, "began", bt_cli_when(when, t->started_s));
    bt_printout_int(o, "ranks", "ranks", t->world_size);
    bt_printout_int(o, "from_step", NULL, t->from_step);
    bt_printout_int(o, NULL, "from step", t->from_step + 1);
    bt_printout_int(o, "last_step", NULL, t->last_step);
    bt_printout_cellf(o, "last step", t->last_step < 0 ? "-" : "%lld", (long long)t->last_step + 1);
    bt_printout_num(o, "started_s", NULL, t->started_s, BT_UNIT_NONE);
    bt_printout_num(o, "ended_s", NULL, t->ended_s, BT_UNIT_NONE);
    bt_printout_str(o, "reason", NULL, t->began);
    bt_printout_str(o, "exit_kind", NULL, t->kind);
    bt_printout_str(o, "ended_by", "ended by", cause_of_end(a, t));
    if (o->json && t->rank >= 0) bt_json_int(&o->j, "rank", t->rank);
    if (o->json && t->places[0]) bt_json_str(&o->j, "places", t->places);
    if (o->json && evidence) code = put_evidence(o, a, t, err);
    bt_printout_end(o);
    return code;
}

static bt_code print_autopsy(autopsy *a, bool json, bool all, bt_err *err) {
    bt_printout o;
    bt_code code = BT_OK;
    bt_printout_begin(&o, json);
    bt_printout_version(&o);
    put_cause_and_remedy(&o, a);
    if (a->n) bt_printout_line(&o, "\n");
    bt_printout_rows(&o, "attempts");
    for (int i = 0; i < a->n && code == BT_OK; i++)
        code = print_attempt(&o, a, &a->list[i], all || i == a->at, err);
    bt_printout_rows_end(&o, "  ");
    for (int i = 0; i < a->n && code == BT_OK && !json; i++)
        if (all || i == a->at) code = put_evidence(&o, a, &a->list[i], err);
    if (a->n_oom) bt_printout_line(&o, "\nthe kernel\n");
    if (json) bt_json_array(&o.j, "kernel");
    for (int i = 0; i < a->n_oom; i++) {
        if (json) bt_json_str(&o.j, NULL, a->oom[i]);
        bt_printout_line(&o, "  %s\n", bt_text_shown(a->oom[i]));
    }
    if (json) bt_json_end(&o.j, ']');
    bt_printout_str(&o, "log", NULL, a->log);
    bt_printout_num(&o, "free_mib", NULL, a->free_mib, BT_UNIT_MIB);
    if (a->log && a->log[0] && !json) {
        bt_printout_line(&o, "\nlast lines of attempt %d in %s/log.txt\n", a->list[a->at].number,
                         bt_text_shown(a->out));
        put_evidence_lines(&o, a->log);
    }
    if (a->n && !ran_on_this_host(a) && a->host[0] && a->out[0])
        bt_printout_line(&o, "\nits folder is on %s: the log is read there\n",
                         bt_text_shown(a->host));
    if (a->n && a->free_mib < 64)
        bt_printout_line(&o, "\nthe disk of its checkpoints has %.0f MiB left (%s)\n", a->free_mib,
                         bt_text_shown(a->out));
    return bt_printout_finish(&o, code, err);
}

/* ---- command --------------------------------------------------------------------------------- */

static bt_code cmd_autopsy(bt_call *call, bt_err *err) {
    autopsy_cfg *cfg = call->cfg;
    const char *word = call->words[0];
    char name[BT_NAME_MAX];
    autopsy *a = calloc(1, sizeof *a);
    if (!a) return bt_fail(err, BT_NOMEM, "no memory for the autopsy");
    bt_code code = bt_cli_open(&a->db, cfg->store, err);
    if (code == BT_OK) code = bt_db_run(a->db, word, name, err);
    a->run = name;
    if (code == BT_OK) code = load_autopsy(a, err);
    if (code == BT_OK) read_run_folder(a);
    if (code == BT_OK) code = print_autopsy(a, cfg->json, cfg->all, err);
    bt_view_close(a->view);
    bt_db_close(a->db);
    free(a->list);
    free(a->log);
    free(a);
    return code;
}

const bt_command bt_cmd_autopsy = {
    .name = "autopsy",
    .summary = "why a run ended, with evidence and remedy",
    .args = "RUN",
    .examples = "bitrain autopsy last # the newest run\n"
                "bitrain autopsy abl-3 --all # the evidence of every attempt\n"
                "bitrain autopsy abl-3 --json | jq .why\n",
    .options = BT_OPTION_SET(autopsy_opts, autopsy_cfg),
    .max_words = 1,
    .no_word = "no run given (`bitrain runs` lists them, `bitrain autopsy last` looks into "
               "the newest)",
    .run = cmd_autopsy,
};
