/* output.c - reads pipes line by line; stores errors that explain a failure. */
#include "monitor/job/launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/text.h"

#define LOG_LIMIT ((int64_t)64 << 20) /* maximum size of one run's log */

static void append_to_log(bt_output *o, const char *s, size_t n) {
    if (o->log < 0 || o->logged_bytes > LOG_LIMIT) return;
    o->logged_bytes += (int64_t)n;
    if (o->logged_bytes > LOG_LIMIT) {
        static const char end[] = "(the log is full: nothing more is written)\n";
        s = end;
        n = sizeof end - 1;
    }
    /* A full disk affects the log, not the run. */
    ssize_t k = write(o->log, s, n);
    (void)k;
}

void bt_output_reset(bt_output *o, int attempt) {
    o->n = 0;
    o->reported = false;
    o->code = BT_OK;
    o->rank = -1;
    o->signal = 0;
    o->node_lost = false;
    o->lost_node[0] = '\0';
    o->message[0] = o->last_line[0] = o->said[0] = '\0';
    o->said_state = o->notes = o->lines = 0;
    o->last_note[0] = '\0';
    char head[64];
    int n = snprintf(head, sizeof head, "--- attempt %d\n", attempt);
    append_to_log(o, head, (size_t)n);
}

void bt_output_open(bt_output *o, const char *log_path, int attempt) {
    memset(o, 0, sizeof *o);
    o->log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    bt_output_reset(o, attempt);
}

void bt_output_close(bt_output *o) {
    if (o->log >= 0) close(o->log);
    o->log = -1;
}

int bt_output_error_line(char *buf, size_t size, int rank, bt_code code, const char *message) {
    return snprintf(buf, size, "bitrain rank %d: error %d: %s\n", rank, (int)code, message);
}

#define HOSTS "'bitrain doctor --hosts FILE' tries every host"
#define SLOTS "two names in the file of --hosts lead to one machine, or it has too few slots"
#define FILE_SIZE "'ulimit -f' is less than the shared memory of a rank: raise it"
#define DESCRIPTORS "too few file descriptors: raise the limit, 'ulimit -n 1024'"

/* Lines that contain the cause of a failure, and the remedy. ssh, or the remote shell, names the reason why a host
 * cannot be used; mpirun then prints a list of guesses. */
static const struct {
    const char *part, *remedy;
} causes[] = {
    {"Host key verification failed", HOSTS},
    {"Permission denied (", HOSTS},
    {"orted: command not found", HOSTS},
    {"orted: No such file", HOSTS},
    {"orted: not found", HOSTS},
    {"prted: command not found", HOSTS},
    {"prted: No such file", HOSTS},
    {"prted: not found", HOSTS},
    {"ORTE_ERROR_LOG: Out of resource", DESCRIPTORS},
    {"PRTE ERROR: Out of resource", DESCRIPTORS},
    {"system limit on number of pipes", DESCRIPTORS},
    {"system limit exceeded on number of network connections", DESCRIPTORS},
    {"not enough space for",
     "shared memory or the temporary folder is full: free /dev/shm and TMPDIR"},
};

/* Returns the remedy for the cause that the line names, or NULL. Open MPI prints the error number of a failed system
 * call after a paragraph of guesses, and the cause of a failed map inside one. first: true if no line has named a cause
 * yet. */
static const char *find_launch_remedy(const char *line, bool first) {
    if (strstr(line, "File too large (errno")) return FILE_SIZE;
    if (strstr(line, "Your job failed to map")) return SLOTS;
    if (!first) return NULL;
    if (strncmp(line, "ssh: ", 5) == 0) return HOSTS;
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
        if (strstr(line, causes[i].part)) return causes[i].remedy;
    return NULL;
}

/* Keeps the first sentence, without the prefix "[host:pid] [[job],rank] ORTE_ERROR_LOG: ", or "PRTE ERROR: ", and
 * without its source file. */
static void store_failure_cause(bt_output *o, const char *line, const char *remedy) {
    static const char *const marks[] = {"ORTE_ERROR_LOG: ", "PRTE ERROR: "};
    const char *at = line + strspn(line, " "), *end = NULL;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !end; i++) {
        const char *mark = strstr(line, marks[i]);
        if (!mark) continue;
        at = mark + strlen(marks[i]);
        end = strstr(at, " in file ");
    }
    if (strncmp(at, "Error:", 6) == 0) at += 6 + strspn(at + 6, " ");
    if (!end) end = strstr(at, ". ");
    const int n = end ? (int)(end - at) : (int)strlen(at);
    snprintf(o->said, sizeof o->said, "%.*s (%s)", n < 150 ? n : 150, at, remedy);
    o->said_state = 2;
}

/* mpirun's notice of a killed rank */
static void read_death_notice(bt_output *o, const char *line) {
    int rank, pid, signal;
    char node[128];
    const char *notice = strstr(line, "process rank ");
    if (!notice || o->reported || o->signal ||
        sscanf(notice, "process rank %d with PID %d on node %127s exited on signal %d", &rank, &pid,
               node, &signal) != 4)
        return;
    o->rank = rank;
    o->signal = signal;
}

