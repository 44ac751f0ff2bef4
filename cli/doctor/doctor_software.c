/* doctor_software.c - checks the metrics database, terminal and dashboard, and the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "engine/base/tables/metric.h"
#include "engine/config/environment.h"
#include "store/store.h"

static bool count_database_row(void *ctx, const bt_row *row) {
    snprintf(ctx, 32, "%s", row->cells[0] ? row->cells[0] : "0");
    return true;
}

static void report_database(bt_doctor *d) {
    bt_err err = BT_ERR_INIT;
    bt_db *db = NULL;
    bt_code code = bt_db_open(&db, d->store, &err);
    char runs[32] = "0";
    bool truncated;
    if (code == BT_OK)
        code = bt_db_query(db,
                           &(bt_query){.sql = "SELECT count(*) FROM runs",
                                       .max_rows = 1,
                                       .max_s = 10,
                                       .truncated = &truncated},
                           count_database_row, runs, &err);
    bt_db_close(db);
    if (code == BT_NOTFOUND)
        bt_doctor_report(d, BT_DOC_INFO, "store", "'%s' does not exist yet; the first run makes it",
                         d->store);
    else if (code != BT_OK)
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "store", "%s", err.msg),
                          "move the file away, or use --store FILE");
    else
        bt_doctor_report(d, BT_FINDING_OK, "store", "'%s' holds %s run%s", d->store, runs,
                         strcmp(runs, "1") == 0 ? "" : "s");
}

void bt_doctor_store(bt_doctor *d) {
    bt_err err = BT_ERR_INIT;
    bt_store_check look;
    char room[24];
    if (bt_store_check_folder(&look, d->store, &err) != BT_OK) {
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "store", "%s", err.msg),
                          "use --store FILE or BITRAIN_STORE");
        return;
    }
    /* SQLite before 3.51.3 could lose a commit if two connections wrote while the WAL was reset
     * (sqlite.org/wal.html). The lock file of bitrain permits only one writer. */
    bt_doctor_report(d, BT_FINDING_OK, "sqlite", "%s; one writer at a time, by lock file",
                     look.sqlite);
    if (look.refused)
        bt_finding_remedy(
            bt_doctor_report(d, BT_FINDING_FAIL, "store",
                             "'%s' is on %s, where SQLite's write-ahead log does not work",
                             look.folder, look.refused),
            "put the database on a local disk: --store FILE or BITRAIN_STORE; "
            "checkpoints (--out) may remain there");
    if (!look.writable)
        bt_finding_remedy(bt_doctor_report(d, BT_FINDING_FAIL, "store", "'%s' cannot be written",
                                           look.folder),
                          "use --store FILE or BITRAIN_STORE");
    bool little = look.free_bytes < (uint64_t)512 << 20;
    bt_finding *f = bt_doctor_report(
        d, little ? BT_FINDING_WARN : BT_FINDING_OK, "store", "%s free at '%s'",
        bt_metric_format(room, sizeof room, (double)look.free_bytes, BT_UNIT_BYTES), look.folder);
    if (little)
        bt_finding_remedy(f, "checkpoints go beside the database: make room, or use --out DIR");
    if (!look.refused) report_database(d);
}

void bt_doctor_screens(bt_doctor *d) {
#ifdef BITRAIN_HAVE_TUI
    bt_doctor_report(d, BT_FINDING_OK, "screens", "ncurses: bitrain top draws");
#else
    bt_finding_remedy(bt_doctor_report(d, BT_FINDING_WARN, "screens",
                                       "built without ncurses: bitrain top prints text only"),
                      "apt-get install libncurses-dev, build again");
#endif
#ifdef BITRAIN_HAVE_WEB
    bt_doctor_report(d, BT_FINDING_OK, "screens", "libmicrohttpd: bitrain dash serves");
#else
    bt_finding_remedy(bt_doctor_report(d, BT_FINDING_WARN, "screens",
                                       "built without the dashboard: no bitrain dash"),
                      "./bootstrap build, where there is a network");
#endif
    const char *term = getenv("TERM"), *locale = getenv("LC_ALL");
    if (!locale || !*locale) locale = getenv("LC_CTYPE");
    if (!locale || !*locale) locale = getenv("LANG");
    bool utf8 = locale && (strstr(locale, "UTF-8") || strstr(locale, "utf8") ||
                           strstr(locale, "UTF8") || strstr(locale, "utf-8"));
    if (!utf8)
        bt_finding_remedy(
            bt_doctor_report(d, BT_FINDING_WARN, "terminal",
                             "locale '%s' has no UTF-8: curves are drawn with plain letters",
                             locale ? locale : ""),
            "export LC_ALL=C.UTF-8");
    else
        bt_doctor_report(d, BT_FINDING_OK, "terminal", "%s, %s", term ? term : "no TERM", locale);
}

void bt_doctor_environment(bt_doctor *d) {
    for (char **e = environ; *e; e++) {
        bt_environment_name name;
        char shown[64];
        if (strncmp(*e, "BITRAIN_", 8) != 0) continue;
        if (bt_environment_read(*e, &name)) {
            snprintf(shown, sizeof shown, "%.*s", (int)strcspn(*e, "="), *e);
            bt_doctor_report(d, BT_DOC_INFO, "environment", "%s is set", shown);
            continue;
        }
        bt_finding *f = bt_doctor_report(d, BT_FINDING_WARN, "environment",
                                         "%s is unknown and has no effect", name.name);
        if (name.nearest[0])
            bt_finding_remedy(f, "did you mean %s?", name.nearest);
        else
            bt_finding_remedy(f, "'bitrain help options' lists the settings");
    }
}
