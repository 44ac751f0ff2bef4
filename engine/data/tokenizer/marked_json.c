/* marked_json.c - normaliser, pre-tokeniser and decoder of a tokenizer that marks spaces.
 *
 * Read: the normaliser Replace(" " by U+2581) with or without Prepend(U+2581), or the pre-tokeniser Metaspace; a Split
 * at spaces behind such a normaliser finds none (Gemma). The decoder is Metaspace or a sequence of Replace,
 * ByteFallback, Fuse and Strip. */
#include "engine/data/tokenizer/marked_json.h"

#include <string.h>

#include "engine/data/tokenizer/import_keys.h"

/* Returns step i of a sequence `key`, or o itself if o is a single step; NULL: no more steps. */
static json_t *step_at(json_t *o, const char *key, size_t i) {
    if (bt_import_absent(o)) return NULL;
    if (strcmp(bt_import_type(o), "Sequence") == 0)
        return json_array_get(json_object_get(o, key), i);
    return i ? NULL : o;
}

static bool text_is(json_t *o, const char *key, const char *value) {
    const char *s = json_string_value(json_object_get(o, key));
    return s && strcmp(s, value) == 0;
}

static bool is_type(json_t *o, const char *type) { return strcmp(bt_import_type(o), type) == 0; }

static bt_code refuse_step(const char *part, json_t *o, bt_err *err) {
    return bt_fail(err, BT_UNSUPPORTED,
                   "its %s has the step '%.40s' in a form that is not run here", part,
                   bt_import_type(o));
}

/* Returns true for a Replace of the text `from` by `to`. */
static bool replaces(json_t *o, const char *from, const char *to) {
    return is_type(o, "Replace") && text_is(json_object_get(o, "pattern"), "String", from) &&
           text_is(o, "content", to);
}

static bt_code read_marked_normalizer(json_t *o, bt_marked *m, bt_err *err) {
    static const char *const keys[] = {"type",    "normalizers", "prepend",
                                       "pattern", "content",     NULL};
    bool replaced = false, prepended = false;
    json_t *step;
    for (size_t i = 0; (step = step_at(o, "normalizers", i)); i++) {
        BT_TRY(bt_import_known_keys(step, "normalizer", keys, err));
        if (replaces(step, " ", BT_SPACE_MARK))
            replaced = true;
        else if (is_type(step, "Prepend") && text_is(step, "prepend", BT_SPACE_MARK))
            prepended = true;
        else
            return refuse_step("normaliser", step, err);
    }
    if (prepended && !replaced)
        return bt_fail(err, BT_UNSUPPORTED,
                       "its normaliser puts a mark before a text without "
                       "replacing spaces by marks");
    if (replaced) m->how = prepended ? BT_SPACES_PREPEND : BT_SPACES_REPLACE;
    return BT_OK;
}

static bt_code read_metaspace(json_t *o, bt_marked *m, bt_err *err) {
    static const char *const keys[] = {
        "type", "replacement", "add_prefix_space", "prepend_scheme", "str_rep", "split", NULL};
    json_t *scheme = json_object_get(o, "prepend_scheme"), *split = json_object_get(o, "split");
    BT_TRY(bt_import_known_keys(o, "pre_tokenizer", keys, err));
    if (!text_is(o, "replacement", BT_SPACE_MARK)) return refuse_step("pre-tokeniser", o, err);
    m->split = !json_is_false(split);
    m->how = json_is_false(json_object_get(o, "add_prefix_space")) ? BT_SPACES_NEVER
                                                                   : BT_SPACES_ALWAYS;
    if (!scheme) return BT_OK;
    for (m->how = BT_SPACES_FIRST; m->how < BT_SPACES_COUNT; m->how++)
        if (text_is(o, "prepend_scheme", bt_spaces_name(m->how))) return BT_OK;
    return refuse_step("pre-tokeniser", o, err);
}

