/* fuzz_tokenizer.c - arbitrary bytes as a tokenizer file, ours or Hugging Face's (first byte), and as text for a small
 * tokenizer: decode(encode(x)) == x. A wrong hash is corrected once, so that later checks are reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/tokenizer_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void round_trip(const bt_tokenizer *t, const char *s, size_t n) {
    int32_t *ids = NULL;
    size_t count, cap = 0;
    bt_text back = {0};
    bt_err err;
    if (bt_tokenizer_encode(t, s, n, &ids, &count, &cap, &err) == BT_OK && !t->nfc) {
        bt_tokenizer_decode(t, ids, count, &back);
        /* Tokenizers that mark spaces do not always keep marks and leading spaces. */
        if (bt_tokenizer_marks(t)) {
            /* The text of an unknown token can be longer than the character. */
            if (!bt_tokenizer_is_unigram(t) && back.len > n + t->n_added * n) abort();
        } else if (back.len != n || (n && memcmp(back.data, s, n) != 0))
            abort();
    }
    bt_text_release(&back);
    free(ids);
}

static bt_tokenizer *small_tokenizer(void) { /* three merges over the bytes */
    bt_tokenizer_draft d;
    bt_tokenizer *t;
    bt_err err;
    bt_code code = bt_draft_begin(&d, &err);
    for (int i = 0; code == BT_OK && i < 256; i++)
        code = bt_draft_token(&d, &(char){(char)i}, 1, BT_TOKEN_PLAIN, &err);
    static const char *const more[] = {"th", "the", "  ", "aa", "aaaa"};
    static const int pairs[][2] = {{'t', 'h'}, {256, 'e'}, {' ', ' '}, {'a', 'a'}, {259, 259}};
    for (int i = 0; code == BT_OK && i < 5; i++)
        code = bt_draft_token(&d, more[i], strlen(more[i]), BT_TOKEN_PLAIN, &err);
    for (int i = 0; code == BT_OK && i < 5; i++)
        code = bt_draft_merge(&d, pairs[i][0], pairs[i][1], &err);
    if (code != BT_OK || bt_draft_seal(&d, &t, &err) != BT_OK) abort();
    return t;
}

static void own_file(const char *s, size_t n) {
    bt_tokenizer *t;
    bt_err err;
    bt_code code = bt_tokenizer_parse(&t, s, n, &err);
    char *gives = code == BT_FORMAT ? strstr(err.msg, "its content has the hash ") : NULL,
         *hash = NULL, *copy = NULL;
    if (gives && (copy = malloc(n + 1))) {
        memcpy(copy, s, n);
        copy[n] = '\0';
        hash = strstr(copy, "\"hash\":\"");
        if (hash && (size_t)(hash - copy) + 24 <= n) memcpy(hash + 8, gives + 25, 16);
        code = bt_tokenizer_parse(&t, copy, n, &err);
    }
    if (code == BT_OK) round_trip(t, s, n < 4096 ? n : 4096);
    bt_tokenizer_free(t);
    free(copy);
}

static void foreign_file(const char *s, size_t n) {
    char path[64];
    bt_tokenizer *t;
    bt_err err;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, s, n) == (ssize_t)n && bt_tokenizer_import(&t, path, &err) == BT_OK) {
        round_trip(t, s, n < 4096 ? n : 4096);
        bt_tokenizer_free(t);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bt_tokenizer *t;
    if (!t) t = small_tokenizer();
    if (!n) return 0;
    const char *s = (const char *)data + 1;
    if (data[0] % 3 == 0)
        own_file(s, n - 1);
    else if (data[0] % 3 == 1)
        foreign_file(s, n - 1);
    else
        round_trip(t, s, n - 1);
    return 0;
}
