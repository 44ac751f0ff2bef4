/* mcp_tools.c - descriptions of the tools, and arguments of a call as words of a command line. */
#include "cli/mcp/mcp_tools.h"

#include <stdlib.h>
#include <string.h>

typedef enum { TEXT, WHOLE, REAL, TEXTS, PAIRS } arg_type;
static const char *const type_names[] = {"string", "integer", "number", "array", "object"};

#define BT_TOOL(id, ...) TOOL_##id,
#define BT_TOOL_ARG(...)
enum {
#include "cli/mcp/mcp_tools.def"
    N_TOOLS
};
#undef BT_TOOL
#undef BT_TOOL_ARG

#define BT_TOOL(id, control, help, ...) \
    {#id, control, help, (const char *const[]){__VA_ARGS__, NULL}},
#define BT_TOOL_ARG(...)
static const struct tool {
    const char *name;
    bool control;
    const char *help, *const *words;
} tools[N_TOOLS] = {
#include "cli/mcp/mcp_tools.def"
};
#undef BT_TOOL
#undef BT_TOOL_ARG

#define BT_TOOL(...)
#define BT_TOOL_ARG(tool, name, type, place, required, help) \
    {TOOL_##tool, #name, type, place, required, help},
static const struct arg {
    int tool;
    const char *name;
    arg_type type;
    const char *place;
    bool required;
    const char *help;
} args[] = {
#include "cli/mcp/mcp_tools.def"
};
#undef BT_TOOL
#undef BT_TOOL_ARG
enum { N_ARGS = sizeof args / sizeof *args };

void bt_mcp_words_release(bt_mcp_words *w) {
    for (size_t i = 0; i < w->n; i++) free(w->word[i]);
    *w = (bt_mcp_words){0};
}

/* ---- descriptions ---- */

static void put_input_schema(bt_json *j, int tool) {
    bt_json_object(j, "inputSchema");
    bt_json_str(j, "type", "object");
    bt_json_object(j, "properties");
    for (int i = 0; i < N_ARGS; i++) {
        if (args[i].tool != tool) continue;
        bt_json_object(j, args[i].name);
        bt_json_str(j, "type", type_names[args[i].type]);
        bt_json_str(j, "description", args[i].help);
        if (args[i].type == TEXTS) {
            bt_json_object(j, "items");
            bt_json_str(j, "type", "string");
            bt_json_end(j, '}');
        }
        bt_json_end(j, '}');
    }
    bt_json_end(j, '}');
    bt_json_array(j, "required");
    for (int i = 0; i < N_ARGS; i++)
        if (args[i].tool == tool && args[i].required) bt_json_str(j, NULL, args[i].name);
    bt_json_end(j, ']');
    bt_json_bool(j, "additionalProperties", false);
    bt_json_end(j, '}');
}

void bt_mcp_tools_list(bt_json *j, bool control) {
    bt_json_array(j, "tools");
    for (int t = 0; t < N_TOOLS; t++) {
        if (tools[t].control && !control) continue;
        bt_json_object(j, NULL);
        bt_json_str(j, "name", tools[t].name);
        bt_json_str(j, "description", tools[t].help);
        put_input_schema(j, t);
        bt_json_object(j, "annotations");
        bt_json_bool(j, "readOnlyHint", !tools[t].control);
        bt_json_bool(j, "openWorldHint", false);
        bt_json_end(j, '}');
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

/* ---- the command line of a call ---- */

static bt_code add_command_word(bt_mcp_words *w, const char *text, size_t n, bt_err *err) {
    if (w->n == BT_MCP_WORDS)
        return bt_fail(err, BT_ARG, "a call has at most %d words", BT_MCP_WORDS);
    w->word[w->n] = strndup(text, n);
    if (!w->word[w->n]) return bt_fail(err, BT_NOMEM, "no memory for the arguments of a tool");
    w->n++;
    return BT_OK;
}

/* Appends the value as a word of the command or as an option. A word must not begin with '-', because the command would
 * parse it as an option. */
static bt_code add_argument_value(bt_mcp_words *w, const struct arg *a, const char *value,
                                  bt_err *err) {
    bt_text word = {0};
    const char *hole = strstr(a->place, "%s");
    if (!*a->place && *value == '-')
        return bt_fail(err, BT_ARG, "'%s' begins with '-', which no name here does", a->name);
    if (hole) {
        bt_text_putn(&word, a->place, (size_t)(hole - a->place));
        for (const char *c = value; *c; c++)
            bt_text_putn(&word, *c == '\'' ? "''" : c, *c == '\'' ? 2 : 1);
        bt_text_put(&word, hole + 2);
    } else if (*a->place) {
        bt_text_printf(&word, "%s=%s", a->place, value);
    } else {
        bt_text_put(&word, value);
    }
    bt_code code = word.failed ? bt_fail(err, BT_NOMEM, "no memory for the arguments of a tool")
                               : add_command_word(w, bt_text_str(&word), word.len, err);
    bt_text_release(&word);
    return code;
}

/* Appends a JSON string, number or boolean in the form that options have. key: NULL, or the key of a pair
 * "key=value". */
static bt_code add_json_scalar(bt_mcp_words *w, const struct arg *a, const char *key, json_t *v,
                               bt_err *err) {
    char *number = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);
    const char *text = number ? number : json_string_value(v);
    bt_text pair = {0};
    bt_code code = BT_OK;
    if (!text || json_is_object(v) || json_is_array(v) || json_is_null(v))
        code = bt_fail(err, BT_ARG, "'%s' holds something that is no text and no number", a->name);
    else if (key)
        bt_text_printf(&pair, "%s=%s", key, text);
    if (code == BT_OK && key) {
        code = add_command_word(w, a->place, strlen(a->place), err);
        if (code == BT_OK) code = add_command_word(w, bt_text_str(&pair), pair.len, err);
    } else if (code == BT_OK) {
        code = add_argument_value(w, a, text, err);
    }
    bt_text_release(&pair);
    free(number);
    return code;
}

static bool has_argument_type(const struct arg *a, const json_t *v) {
    switch (a->type) {
    case TEXT: return json_is_string(v);
    case WHOLE: return json_is_integer(v);
    case REAL: return json_is_number(v);
    case TEXTS: return json_is_array(v);
    case PAIRS: return json_is_object(v);
    }
    return false;
}

static bt_code add_tool_argument(bt_mcp_words *w, const struct arg *a, json_t *v, bt_err *err) {
    const char *key;
    json_t *one;
    size_t i;
    if (!has_argument_type(a, v))
        return bt_fail(err, BT_ARG, "'%s' is no %s", a->name, type_names[a->type]);
    if (a->type == PAIRS) {
        json_object_foreach(v, key, one) BT_TRY(add_json_scalar(w, a, key, one, err));
        return BT_OK;
    }
    if (a->type != TEXTS) return add_json_scalar(w, a, NULL, v, err);
    json_array_foreach(v, i, one) {
        if (!json_is_string(one))
            return bt_fail(err, BT_ARG, "'%s' is no array of strings", a->name);
        BT_TRY(add_json_scalar(w, a, NULL, one, err));
    }
    return BT_OK;
}

static bt_code check_names(int tool, json_t *arguments, bt_err *err) {
    const char *key;
    json_t *v;
    json_object_foreach(arguments, key, v) {
        int i = 0;
        while (i < N_ARGS && (args[i].tool != tool || strcmp(args[i].name, key) != 0)) i++;
        if (i == N_ARGS)
            return bt_fail(err, BT_ARG, "the tool %s has no argument '%.60s'", tools[tool].name,
                           key);
    }
    return BT_OK;
}

bt_code bt_mcp_tool_words(const char *tool, json_t *arguments, bool control, bt_mcp_words *out,
                          bt_err *err) {
    int t = 0;
    while (t < N_TOOLS && strcmp(tools[t].name, tool) != 0) t++;
    if (t == N_TOOLS) return bt_fail(err, BT_NOTFOUND, "there is no tool '%.60s'", tool);
    if (tools[t].control && !control)
        return bt_fail(err, BT_ARG,
                       "the tool %s changes runs: start the server with 'bitrain mcp --control'",
                       tools[t].name);
    BT_TRY(check_names(t, arguments, err));
    for (size_t i = 0; tools[t].words[i]; i++)
        BT_TRY(add_command_word(out, tools[t].words[i], strlen(tools[t].words[i]), err));
    for (int i = 0; i < N_ARGS; i++) {
        if (args[i].tool != t) continue;
        json_t *v = json_object_get(arguments, args[i].name);
        if (v && !json_is_null(v))
            BT_TRY(add_tool_argument(out, &args[i], v, err));
        else if (args[i].required)
            return bt_fail(err, BT_ARG, "the tool %s needs '%s'", tools[t].name, args[i].name);
    }
    return BT_OK;
}
