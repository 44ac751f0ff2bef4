/* content.h - text of a message's content in the formats of training data and requests.
 *
 * Threads: pure. */
#ifndef BT_ENGINE_DATA_CHAT_CONTENT_H
#define BT_ENGINE_DATA_CHAT_CONTENT_H

#include <stddef.h>

#include "engine/base/text.h"
#include "engine/data/io/json.h"

enum { BT_CONTENT_OK = 0, BT_CONTENT_NO_TEXT = -1, BT_CONTENT_NOMEM = -2 };

/* A string, or a list of parts {"type": "text", "text": ...}, which are joined in *joined (zeroed by the caller,
 * released by it when *text is no longer used). > 0: the part of this number, from 1, is not text */
int bt_chat_content(const json_t *content, bt_text *joined, const char **text, size_t *n);

#endif
