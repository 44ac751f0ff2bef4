/* control_client.c - connects, sends, and waits for one line with a time limit. */
#include "store/wire/control_client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/tables/verb.h"
#include "store/sql/sql.h"

static const int64_t PATIENCE_NS = 5000000000;
enum { ANSWER_BYTES = 16 * BT_CONTROL_LINE };

bt_code bt_control_word(char *out, size_t size, const char *text, bt_err *err) {
    size_t n = 0;
    if (!text[0]) return snprintf(out, size, "%%") < (int)size ? BT_OK : BT_ARG;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        const bool plain = *c > ' ' && *c != '#' && *c != '%' && *c != 127;
        if (n + 4 > size)
            return bt_fail(err, BT_ARG, "the text of %zu bytes is too long for a request",
                           strlen(text));
        n += (size_t)snprintf(out + n, size - n, plain ? "%c" : "%%%02X", *c);
    }
    return BT_OK;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void bt_control_unword(char *out, size_t size, const char *word) {
    size_t n = 0;
    if (strcmp(word, "%") == 0) word = "";
    for (const char *c = word; *c && n + 1 < size; c++) {
        const int high = *c == '%' ? hex_digit(c[1]) : -1, low = high >= 0 ? hex_digit(c[2]) : -1;
        out[n++] = low >= 0 ? (char)(high * 16 + low) : *c;
        if (low >= 0) c += 2;
        if (!out[n - 1]) out[n - 1] = ' ';
    }
    out[n] = '\0';
}

static bool is_blank_text(const char *text) { return text[strspn(text, " \t\r\n")] == '\0'; }

bt_code bt_control_line(char *out, size_t size, const char *verb, const char *value,
                        const char *who, bt_err *err) {
    char word[3 * BT_PROMPT_MAX + 8];
    if (value && bt_verb_find(verb) == BT_VERB_SAMPLE) {
        if (is_blank_text(value)) return bt_fail(err, BT_ARG, "the prompt is empty");
        if (strlen(value) > BT_PROMPT_MAX)
            return bt_fail(err, BT_ARG, "the prompt has %zu bytes, at most %d are possible",
                           strlen(value), BT_PROMPT_MAX);
        BT_TRY(bt_control_word(word, sizeof word, value, err));
        value = word;
    }
    if (snprintf(out, size, "%s%s%s #%s", verb, value ? " " : "", value ? value : "", who) >=
        (int)size)
        return bt_fail(err, BT_ARG, "'%.60s...' is too long", value ? value : verb);
    return BT_OK;
}

typedef struct record {
    char out[PATH_MAX], state[32], host[BT_HOST_MAX];
    bool imported, hub;
    int pid;
    long long steps;
} record;

static bool take_run_record(void *ctx, const bt_row *row) {
    record *r = ctx;
    if (row->cells[0] && strlen(row->cells[0]) < sizeof r->out) strcpy(r->out, row->cells[0]);
    snprintf(r->state, sizeof r->state, "%s", row->cells[1] ? row->cells[1] : "");
    snprintf(r->host, sizeof r->host, "%s", row->cells[2] ? row->cells[2] : "");
    r->pid = row->cells[3] ? (int)row->nums[3] : 0;
    r->steps = row->cells[4] ? (long long)row->nums[4] : 0;
    r->imported = row->nums[5] > 0;
    r->hub = row->nums[6] > 0;
    return false;
}

static bt_code read_run_record(bt_db *db, const char *name, record *r, bt_err *err) {
    *r = (record){0};
    return bt_db_query(
        db,
        &(bt_query){.sql =
                        "SELECT out_dir, state, host, pid, steps, EXISTS (SELECT 1 FROM attempts "
                        "WHERE run = ?1 AND reason = 'import'), EXISTS (SELECT 1 FROM facts "
                        "WHERE run = ?1 AND key = 'islands.settings') FROM runs WHERE run = "
                        "?1",
                    .params = &name,
                    .n_params = 1,
                    .max_rows = 1,
                    .max_s = 5},
        take_run_record, r, err);
}

