/* log_tail.c - shows the end of the run's log.txt under the events, if this machine can read it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor/tui/screens/screens.h"
#include "store/read/run_log.h"

static void find_log_file(bt_top *t) {
    char dir[PATH_MAX] = "";
    bt_err err = BT_ERR_INIT;
    snprintf(t->log.run, sizeof t->log.run, "%s", t->run);
    t->log.size = -1;
    t->log.n = 0;
    if (bt_db_run_folder(t->cfg.db, t->run, dir, sizeof dir, &err) != BT_OK || !dir[0] ||
        (size_t)snprintf(t->log.path, sizeof t->log.path, "%s/log.txt", dir) >= sizeof t->log.path)
        t->log.path[0] = 0;
}

static void split_log_lines(bt_top_log *l) {
    l->n = 0;
    for (char *p = l->text; *p;) {
        char *end = p + strcspn(p, "\n");
        bool last = !*end;
        *end = 0;
        if (l->n == BT_LOG_LINES)
            memmove(l->line, l->line + 1, (BT_LOG_LINES - 1) * sizeof *l->line), l->n--;
        if (*p) l->line[l->n++] = p;
        p = end + !last;
    }
}

void bt_top_log_load(bt_top *t) {
    bt_top_log *l = &t->log;
    struct stat st;
    if (strcmp(l->run, t->run) != 0) find_log_file(t);
    int fd = l->path[0] ? open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size != l->size) {
        int64_t from = st.st_size > BT_LOG_BYTES - 1 ? st.st_size - (BT_LOG_BYTES - 1) : 0;
        ssize_t n = pread(fd, l->text, BT_LOG_BYTES - 1, (off_t)from);
        l->text[n > 0 ? n : 0] = 0;
        for (ssize_t i = 0; i < n; i++)
            if (!l->text[i]) l->text[i] = ' ';
        /* the first line is cut */
        if (from > 0)
            memmove(l->text, l->text + strcspn(l->text, "\n"),
                    strlen(l->text + strcspn(l->text, "\n")) + 1);
        split_log_lines(l);
        l->size = st.st_size;
    }
    close(fd);
}

/* Draws the newest lines of at least this level, as many as fit. */
void bt_top_log_draw(bt_top *t, bt_rect r, bt_event_level least, bt_style title) {
    const bt_top_log *l = &t->log;
    bt_canvas_rule(&t->canvas, (bt_rect){r.x, r.y, r.w, 1}, title, "log", l->path);
    int shown = 0;
    for (int i = l->n - 1; i >= 0 && shown < r.h - 1; i--)
        shown += (int)bt_run_log_level(l->line[i]) >= (int)least;
    int y = r.y + shown;
    for (int i = l->n - 1; i >= 0 && y > r.y; i--) {
        int level = (int)bt_run_log_level(l->line[i]);
        if (level < (int)least) continue;
        bt_canvas_text(&t->canvas, r.x + 1, y--, r.w - 1,
                       (bt_style){.fg = level == BT_EV_ERROR  ? BT_C_BAD
                                        : level == BT_EV_WARN ? BT_C_WARN
                                                              : BT_C_LABEL},
                       l->line[i]);
    }
}
