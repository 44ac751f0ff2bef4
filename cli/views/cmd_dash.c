/* cmd_dash.c - `bitrain dash`: starts the web dashboard. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/loopback.h"
#include "cli/common/run_folder.h"
#include "cli/common/start_run.h"
#include "cli/common/token_file.h"
#include "engine/base/os/own_process.h"
#include "engine/base/system/hangup.h"
#include "monitor/job/launch/detach.h"
#include "store/store.h"
#include "web/web.h"

typedef struct dash_cfg {
    char store[1024], host[128], allow[512], socket[108];
    int64_t port;
    bool control, query, json;
} dash_cfg;

static const bt_opt dash_opts[] = {
    BT_ROW_INT(dash_cfg, port, "--port", "8158", 0, 65535, NULL, "port (0: any free one)"),
    BT_ROW_TEXT(dash_cfg, host, "--host", "127.0.0.1", "address to listen on"),
    {"allow_host", "--allow-host", BT_OPT_TEXT, BT_FIELD(dash_cfg, allow), "", 0, 0, NULL, NULL,
     "additional host names under which browsers may reach this page, separated by commas"},
    BT_ROW_TEXT(dash_cfg, socket, "--socket", "",
                "listen on this Unix socket, which only you can open, instead of a port"),
    {"enable_query", "--enable-query", BT_OPT_BOOL, BT_FIELD(dash_cfg, query), "false", 0, 0, NULL,
     NULL, "accept read-only SQL at /api/v1/query (10 000 rows, 2 s)"},
    BT_ROW_FLAG(dash_cfg, control, "--control",
                "show buttons that start, control, resume, tag, annotate and remove runs"),
    BT_ROW_FLAG(dash_cfg, json, "--json", "print address and token as one JSON object"),
    BT_ROW_STORE(dash_cfg),
};

static void print_dash_mode(const dash_cfg *c) {
    fprintf(stderr, "%s; Ctrl-C ends it\n",
            c->control ? "pages may start, steer, resume, tag, note and remove runs" : "read-only");
}

/* A Unix socket has no URL, so this prints the ssh command that forwards a local port to it. */
static void print_socket(const dash_cfg *c) {
    char node[128] = "NODE", path[PATH_MAX] = "";
    bt_text out;
    bt_json j;
    if (c->socket[0] != '/' && !realpath(c->socket, path)) path[0] = '\0';
    const char *shown = path[0] ? path : c->socket;
    gethostname(node, sizeof node - 1);
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "socket", shown);
    bt_json_bool(&j, "control", c->control);
    bt_json_end(&j, '}');
    printf("%s\n", c->json ? bt_text_str(&out) : shown);
    fflush(stdout);
    bt_text_release(&out);
    fprintf(stderr,
            "from your own machine:  ssh -L 8158:%s %s   then open http://localhost:8158/ there "
            "(no token: only you may open the socket)\n",
            shown, node);
    print_dash_mode(c);
}

static void print_dash_address(const dash_cfg *c, const bt_web *web, const char *token_file) {
    const char *shown = strcmp(c->host, "0.0.0.0") == 0 || strcmp(c->host, "::") == 0 ? "localhost"
                                                                                      : c->host;
    const char *ssh = getenv("SSH_CONNECTION"), *open = strchr(shown, ':') ? "[" : "",
               *close = *open ? "]" : "";
    char node[128] = "NODE", url[320];
    bt_text out;
    bt_json j;
    snprintf(url, sizeof url, "http://%s%s%s:%d/#token=%s", open, shown, close, bt_web_port(web),
             bt_web_token(web));
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "url", url);
    bt_json_int(&j, "port", bt_web_port(web));
    bt_json_str(&j, "token", bt_web_token(web));
    bt_json_str(&j, "token_file", token_file);
    bt_json_bool(&j, "control", c->control);
    bt_json_end(&j, '}');
    printf("%s\n", c->json ? bt_text_str(&out) : url);
    fflush(stdout);
    bt_text_release(&out);
    if (ssh && *ssh) {
        gethostname(node, sizeof node - 1);
        fprintf(
            stderr,
            "from your own machine:  ssh -L %d:127.0.0.1:%d %s   then open that address there\n",
            bt_web_port(web), bt_web_port(web), node);
    }
    print_dash_mode(c);
}

/* Accepts a missing database, which may be created later, and a locked one; refuses a file that is not a database of
 * bitrain. */
static bt_code check_store(const char *store, bt_err *err) {
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_db_open(&db, store, &why);
    bt_db_close(db);
    if (code == BT_FORMAT) *err = why;
    return code == BT_FORMAT ? code : BT_OK;
}

/* ctx: path of the database. A run that cannot start reports its error within a second. */
static bt_code resume_from_page(void *ctx, const char *run, bt_err *err) {
    const char *words[] = {"train", "--resume", run, "--store", ctx};
    return bt_job_detach(sizeof words / sizeof *words, words, 1, err);
}

static bt_code remove_run_from_page(void *ctx, const char *run, bool checkpoints, char *reply,
                                    size_t size, bt_err *err) {
    return bt_run_remove(ctx, run, checkpoints, reply, size, err);
}

static bt_code start_from_page(void *ctx, int n, const char *const *words, char *name,
                               bt_err *err) {
    return bt_cli_start_run(ctx, n, words, name, 1, err);
}

static bt_code cmd_dash(bt_call *call, bt_err *err) {
    dash_cfg *c = call->cfg;
    char store[1024], token_file[1024] = "";
    BT_TRY(bt_address_without_port(c->host, "--host", err));
    BT_TRY(bt_store_path(store, sizeof store, c->store, err));
    BT_TRY(check_store(store, err));
    /* blocked before any thread exists, so that all threads inherit the mask */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    bt_hangup_add(&ends);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    bt_web *web = NULL;
    bt_web_cfg cfg = {.store = store,
                      .host = c->host,
                      .port = (int)c->port,
                      .socket = c->socket,
                      .control = c->control,
                      .query_program = c->query ? bt_program_file() : NULL,
                      .resume = resume_from_page,
                      .resume_ctx = store,
                      .remove = remove_run_from_page,
                      .start = start_from_page,
                      .allow_hosts = c->allow,
                      .token = getenv("BITRAIN_DASH_TOKEN")};
    BT_TRY(bt_web_start(&web, &cfg, err));
    bt_code code = c->socket[0]
                       ? BT_OK
                       : bt_token_file_keep(store, "dash", bt_web_port(web), bt_web_token(web),
                                            token_file, sizeof token_file, err);
    if (code == BT_OK) {
        int got = 0;
        if (c->socket[0])
            print_socket(c);
        else
            print_dash_address(c, web, token_file);
        sigwait(&ends, &got);
        if (token_file[0]) unlink(token_file);
    }
    bt_web_stop(web);
    return code;
}

const bt_command bt_cmd_dash = {
    .name = "dash",
    .summary = "browser dashboard on 127.0.0.1:8158",
    .args = "",
    .examples =
        "bitrain dash # prints an address with a token: open it\n"
        "bitrain dash --port 0 --control # any free port, with buttons that steer live runs\n"
        "bitrain dash --socket ~/bt.sock # a socket that only you can open: for machines "
        "with other users\n",
    .word_hint = "the dashboard shows all runs: choose one there",
    .options = BT_OPTION_SET(dash_opts, dash_cfg),
    .run = cmd_dash,
};
