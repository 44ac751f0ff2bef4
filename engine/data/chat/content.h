/* content.h - reads the text of a message's content in the formats of training data and requests. */
#ifndef BT_ENGINE_DATA_CHAT_CONTENT_H
#define BT_ENGINE_DATA_CHAT_CONTENT_H

#include <stddef.h>

#include "engine/base/text.h"
#include "engine/data/io/json.h"

enum { BT_CONTENT_OK = 0, BT_CONTENT_NO_TEXT = -1, BT_CONTENT_NOMEM = -2 };

/* The content is a string, or a list of parts {"type": "text", "text": ...}, which are joined in *joined. The caller
 * zeroes *joined and releases it after the last use of *text. Returns k > 0 if part k, counted from 1, is not text. */
int bt_chat_content(const json_t *content, bt_text *joined, const char **text, size_t *n);

#endif
