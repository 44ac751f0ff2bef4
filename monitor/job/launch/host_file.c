/* host_file.c - parses a host file: one host per line, a name and settings such as slots=4; '#' begins a comment. */
#include "monitor/job/launch/host_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/ascii.h"
#include "engine/base/text.h"

enum { LINE_BYTES = 1024, SLOTS_MOST = 65536 };
#define BLANKS " \t\r\n"

typedef struct seen {
    int hosts, slots;
    bool all_say;
    int *each; /* (most) slots of the first hosts; NULL: not needed */
    int most;
} seen;

/* True for a host setting of Open MPI, which refuses a file with any other. */
static bool is_host_word(const char *w) {
    static const char *const names[] = {
        "slots=",     "count=",    "cpu=",      "max_slots=", "max-slots=", "max_count=",
        "max-count=", "cpus_max=", "cpus-max=", "username=",  "user_name=", "user-name="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(w, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* Returns the value of slots=N; -1 if missing. */
static int parse_slots(char *words, const char **wrong, const char **unknown) {
    int slots = -1;
    for (char *rest, *w = strtok_r(words, BLANKS, &rest); w; w = strtok_r(NULL, BLANKS, &rest)) {
        if (!is_host_word(w)) *unknown = w;
        if (strncmp(w, "slots=", 6) != 0 && strncmp(w, "count=", 6) != 0 &&
            strncmp(w, "cpu=", 4) != 0)
            continue;
        const char *value = strchr(w, '=') + 1;
        char *end;
        long n = strtol(value, &end, 10);
        if (end == value || *end || n < 1 || n > SLOTS_MOST)
            *wrong = w;
        else
            slots = (int)n;
    }
    return slots;
}

/* Open MPI accepts NAME, ADDRESS and USER@NAME. ssh would read a name that begins with '-' as an option. */
static bt_code check_host_name(const char *name, const char *path, int number, bt_err *err) {
    const char *colon = strchr(name, ':'), *host = strchr(name, '@');
    char plain[80];
    bt_text_plain(plain, sizeof plain, name);
    host = host ? host + 1 : name;
    if (colon && (strchr(colon + 1, ':') || name[0] == '['))
        return bt_fail(err, BT_ARG,
                       "host file '%s', line %d: '%s' is an IPv6 address, which Open MPI does not "
                       "take here: give it a name "
                       "in /etc/hosts",
                       path, number, plain);
    if (colon)
        return bt_fail(err, BT_ARG,
                       "host file '%s', line %d: '%s' is no host name: write '%.*s slots=%s' (a "
                       "port of ssh belongs into "
                       "~/.ssh/config)",
                       path, number, plain, (int)(colon - name), name,
                       colon[1] && !colon[1 + strspn(colon + 1, "0123456789")] &&
                               strlen(colon + 1) < 4
                           ? colon + 1
                           : "N");
    if (strchr(name, ','))
        return bt_fail(err, BT_ARG, "host file '%s', line %d: '%s': one host per line", path,
                       number, plain);
    for (const char *c = name; *c; c++)
        if (!bt_ascii_alnum(*c) && !strchr("._-@", *c)) host = "";
    if (!*host || *host == '-' || *name == '-')
        return bt_fail(err, BT_ARG, "host file '%s', line %d: '%s' is no host name", path, number,
                       plain);
    return BT_OK;
}

static bt_code parse_host_line(seen *s, char *line, const char *path, int number, bt_err *err) {
    const char *wrong = NULL, *unknown = NULL;
    line[strcspn(line, "#")] = '\0';
    size_t from = strspn(line, BLANKS), len = strcspn(line + from, BLANKS);
    if (len == 0) return BT_OK;
    char *name = line + from, *rest = name + len + (name[len] != '\0');
    name[len] = '\0';
    if (*name == '^') return BT_OK; /* an excluded host */
    if (strchr(name, '='))
        return bt_fail(err, BT_ARG,
                       "host file '%s', line %d: '%s' is no host (one 'host slots=N' per line)",
                       path, number, name);
    BT_TRY(check_host_name(name, path, number, err));
    int slots = parse_slots(rest, &wrong, &unknown);
    if (unknown)
        return bt_fail(
            err, BT_ARG,
            "host file '%s', line %d: '%.60s' is no setting of a host, as in '%.60s slots=4'", path,
            number, unknown, name);
    if (wrong)
        return bt_fail(
            err, BT_ARG,
            "host file '%s', line %d: %s must be a whole number from 1 to %d, as in '%s slots=4'",
            path, number, wrong, SLOTS_MOST, name);
    if (s->each && s->hosts < s->most) s->each[s->hosts] = slots;
    s->hosts++;
    if (slots < 0)
        s->all_say = false;
    else
        s->slots += slots < SLOTS_MOST - s->slots ? slots : SLOTS_MOST - s->slots;
    return BT_OK;
}

static char *skip_byte_order_mark(char *line, int number) {
    return number == 1 && strncmp(line, "\xEF\xBB\xBF", 3) == 0 ? line + 3 : line;
}

bt_code bt_host_file_check(const char *path, int ranks, const char *more, bt_err *err) {
    char line[LINE_BYTES];
    seen s = {.all_say = true};
    bt_code code = BT_OK;
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT)
        return bt_fail(err, BT_NOTFOUND,
                       "cannot read host file '%s': no such file (--hosts takes a file with one "
                       "'host slots=N' "
                       "per line, not names)",
                       path);
    if (!f) return bt_fail_errno(err, BT_NOTFOUND, errno, "cannot read host file '%s'", path);
    for (int number = 1; code == BT_OK && fgets(line, sizeof line, f); number++)
        code = parse_host_line(&s, skip_byte_order_mark(line, number), path, number, err);
    bool unread = ferror(f) != 0;
    fclose(f);
    if (code != BT_OK) return code;
    if (unread) return bt_fail(err, BT_IO, "cannot read host file '%s' (a folder?)", path);
    if (s.hosts == 0)
        return bt_fail(err, BT_ARG, "host file '%s' names no host (one 'host slots=N' per line)",
                       path);
    if (!s.all_say || ranks <= s.slots || bt_ascii_find(more, "oversubscribe")) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "host file '%s' has %d slot%s on %d host%s for %d ranks (use --ranks %d, or "
                   "slots=%d for every host)",
                   path, s.slots, s.slots == 1 ? "" : "s", s.hosts, s.hosts == 1 ? "" : "s", ranks,
                   s.slots, (ranks + s.hosts - 1) / s.hosts);
}

static bool check_all_slots(const char *path, seen *s) {
    char line[LINE_BYTES];
    bt_err why = BT_ERR_INIT;
    bt_code code = BT_OK;
    FILE *f = fopen(path, "re");
    s->all_say = true;
    for (int number = 1; f && code == BT_OK && fgets(line, sizeof line, f); number++)
        code = parse_host_line(s, skip_byte_order_mark(line, number), path, number, &why);
    if (f) fclose(f);
    return f && code == BT_OK && s->all_say;
}

/* If there are fewer slots than ranks, the ranks are distributed evenly: mpirun then oversubscribes, or refuses. */
int bt_host_file_ranks(const char *path, int *on, int ranks) {
    seen s = {.each = on, .most = ranks};
    const bool slots = check_all_slots(path, &s) && s.slots >= ranks;
    const int hosts = s.hosts < ranks ? s.hosts : ranks;
    int left = ranks, used = 0;
    for (; used < hosts && left > 0; used++) {
        const int even = (left + hosts - used - 1) / (hosts - used);
        if (!slots) on[used] = even;
        if (on[used] > left) on[used] = left;
        left -= on[used];
    }
    return used;
}

int bt_host_file_slots(const char *path) {
    seen s = {0};
    return check_all_slots(path, &s) ? s.slots : 0;
}

int bt_host_file_each(const char *path, int *slots, int most) {
    seen s = {.each = slots, .most = most};
    return check_all_slots(path, &s) && s.hosts <= most ? s.hosts : 0;
}

bt_code bt_host_file_for_mpirun(const char *path, const char *folder, char *out, size_t size,
                                bt_err *err) {
    char line[LINE_BYTES];
    bool plain = true;
    BT_TRY(bt_host_file_check(path, 0, "", err));
    FILE *f = fopen(path, "re");
    for (int number = 1; f && fgets(line, sizeof line, f); number++)
        plain &= !strchr(line, '\r') && skip_byte_order_mark(line, number) == line;
    if (!f || plain) {
        if (f) fclose(f);
        snprintf(out, size, "%s", path);
        return BT_OK;
    }
    snprintf(out, size, "%s/hosts.txt", folder);
    FILE *to = fopen(out, "we");
    rewind(f);
    for (int number = 1; to && fgets(line, sizeof line, f); number++) {
        char *text = skip_byte_order_mark(line, number);
        text[strcspn(text, "\r\n")] = '\0';
        fprintf(to, "%s\n", text);
    }
    const bool failed = !to || ferror(to) || ferror(f);
    fclose(f);
    if ((to && fclose(to) != 0) || failed)
        return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", out);
    return BT_OK;
}
