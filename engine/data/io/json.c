/* json.c - parses one JSON object from untrusted text. */
#include "engine/data/io/json.h"

#include "engine/data/io/documents.h"
#include "engine/data/io/file_kind.h"

static bt_code parse_json_object(json_t **out, const char *json, size_t n, size_t flags,
                                 bt_err *err) {
    json_error_t why;
    *out = NULL;
    if (!bt_json_depth_ok(json, n, 64))
        return bt_fail(err, BT_FORMAT, "the JSON is nested more than 64 levels deep");
    *out = json_loadb(json, n, JSON_REJECT_DUPLICATES | flags, &why);
    if (!*out && json_error_code(&why) == json_error_null_character)
        return bt_fail(err, BT_FORMAT, "line %d, column %d: the character \\u0000 is not allowed",
                       why.line, why.column);
    const bt_file_kind *kind = *out || (n && *json == '{') ? NULL : bt_file_kind_of(json, n);
    if (kind) return bt_fail(err, BT_FORMAT, "the file is %s, not JSON", kind->what);
    if (!*out)
        return bt_fail(err, BT_FORMAT, "line %d, column %d: not valid JSON: %s", why.line,
                       why.column, why.text);
    if (json_is_object(*out)) return BT_OK;
    json_decref(*out);
    *out = NULL;
    return bt_fail(err, BT_FORMAT, "the JSON is not an object");
}

bt_code bt_json_text_of(const json_t *o, const char *key, const char **out, bt_err *err) {
    *out = json_string_value(json_object_get(o, key));
    return *out ? BT_OK : bt_fail(err, BT_FORMAT, "the string '%s' is missing", key);
}

bt_code bt_json_parse(json_t **out, const char *json, size_t n, bt_err *err) {
    return parse_json_object(out, json, n, 0, err);
}

bt_code bt_json_parse_big(json_t **out, const char *json, size_t n, bt_err *err) {
    return parse_json_object(out, json, n, JSON_DECODE_INT_AS_REAL, err);
}

bt_code bt_json_parse_nul(json_t **out, const char *json, size_t n, bt_err *err) {
    return parse_json_object(out, json, n, JSON_ALLOW_NUL, err);
}