/* Explains why no supervisor answers, and names the remedy for the run's state. */
static bt_code fail_as_not_live(bt_db *db, const char *name, const record *r, bt_err *err) {
    char here[BT_HOST_MAX] = "";
    bt_text store;
    bt_text_init(&store);
    bt_store_flag(&store, bt_db_path(db));
    const char *flag = bt_text_str(&store), *s = r->steps == 1 ? "" : "s";
    const bool ended = strcmp(r->state, "running") != 0 && strcmp(r->state, "paused") != 0 &&
                       strcmp(r->state, "lost") != 0;
    gethostname(here, sizeof here - 1);
    if (r->imported)
        bt_fail(err, BT_BUSY, "run '%s' is an imported record: no process trains it", name);
    else if (r->hub)
        bt_fail(err, BT_BUSY,
                "run '%s' is a hub of islands, which takes no requests (SIGTERM to its process %d "
                "on host '%s' ends it with a checkpoint; ctl steers the runs of its islands)",
                name, r->pid, r->host);
    else if (strcmp(r->state, "done") == 0)
        bt_fail(err, BT_BUSY,
                "run '%s' is not live: it has done its %lld step%s (to train it for as many again: "
                "bitrain train --resume %s --steps %lld%s)",
                name, r->steps, s, name, 2 * r->steps, flag);
    else if (ended)
        bt_fail(err, BT_BUSY,
                "run '%s' is not live: it %s after %lld step%s (to continue it: bitrain train "
                "--resume %s%s)",
                name, strcmp(r->state, "failed") == 0 ? "failed" : "was stopped", r->steps, s, name,
                flag);
    else if (r->pid <= 0 || strcmp(here, r->host) != 0)
        bt_fail(
            err, BT_BUSY,
            "run '%s' is not live on this host: its supervisor takes requests on host '%s' only",
            name, r->host);
    else if (kill(r->pid, 0) == 0 || errno != ESRCH)
        bt_fail(
            err, BT_BUSY,
            "run '%s' takes no requests now: its process %d begins or ends at this moment, or has "
            "no supervisor, as when mpirun starts 'bitrain train' (to stop it with a checkpoint: "
            "kill %d)",
            name, r->pid, r->pid);
    else
        bt_fail(err, BT_BUSY,
                "run '%s' is not live: its process %d has ended (to continue it: bitrain train "
                "--resume %s%s)",
                name, r->pid, name, flag);
    bt_text_release(&store);
    return BT_BUSY;
}

static bt_code find_control_socket(bt_db *db, const char *name, const record *r,
                                   char path[PATH_MAX], bt_err *err) {
    char file[PATH_MAX + 16];
    snprintf(file, sizeof file, "%s/control", r->out);
    FILE *f = r->out[0] ? fopen(file, "re") : NULL;
    path[0] = '\0';
    if (f) {
        if (!fgets(path, PATH_MAX, f)) path[0] = '\0';
        fclose(f);
    }
    path[strcspn(path, "\n")] = '\0';
    return path[0] ? BT_OK : fail_as_not_live(db, name, r, err);
}

static bt_code wait_for_socket(int fd, short what, int64_t until, const char *path, bt_err *err) {
    for (;;) {
        int64_t left = until - bt_now_ns();
        struct pollfd p = {fd, what, 0};
        int n = left > 0 ? poll(&p, 1, (int)(left / 1000000) + 1) : 0;
        if (n > 0) return BT_OK;
        if (n == 0) return bt_fail(err, BT_BUSY, "the run does not answer at '%s'", path);
        if (errno != EINTR) return bt_fail_errno(err, BT_IO, errno, "cannot wait for '%s'", path);
    }
}

