/* unicode.c - normalises text and classifies characters with utf8proc. */
#include "engine/data/tokenizer/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "engine/base/text.h"
#include "engine/data/io/utf8.h"

bt_code bt_unicode_nfc(const char *text, size_t n, char **out, size_t *out_n, bt_err *err) {
    *out = NULL;
    size_t ascii = 0;
    while (ascii < n && (unsigned char)text[ascii] < 0x80) ascii++;
    if (ascii == n) return BT_OK;
    bt_text all = {0};
    for (size_t at = 0; at < n;) {
        size_t k = bt_utf8_valid(text + at, n - at);
        if (!k) {
            bt_text_putn(&all, text + at++, 1);
            continue;
        }
        utf8proc_uint8_t *nfc;
        utf8proc_ssize_t m = utf8proc_map((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)k,
                                          &nfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (m < 0) {
            bt_text_release(&all);
            return bt_fail(err, BT_NOMEM, "cannot normalise %zu bytes of text: %s", k,
                           utf8proc_errmsg(m));
        }
        bt_text_putn(&all, (const char *)nfc, (size_t)m);
        free(nfc);
        at += k;
    }
    if (all.failed) {
        bt_text_release(&all);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory to normalise %zu bytes of text", n);
    }
    *out = all.data;
    *out_n = all.len;
    return BT_OK;
}

/* Word characters are Alphabetic, M, Nd, Pc and Join_Control. Of Other_Alphabetic, only these symbols are not marks. */
bool bt_unicode_is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
           (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
}

bool bt_unicode_is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}