/* Parses "ORTE (or PRTE) has lost communication with a remote daemon." and the following lines with both nodes. */
static void read_node_notice(bt_output *o, const char *line) {
    if (strstr(line, "has lost communication with a remote daemon")) o->node_lost = true;
    const char *remote = strstr(line, "Remote daemon: "),
               *node = remote ? strstr(remote, " on node ") : NULL;
    if (!o->node_lost || !node || o->lost_node[0]) return;
    snprintf(o->lost_node, sizeof o->lost_node, "%.63s", node + strlen(" on node "));
    /* mpirun's first paragraph does not name the host, so a text with the host replaces it */
    if (strstr(o->said, "has lost communication with a remote daemon"))
        snprintf(o->said, sizeof o->said, "mpirun lost the connection to its daemon on '%s'",
                 o->lost_node);
}

static void inspect_output_line(bt_output *o, const char *line) {
    int rank = -1, code = 0, at = 0;
    const char *said = strstr(line, "bitrain rank ");
    if (said && sscanf(said, "bitrain rank %d: error %d: %n", &rank, &code, &at) == 2 && at > 0) {
        if (o->reported || code <= BT_OK || code >= BT_CODE_COUNT) return;
        o->reported = true;
        o->rank = rank;
        o->code = (bt_code)code;
        snprintf(o->message, sizeof o->message, "%s", said + at);
        return;
    }
    said = strstr(line, "bitrain: warning: ");
    if (!said) said = strstr(line, "bitrain: error: ");
    if (said) { /* every rank may report the same fault */
        const char *text = strchr(said + strlen("bitrain: "), ' ') + 1;
        if (o->note && o->notes < BT_OUTPUT_NOTES &&
            strncmp(text, o->last_note, sizeof o->last_note - 1) != 0) {
            o->notes++;
            snprintf(o->last_note, sizeof o->last_note, "%s", text);
            o->note(o->note_ctx, text);
        }
        return;
    }
    read_death_notice(o, line);
    read_node_notice(o, line);
    const char *remedy = find_launch_remedy(line, o->said_state == 0);
    if (remedy) store_failure_cause(o, line, remedy);
    /* Extracts mpirun's message about a job that never started: between its first two rulers, up to an empty line. */
    const bool ruler = strncmp(line, "----", 4) == 0;
    const char *word = line + strspn(line, " \t");
    if (o->said_state == 1 && (ruler || !*word))
        o->said_state = o->said[0] ? 2 : 1;
    else if (o->said_state == 0 && ruler)
        o->said_state = 1;
    else if (o->said_state == 1) {
        const size_t n = strlen(o->said);
        snprintf(o->said + n, sizeof o->said - n, "%s%s", n ? " " : "", word);
    }
    if (!ruler && line[0]) snprintf(o->last_line, sizeof o->last_line, "%s", line);
}

static void report_output_line(bt_output *o, const char *plain) {
    if (!o->on_line || !plain[strspn(plain, " \t")] || o->lines > BT_OUTPUT_LINES) return;
    if (o->lines++ == BT_OUTPUT_LINES)
        plain = "(further lines of this attempt are in log.txt only)";
    o->on_line(o->note_ctx, plain);
}

static void finish_output_line(bt_output *o) {
    char plain[sizeof o->line];
    o->line[o->n] = '\0';
    bt_text_plain(plain, sizeof plain, o->line);
    size_t n = strlen(plain);
    inspect_output_line(o, plain);
    report_output_line(o, plain);
    plain[n++] = '\n'; /* replaces the terminating byte */
    append_to_log(o, plain, n);
    o->n = 0;
}

/* Open MPI 5 prints the end of its notice of a killed rank, "signal 9 (Killed).", on a line of its own. */
static bool is_notice_continued(bt_output *o) {
    static const char end[] = " exited on";
    const size_t m = sizeof end - 1;
    o->line[o->n] = '\0';
    return o->n >= m && o->n + 2 < sizeof o->line && strcmp(o->line + o->n - m, end) == 0 &&
           strstr(o->line, "process rank ");
}

void bt_output_feed(bt_output *o, const char *data, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n') {
            if (is_notice_continued(o))
                o->line[o->n++] = ' ';
            else
                finish_output_line(o);
        } else if (o->n + 1 < sizeof o->line) {
            if (data[i] != '\r') o->line[o->n++] = data[i] ? data[i] : '?';
        }
    }
}

bool bt_output_drain(bt_output *o, int fd) {
    char buf[8192];
    for (int round = 0; round < 64; round++) {
        ssize_t n = read(fd, buf, sizeof buf);
        if (n > 0)
            bt_output_feed(o, buf, (size_t)n);
        else if (n == 0) {
            if (o->n) finish_output_line(o);
            return false;
        } else if (errno != EINTR)
            return true; /* EAGAIN */
    }
    return true;
}
