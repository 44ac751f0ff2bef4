/* train_detach.c - `bitrain train --detach`: runs the supervisor in the background. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/train_parts.h"
#include "engine/ckpt/ckpt.h"
#include "monitor/job/launch/detach.h"

/* A run that cannot start ends within this time; its last line is the error. */
#define PATIENCE_S 2.0

static void print_detached_run(const bt_train_plan *p) {
    if (p->cfg.run.json) {
        bt_text out;
        bt_json j;
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        bt_json_str(&j, "run", p->run);
        bt_json_str(&j, "state", "detached");
        bt_json_str(&j, "out", p->out);
        bt_json_end(&j, '}');
        puts(bt_text_str(&out));
        bt_text_release(&out);
        return;
    }
    bt_text store;
    bt_text_init(&store);
    bt_store_flag(&store, p->store);
    printf("run %s trains in the background and continues when this terminal is closed\n"
           "  watch it     bitrain top %s%s\n"
           "  stop it      bitrain ctl %s stop%s      (it saves a checkpoint first)\n"
           "  its log      %s/log.txt\n",
           p->run, p->run, bt_text_str(&store), p->run, bt_text_str(&store), p->out);
    bt_text_release(&store);
}

bt_code bt_train_detach(const bt_train_plan *p, int argc, char *const *argv, bt_err *err) {
    const char **words = calloc((size_t)argc + 4, sizeof *words);
    int n = 0;
    if (!words) return bt_fail(err, BT_NOMEM, "no memory for the command line");
    words[n++] = "train";
    /* before the words after '--', which are not options. --no-detach overrides a configuration file and the
     * environment */
    words[n++] = "--no-detach";
    const size_t name = bt_opt_find(p->opts.table, p->opts.n, "run.name");
    const bool given = strcmp(p->opts.where[name], "auto") != 0;
    if (!p->cfg.run.resume[0] &&
        !given) { /* the background process must use the name that was generated here */
        words[n++] = "--name";
        words[n++] = p->run;
    }
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--detach") != 0) words[n++] = argv[i];
    bt_code code = bt_ckpt_check(p->out, !p->resume && !p->from.dir[0], err);
    if (code == BT_OK) code = bt_train_inputs(p, NULL, err);
    if (code == BT_OK) code = bt_job_detach(n, words, PATIENCE_S, err);
    free(words);
    BT_TRY(code);
    print_detached_run(p);
    return BT_OK;
}