static bt_code read_marked_pre_tokenizer(json_t *o, bt_marked *m, bt_err *err) {
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    json_t *step = step_at(o, "pretokenizers", 0);
    if (step && step_at(o, "pretokenizers", 1)) return refuse_step("pre-tokeniser", o, err);
    if (!step) return BT_OK;
    if (is_type(step, "Metaspace") && m->how == BT_SPACES_PLAIN)
        return read_metaspace(step, m, err);
    /* There are no spaces behind the normaliser. */
    if (is_type(step, "Split") && m->how != BT_SPACES_PLAIN &&
        text_is(json_object_get(step, "pattern"), "String", " "))
        return bt_import_known_keys(step, "pre_tokenizer", keys, err);
    return refuse_step("pre-tokeniser", step, err);
}

static bt_code read_marked_decoder(json_t *o, bt_marked *m, bt_err *err) {
    static const char *const keys[] = {
        "type",    "pattern",          "content",        "start",       "stop", "split",
        "str_rep", "add_prefix_space", "prepend_scheme", "replacement", NULL};
    json_t *step;
    for (size_t i = 0; (step = step_at(o, "decoders", i)); i++) {
        BT_TRY(bt_import_known_keys(step, "decoder", keys, err));
        const bool strips = is_type(step, "Strip") && text_is(step, "content", " ") &&
                            json_integer_value(json_object_get(step, "start")) == 1 &&
                            json_integer_value(json_object_get(step, "stop")) == 0;
        const bool metaspace = is_type(step, "Metaspace") &&
                               text_is(step, "replacement", BT_SPACE_MARK);
        if (!strips && !metaspace && !is_type(step, "ByteFallback") && !is_type(step, "Fuse") &&
            !replaces(step, BT_SPACE_MARK, " "))
            return refuse_step("decoder", step, err);
        m->strip |= strips || (metaspace && !text_is(step, "prepend_scheme", "never") &&
                               !json_is_false(json_object_get(step, "add_prefix_space")));
    }
    return BT_OK;
}

static bt_code read_marked_steps(json_t *root, bt_marked *out, bt_err *err) {
    *out = (bt_marked){0};
    BT_TRY(read_marked_normalizer(json_object_get(root, "normalizer"), out, err));
    BT_TRY(read_marked_pre_tokenizer(json_object_get(root, "pre_tokenizer"), out, err));
    BT_TRY(read_marked_decoder(json_object_get(root, "decoder"), out, err));
    if (out->how == BT_SPACES_PLAIN)
        return bt_fail(err, BT_UNSUPPORTED,
                       "nothing marks its spaces by U+2581 (a normaliser Replace, or Metaspace)");
    return BT_OK;
}

bt_code bt_marked_read(json_t *root, const char *has, bt_marked *out, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    const bt_code code = read_marked_steps(root, out, &why);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "it has %s, and %s", has, why.msg);
}

json_t *bt_marked_normalizer(const bt_marked *m) {
    json_t *replace = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                                "content", BT_SPACE_MARK);
    if (m->how == BT_SPACES_REPLACE) return replace;
    if (m->how == BT_SPACES_PREPEND)
        return json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type",
                         "Prepend", "prepend", BT_SPACE_MARK, replace);
    json_decref(replace);
    return json_null();
}

json_t *bt_marked_pre_tokenizer(const bt_marked *m) {
    if (bt_spaces_normalises(m->how)) return json_null();
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", BT_SPACE_MARK,
                     "prepend_scheme", bt_spaces_name(m->how), "split", (int)m->split);
}

json_t *bt_marked_decoder(const bt_marked *m) {
    json_t *steps = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern",
                              "String", BT_SPACE_MARK, "content", " ", "type", "ByteFallback",
                              "type", "Fuse");
    if (m->strip)
        json_array_append_new(steps, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content",
                                               " ", "start", 1, "stop", 0));
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", steps);
}
