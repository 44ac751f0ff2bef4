/* cmd_mcp.c - `bitrain mcp`: the Model Context Protocol over standard input and output, for programs of agents.
 *
 * Each line is a message of JSON-RPC 2.0. Calls of tools run one after another, each as a command of this program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/mcp/mcp_call.h"
#include "cli/mcp/mcp_tools.h"
#include "cli/version/version.h"
#include "engine/base/text.h"
#include "engine/data/io/json.h"

typedef struct mcp_cfg {
    char store[1024];
    bool control;
} mcp_cfg;

static const bt_opt mcp_opts[] = {
    BT_ROW_FLAG(mcp_cfg, control, "--control",
                "also offer the tools start and steer, which start, change and stop runs"),
    BT_ROW_STORE(mcp_cfg),
};

/* errors of JSON-RPC */
enum { NO_JSON = -32700, NO_REQUEST = -32600, NO_METHOD = -32601, WRONG_ARGUMENTS = -32602 };
enum { LINE_MOST = 4 << 20 };
/* versions of the protocol that differ in nothing that is used here, the newest first */
static const char *const protocols[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

typedef struct session {
    const mcp_cfg *cfg;
    json_t *id; /* of the request that is answered */
    bt_text out;
    bt_json j;
} session;

/* ---- responses ---- */

static void begin_response(session *s) {
    char *id = s->id ? json_dumps(s->id, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    bt_text_clear(&s->out);
    bt_json_begin(&s->j, &s->out);
    bt_json_object(&s->j, NULL);
    bt_json_str(&s->j, "jsonrpc", "2.0");
    bt_json_raw(&s->j, "id", id ? id : "null");
    free(id);
}

static bt_code end_response(session *s, bt_err *err) {
    bt_json_end(&s->j, '}');
    if (s->out.failed) return bt_fail(err, BT_NOMEM, "no memory for a response");
    puts(bt_text_str(&s->out));
    if (fflush(stdout) == 0) return BT_OK;
    return bt_fail_errno(err, BT_IO, errno, "cannot write to standard output");
}

static bt_code respond_error(session *s, int code, const char *message, bt_err *err) {
    begin_response(s);
    bt_json_object(&s->j, "error");
    bt_json_int(&s->j, "code", code);
    bt_json_str(&s->j, "message", message);
    bt_json_end(&s->j, '}');
    return end_response(s, err);
}

/* ---- methods ---- */

static bt_code answer_initialize(session *s, json_t *params, bt_err *err) {
    const char *wanted = json_string_value(json_object_get(params, "protocolVersion")),
               *version = protocols[0];
    for (size_t i = 0; wanted && i < sizeof protocols / sizeof *protocols; i++)
        if (strcmp(wanted, protocols[i]) == 0) version = protocols[i];
    begin_response(s);
    bt_json_object(&s->j, "result");
    bt_json_str(&s->j, "protocolVersion", version);
    bt_json_object(&s->j, "capabilities");
    bt_json_object(&s->j, "tools");
    bt_json_end(&s->j, '}');
    bt_json_end(&s->j, '}');
    bt_json_object(&s->j, "serverInfo");
    bt_json_str(&s->j, "name", "bitrain");
    bt_json_str(&s->j, "version", bt_version_text());
    bt_json_end(&s->j, '}');
    bt_json_str(
        &s->j, "instructions",
        "bitrain trains language models and records each run in a database. list_runs names "
        "the runs, query reads any number by SQL, metrics and settings explain the keys.");
    bt_json_end(&s->j, '}');
    return end_response(s, err);
}

static bt_code list_tools(session *s, bt_err *err) {
    begin_response(s);
    bt_json_object(&s->j, "result");
    bt_mcp_tools_list(&s->j, s->cfg->control);
    bt_json_end(&s->j, '}');
    return end_response(s, err);
}

/* A failed command is a result with isError, so that the agent reads the message. */
static bt_code respond_text(session *s, const char *text, bool failed, bt_err *err) {
    begin_response(s);
    bt_json_object(&s->j, "result");
    bt_json_array(&s->j, "content");
    bt_json_object(&s->j, NULL);
    bt_json_str(&s->j, "type", "text");
    bt_json_str(&s->j, "text", text);
    bt_json_end(&s->j, '}');
    bt_json_end(&s->j, ']');
    bt_json_bool(&s->j, "isError", failed);
    bt_json_end(&s->j, '}');
    return end_response(s, err);
}

static bt_code run_tool(session *s, const bt_mcp_words *words, bt_err *err) {
    bt_text out = {0}, said = {0};
    bt_err why = BT_ERR_INIT;
    int status = 0;
    const bt_code called = bt_mcp_call(words->word, s->cfg->store, &out, &said, &status, &why);
    bt_code code;
    if (called != BT_OK)
        code = respond_text(s, why.msg, true, err);
    else if (status != 0)
        bt_text_printf(&said, "(exit status %d)\n", status),
            code = respond_text(s, bt_text_str(&said), true, err);
    else
        code = respond_text(s, out.len ? bt_text_str(&out) : bt_text_str(&said), false, err);
    bt_text_release(&out);
    bt_text_release(&said);
    return code;
}

static bt_code call_tool(session *s, json_t *params, bt_err *err) {
    const char *name = json_string_value(json_object_get(params, "name"));
    json_t *arguments = json_object_get(params, "arguments");
    bt_mcp_words words = {0};
    bt_err why = BT_ERR_INIT;
    if (!name || (arguments && !json_is_object(arguments)))
        return respond_error(s, WRONG_ARGUMENTS,
                             "a call has the name of a tool, and arguments as an object", err);
    bt_code code = bt_mcp_tool_words(name, arguments, s->cfg->control, &words, &why);
    if (code == BT_NOMEM)
        code = bt_fail(err, BT_NOMEM, "%s", why.msg);
    else if (code != BT_OK)
        code = respond_error(s, WRONG_ARGUMENTS, why.msg, err);
    else
        code = run_tool(s, &words, err);
    bt_mcp_words_release(&words);
    return code;
}

static bt_code respond_to_message(session *s, json_t *message, bt_err *err) {
    const char *method = json_string_value(json_object_get(message, "method"));
    json_t *params = json_object_get(message, "params");
    s->id = json_object_get(message, "id");
    if (!method) /* a response to a request, of which this server sends none */
        return json_object_get(message, "result") || json_object_get(message, "error")
                   ? BT_OK
                   : respond_error(s, NO_REQUEST, "the message has no method", err);
    if (!s->id) return BT_OK; /* a notification */
    if (strcmp(method, "initialize") == 0) return answer_initialize(s, params, err);
    if (strcmp(method, "tools/list") == 0) return list_tools(s, err);
    if (strcmp(method, "tools/call") == 0) return call_tool(s, params, err);
    if (strcmp(method, "ping") != 0)
        return respond_error(s, NO_METHOD, "there is no such method", err);
    begin_response(s);
    bt_json_raw(&s->j, "result", "{}");
    return end_response(s, err);
}

/* ---- lines ---- */

/* Reads a line without its end; returns false at the end of the input. *whole: false if the line has more than
 * LINE_MOST bytes. */
static bool read_message(bt_text *line, bool *whole) {
    int c;
    bt_text_clear(line);
    *whole = true;
    while ((c = getchar_unlocked()) != EOF && c != '\n') {
        *whole = line->len < LINE_MOST;
        if (*whole) bt_text_putn(line, &(char){(char)c}, 1);
    }
    return c != EOF || line->len;
}

static bt_code serve_line(session *s, const bt_text *line, bool whole, bt_err *err) {
    json_t *message = NULL;
    bt_err why = BT_ERR_INIT;
    s->id = NULL;
    if (line->failed) return bt_fail(err, BT_NOMEM, "no memory for a message");
    if (strspn(bt_text_str(line), " \t\r") == line->len) return BT_OK;
    if (!whole) return respond_error(s, NO_JSON, "the message is longer than 4 MiB", err);
    if (bt_json_parse(&message, bt_text_str(line), line->len, &why) != BT_OK)
        return respond_error(s, NO_JSON, why.msg, err);
    const bt_code code = respond_to_message(s, message, err);
    json_decref(message);
    return code;
}

static bt_code run_mcp(bt_call *call, bt_err *err) {
    session s = {.cfg = call->cfg};
    bt_text line = {0};
    bool whole;
    bt_code code = BT_OK;
    if (isatty(STDIN_FILENO))
        fputs(
            "bitrain mcp: waiting for messages of an MCP client; end the input (Ctrl-D) to stop\n",
            stderr);
    while (code == BT_OK && read_message(&line, &whole)) code = serve_line(&s, &line, whole, err);
    bt_text_release(&line);
    bt_text_release(&s.out);
    return code;
}

const bt_command bt_cmd_mcp = {
    .name = "mcp",
    .summary =
        "commands as tools for agents: Model Context Protocol over standard input and output",
    .args = "",
    .examples =
        "bitrain mcp                                        # as a program of agents starts it\n"
        "bitrain mcp --control                              # it may also start, change and stop "
        "runs\n",
    .options = BT_OPTION_SET(mcp_opts, mcp_cfg),
    .run = run_mcp,
};
