/* sampling_opts.c - converts sampling settings and stop strings of a command line to the engine's structs. */
#include "cli/model/sampling_opts.h"

#include <string.h>

bt_sampling bt_sampling_of(const bt_sampling_opts *o) {
    return (bt_sampling){.temperature = o->temperature,
                         .top_k = (int)(o->top_k > 1 << 30 ? 0 : o->top_k),
                         .top_p = o->top_p,
                         .min_p = o->min_p,
                         .repetition_penalty = o->repeat_penalty,
                         .seed = (uint64_t)o->seed};
}

static bt_code unescape_line(bt_text *text, const char *s, size_t n, bt_err *err) {
    static const char names[] = "ntr\\", bytes[] = "\n\t\r\\";
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\\') {
            bt_text_putn(text, s + i, 1);
            continue;
        }
        const char *name = i + 1 < n ? strchr(names, s[++i]) : NULL;
        if (!name)
            return bt_fail(err, BT_ARG,
                           "stop string '%.*s': a backslash is followed by n, t, r or \\", (int)n,
                           s);
        bt_text_putn(text, &bytes[name - names], 1);
    }
    bt_text_putn(text, "", 1);
    return BT_OK;
}

bt_code bt_stops_of(const char *lines, bt_text *text, const char *stops[BT_STOPS_MAX], size_t *n,
                    bt_err *err) {
    size_t at[BT_STOPS_MAX];
    *n = 0;
    for (const char *p = lines; *p;) {
        const size_t len = strcspn(p, "\n");
        if (len && *n == BT_STOPS_MAX)
            return bt_fail(err, BT_ARG, "more than %d stop strings", BT_STOPS_MAX);
        if (len) {
            at[(*n)++] = text->len;
            BT_TRY(unescape_line(text, p, len, err));
        }
        p += len + (p[len] == '\n');
    }
    if (text->failed) return bt_fail(err, BT_NOMEM, "no memory for the stop strings");
    for (size_t i = 0; i < *n; i++) stops[i] = text->data + at[i];
    return BT_OK;
}