static bt_code exchange_line(int fd, const char *path, const char *request, char *line, size_t size,
                             bt_err *err) {
    const int64_t until = bt_now_ns() + PATIENCE_NS;
    char out[BT_CONTROL_LINE];
    int n = snprintf(out, sizeof out, "%s\n", request);
    if (n < 0 || n >= (int)sizeof out || strchr(request, '\n'))
        return bt_fail(err, BT_ARG, "the request is too long or has more than one line");
    BT_TRY(wait_for_socket(fd, POLLOUT, until, path, err));
    if (send(fd, out, (size_t)n, MSG_NOSIGNAL) != n)
        return bt_fail_errno(err, BT_IO, errno, "cannot write to '%s'", path);
    for (size_t at = 0; at + 1 < size;) {
        BT_TRY(wait_for_socket(fd, POLLIN, until, path, err));
        ssize_t k = recv(fd, line + at, size - 1 - at, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return bt_fail(err, BT_BUSY,
                           "the run closed '%s' without an answer: it is ending, or has too many "
                           "requests at once (try again; 'bitrain show RUN' shows how it ended)",
                           path);
        at += (size_t)k;
        line[at] = '\0';
        char *end = strchr(line, '\n');
        if (!end) continue;
        *end = '\0';
        return BT_OK;
    }
    return bt_fail(err, BT_FORMAT, "the answer from '%s' is too long", path);
}

/* BT_NOTFOUND: no process listens on the socket. */
static bt_code connect_and_exchange(const char *path, const char *request, char *line, size_t size,
                                    bt_err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return bt_fail(err, BT_ARG, "socket path '%s' is too long", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create a socket");
    bt_code code;
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        code = exchange_line(fd, path, request, line, size, err);
    else if (errno == ENOENT || errno == ECONNREFUSED)
        code = bt_fail(err, BT_NOTFOUND, "the run is not live: no process listens at '%s'", path);
    else
        code = bt_fail_errno(err, BT_IO, errno, "cannot connect to '%s'", path);
    close(fd);
    return code;
}

static bt_code parse_reply_line(const char *line, char *reply, size_t size, bt_err *err) {
    int refused = 0, at = 0;
    if (strncmp(line, "ok", 2) == 0 && (line[2] == ' ' || line[2] == '\0')) {
        snprintf(reply, size, "%s", line[2] ? line + 3 : "");
        return BT_OK;
    }
    if (sscanf(line, "no %d %n", &refused, &at) == 1 && at > 0 && refused > BT_OK &&
        refused < BT_CODE_COUNT)
        return bt_fail(err, (bt_code)refused, "%s", line + at);
    return bt_fail(err, BT_FORMAT, "the answer of the run is neither 'ok' nor 'no'");
}

bt_code bt_control_call(const char *path, const char *request, char *reply, size_t size,
                        bt_err *err) {
    char line[ANSWER_BYTES];
    const bt_code code = connect_and_exchange(path, request, line, sizeof line, err);
    if (code == BT_NOTFOUND && err) err->code = BT_BUSY;
    if (code != BT_OK) return code == BT_NOTFOUND ? BT_BUSY : code;
    return parse_reply_line(line, reply, size, err);
}

bt_code bt_control_request(bt_db *db, const char *run, const char *request, char *reply,
                           size_t size, bt_err *err) {
    char name[BT_NAME_MAX], path[PATH_MAX], line[ANSWER_BYTES];
    record r;
    BT_TRY(bt_db_run(db, run, name, err));
    BT_TRY(read_run_record(db, name, &r, err));
    BT_TRY(find_control_socket(db, name, &r, path, err));
    const bt_code code = connect_and_exchange(path, request, line, sizeof line, err);
    /* A killed supervisor leaves its file behind. */
    if (code == BT_NOTFOUND) return fail_as_not_live(db, name, &r, err);
    BT_TRY(code);
    return parse_reply_line(line, reply, size, err);
}
