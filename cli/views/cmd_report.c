/* cmd_report.c - `bitrain report RUN -o FILE`: writes a run's dashboard to one HTML file that needs no server. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/given_path.h"
#include "cli/common/progress.h"
#include "engine/base/tables/metric.h"
#include "store/store.h"
#include "web/api/report.h"

typedef struct report_cfg {
    char store[1024], out[1024];
    bool force;
} report_cfg;

static const bt_opt report_opts[] = {
    BT_ROW_TEXT(report_cfg, out, "--out", "", "file to write (default: standard output)"),
    BT_ROW_FLAG(report_cfg, force, "--force", "replace a file that exists"),
    BT_ROW_STORE(report_cfg),
};

static bt_code cmd_report(bt_call *call, bt_err *err) {
    report_cfg *cfg = call->cfg;
    const char *word = call->words[0];
    char store[1024], size[40];
    bt_text page;
    bt_out_text file;
    bt_progress bar;
    if (!cfg->out[0] && isatty(STDOUT_FILENO))
        return bt_fail(err, BT_ARG,
                       "a report is a page for browsers: give it a file (-o %.64s.html)",
                       bt_name_ok(word) ? word : "report");
    BT_TRY(bt_store_path(store, sizeof store, cfg->store, err));
    BT_TRY(bt_out_text_open(&file, cfg->out, cfg->force, err));
    bt_text_init(&page);
    bt_progress_begin(&bar, false);
    bt_code code = bt_report(&page, store, word, &(bt_store_progress){bt_progress_of, &bar}, err);
    bt_progress_end(&bar);
    if (code == BT_OK && fwrite(page.data, 1, page.len, file.to) != page.len)
        code = bt_fail_errno(err, BT_IO, errno, "cannot write the report");
    code = bt_out_text_close(&file, code, err);
    if (code == BT_OK && cfg->out[0])
        fprintf(stderr, "%s in '%s': open it in a browser, no server needed\n",
                bt_metric_format(size, sizeof size, (double)page.len, BT_UNIT_BYTES), cfg->out);
    bt_text_release(&page);
    return code;
}

const bt_command bt_cmd_report = {
    .name = "report",
    .summary = "a run as one HTML file with the dashboard's charts; opens offline",
    .args = "RUN",
    .examples = "bitrain report demo -o demo.html # then open demo.html\n"
                "bitrain report last > newest.html\n",
    .options = BT_OPTION_SET(report_opts, report_cfg),
    .max_words = 1,
    .no_word = "no run given (`bitrain runs` lists them, 'last' is the newest)",
    .run = cmd_report,
};
