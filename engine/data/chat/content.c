/* content.c - joins the parts of a message's content. */
#include "engine/data/chat/content.h"

#include <string.h>

int bt_chat_content(const json_t *content, bt_text *joined, const char **text, size_t *n) {
    json_t *part;
    size_t i;
    if (json_is_string(content)) {
        *text = json_string_value(content);
        *n = json_string_length(content);
        return BT_CONTENT_OK;
    }
    if (!json_is_array(content)) return BT_CONTENT_NO_TEXT;
    json_array_foreach(content, i, part) {
        const json_t *words = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_string(words) || (type && strcmp(type, "text") != 0)) return (int)i + 1;
        bt_text_putn(joined, json_string_value(words), json_string_length(words));
    }
    *text = bt_text_str(joined);
    *n = joined->len;
    return joined->failed ? BT_CONTENT_NOMEM : BT_CONTENT_OK;
}
