/* marked_json.c - reads and writes normaliser, pre-tokeniser and decoder of a tokenizer that marks spaces.
 *
 * Supported: the normaliser Replace (" " by U+2581) with or without Prepend (U+2581), or the pre-tokeniser Metaspace. A
 * Split at spaces after such a normaliser has no effect and is ignored (Gemma). The decoder is Metaspace or a sequence
 * of Replace, ByteFallback, Fuse and Strip. */
#include "engine/data/tokenizer/marked_json.h"

#include <string.h>

#include "engine/data/tokenizer/import_keys.h"

/* Returns step i of the sequence under `key`, or o itself if o is a single step; NULL: no such step. */
static json_t *step_at(json_t *o, const char *key, size_t i) {
    if (bt_import_absent(o)) return NULL;
    if (strcmp(bt_import_type(o), "Sequence") == 0)
        return json_array_get(json_object_get(o, key), i);
    return i ? NULL : o;
}

static bool json_text_equals(json_t *o, const char *key, const char *value) {
    const char *s = json_string_value(json_object_get(o, key));
    return s && strcmp(s, value) == 0;
}

static bool step_has_type(json_t *o, const char *type) {
    return strcmp(bt_import_type(o), type) == 0;
}

static bt_code refuse_step(const char *part, json_t *o, bt_err *err) {
    return bt_fail(err, BT_UNSUPPORTED,
                   "the %s has the step '%.40s' with parameters that are not supported", part,
                   bt_import_type(o));
}

static bool is_replace_step(json_t *o, const char *from, const char *to) {
    return step_has_type(o, "Replace") &&
           json_text_equals(json_object_get(o, "pattern"), "String", from) &&
           json_text_equals(o, "content", to);
}

static bt_code read_marked_normalizer(json_t *o, bt_marked *m, bt_err *err) {
    static const char *const keys[] = {"type",    "normalizers", "prepend",
                                       "pattern", "content",     NULL};
    bool replaced = false, prepended = false;
    json_t *step;
    for (size_t i = 0; (step = step_at(o, "normalizers", i)); i++) {
        BT_TRY(bt_import_known_keys(step, "normalizer", keys, err));
        if (is_replace_step(step, " ", BT_SPACE_MARK))
            replaced = true;
        else if (step_has_type(step, "Prepend") && json_text_equals(step, "prepend", BT_SPACE_MARK))
            prepended = true;
        else
            return refuse_step("normaliser", step, err);
    }
    if (prepended && !replaced)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the normaliser adds a mark before a text but does not replace spaces by "
                       "marks, which is not supported");
    if (replaced) m->how = prepended ? BT_SPACES_PREPEND : BT_SPACES_REPLACE;
    return BT_OK;
}

static bt_code read_metaspace(json_t *o, bt_marked *m, bt_err *err) {
    static const char *const keys[] = {
        "type", "replacement", "add_prefix_space", "prepend_scheme", "str_rep", "split", NULL};
    json_t *scheme = json_object_get(o, "prepend_scheme"), *split = json_object_get(o, "split");
    BT_TRY(bt_import_known_keys(o, "pre_tokenizer", keys, err));
    if (!json_text_equals(o, "replacement", BT_SPACE_MARK))
        return refuse_step("pre-tokeniser", o, err);
    m->split = !json_is_false(split);
    m->how = json_is_false(json_object_get(o, "add_prefix_space")) ? BT_SPACES_NEVER
                                                                   : BT_SPACES_ALWAYS;
    if (!scheme) return BT_OK;
    for (m->how = BT_SPACES_FIRST; m->how < BT_SPACES_COUNT; m->how++)
        if (json_text_equals(o, "prepend_scheme", bt_spaces_name(m->how))) return BT_OK;
    return refuse_step("pre-tokeniser", o, err);
}

static bt_code read_marked_pre_tokenizer(json_t *o, bt_marked *m, bt_err *err) {
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    json_t *step = step_at(o, "pretokenizers", 0);
    if (step && step_at(o, "pretokenizers", 1)) return refuse_step("pre-tokeniser", o, err);
    if (!step) return BT_OK;
    if (step_has_type(step, "Metaspace") && m->how == BT_SPACES_PLAIN)
        return read_metaspace(step, m, err);
    /* The normaliser has left no spaces, so the Split has no effect. */
    if (step_has_type(step, "Split") && m->how != BT_SPACES_PLAIN &&
        json_text_equals(json_object_get(step, "pattern"), "String", " "))
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
        const bool strips = step_has_type(step, "Strip") &&
                            json_text_equals(step, "content", " ") &&
                            json_integer_value(json_object_get(step, "start")) == 1 &&
                            json_integer_value(json_object_get(step, "stop")) == 0;
        const bool metaspace = step_has_type(step, "Metaspace") &&
                               json_text_equals(step, "replacement", BT_SPACE_MARK);
        if (!strips && !metaspace && !step_has_type(step, "ByteFallback") &&
            !step_has_type(step, "Fuse") && !is_replace_step(step, BT_SPACE_MARK, " "))
            return refuse_step("decoder", step, err);
        m->strip |= strips || (metaspace && !json_text_equals(step, "prepend_scheme", "never") &&
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
                       "no step marks spaces by U+2581 (a normaliser Replace, or Metaspace)");
    return BT_OK;
}

bt_code bt_marked_read(json_t *root, const char *has, bt_marked *out, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    const bt_code code = read_marked_steps(root, out, &why);
    return code == BT_OK ? BT_OK
                         : bt_fail(err, code, "this is a tokenizer with %s, and %s", has, why.msg);
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
