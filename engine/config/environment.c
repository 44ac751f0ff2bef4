/* environment.c - compares environment variables with the names of settings and a few others. */
#include "engine/config/environment.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/opt.h"
#include "engine/base/text.h"
#include "engine/config/run_cfg.h"

/* Names that are not settings of a run. The last four are set for ranks and for the command of an alert. */
static const char *const others[] = {
    "BITRAIN_STORE",      "BITRAIN_MPIRUN",      "BITRAIN_THEME", "BITRAIN_LENSES",
    "BITRAIN_DASH_TOKEN", "BITRAIN_SERVE_TOKEN", "BITRAIN_CLOCK", "BITRAIN_RUN",
    "BITRAIN_STEP",       "BITRAIN_ALERT",
};
enum { OTHERS = sizeof others / sizeof *others, NAMES_MAX = 2 * BT_OPT_MAX + OTHERS };

/* Writes the names that have an effect to `names` and returns their number; generated names are stored in `space`. */
static size_t known_names(char space[][64], const char **names) {
    size_t n = 0, made = 0;
    for (size_t i = 0; i < OTHERS; i++) names[n++] = others[i];
    for (size_t i = 0; i < bt_run_opts_n; i++) {
        const char *forms[] = {bt_run_opts[i].key, bt_run_opts[i].flag};
        for (size_t k = 0; k < 2; k++) {
            if (!forms[k]) continue;
            bt_opt_env_name(space[made], sizeof space[0],
                            forms[k] + (k ? strspn(forms[k], "-") : 0));
            names[n++] = space[made++];
        }
    }
    return n;
}

bool bt_environment_read(const char *entry, bt_environment_name *out) {
    static const char prefix[] = "BITRAIN_", hooks[] = "BITRAIN_TEST_";
    char space[2 * BT_OPT_MAX][64];
    const char *names[NAMES_MAX];
    memset(out, 0, sizeof *out);
    if (strncmp(entry, prefix, sizeof prefix - 1) != 0) return true;
    if (strncmp(entry, hooks, sizeof hooks - 1) == 0) return true;
    const size_t length = strcspn(entry, "="), n = known_names(space, names);
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == length && memcmp(names[i], entry, length) == 0) return true;
    char name[sizeof out->name];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
             entry);
    bt_text_plain(out->name, sizeof out->name, name);
    const char *at[NAMES_MAX];
    /* without the common prefix, which would count as similarity */
    for (size_t i = 0; i < n; i++) at[i] = names[i] + sizeof prefix - 1;
    const char *near = bt_nearest(name + sizeof prefix - 1, at, n);
    if (near) snprintf(out->nearest, sizeof out->nearest, "%s%s", prefix, near);
    return false;
}
