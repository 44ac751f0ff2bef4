/* words.c - collects the words of a command line in one text. */
#include "engine/base/system/words.h"

#include <stdlib.h>
#include <string.h>

void bt_words_putn(bt_words *w, const char *word, size_t n) {
    bt_text_putn(&w->text, word, n);
    bt_text_putn(&w->text, "", 1);
    w->n++;
}

void bt_words_put(bt_words *w, const char *word) { bt_words_putn(w, word, strlen(word)); }

void bt_words_set(bt_words *w, const char *key, const char *value) {
    bt_words_put(w, "--set");
    bt_text_put(&w->text, key);
    bt_text_put(&w->text, "=");
    bt_words_put(w, value);
}

const char **bt_words_argv(const bt_words *w) {
    const char **argv = w->text.failed ? NULL : calloc(w->n + 1, sizeof *argv);
    const char *at = bt_text_str(&w->text);
    for (size_t i = 0; argv && i < w->n; i++, at += strlen(at) + 1) argv[i] = at;
    return argv;
}

void bt_words_clear(bt_words *w) {
    bt_text_clear(&w->text);
    w->n = 0;
}

void bt_words_release(bt_words *w) {
    bt_text_release(&w->text);
    *w = (bt_words){0};
}
