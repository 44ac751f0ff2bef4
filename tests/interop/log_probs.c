/* log_probs.c - outputs of a model in any format, for comparisons with other programs: log_probs MODEL < ids
 * prints {"log_probs": [...]} of the token after them; log_probs MODEL --encode < texts, with a NUL
 * byte between two, prints the ids of each on a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/threads.h"
#include "engine/interop/convert.h"
#include "engine/kernels/table/kernels.h"

enum { INPUT_MAX = 1 << 20, IDS_MAX = 4096 };

static bt_code print_log_probs(bt_model_file *s, char *words, bt_err *err) {
    static int32_t ids[IDS_MAX];
    size_t n = 0;
    char *end = words;
    for (char *p = words; n < IDS_MAX; p = end) {
        const long id = strtol(p, &end, 10);
        if (end == p) break;
        ids[n++] = (int32_t)id;
    }
    float *out = calloc((size_t)s->cfg.V, sizeof *out);
    if (!out || n == 0) {
        free(out);
        return bt_fail(err, BT_ARG, "no ids");
    }
    bt_code code = bt_model_file_log_probs(s, ids, n, out, err);
    printf("{\"log_probs\":[");
    for (int i = 0; i < s->cfg.V; i++) printf("%s%.9g", i ? "," : "", (double)out[i]);
    printf("]}\n");
    free(out);
    return code;
}

static bt_code encode(bt_model_file *s, const char *text, size_t n, bt_err *err) {
    int32_t *ids = NULL;
    size_t cap = 0;
    bt_code code = BT_OK;
    if (!s->tokenizer) return bt_fail(err, BT_NOTFOUND, "%s", s->no_tokenizer.msg);
    for (const char *end = text + n, *next; code == BT_OK; text = next + 1) {
        size_t count = 0;
        next = memchr(text, '\0', (size_t)(end - text));
        if (!next) next = end;
        code = bt_tokenizer_encode(s->tokenizer, text, (size_t)(next - text), &ids, &count, &cap,
                                   err);
        printf("[");
        for (size_t i = 0; i < count; i++) printf("%s%d", i ? "," : "", (int)ids[i]);
        printf("]\n");
        if (next == end) break;
    }
    free(ids);
    return code;
}

int main(int argc, char **argv) {
    static char input[INPUT_MAX];
    bt_model_file *s = NULL;
    bt_err err = BT_ERR_INIT;
    if (argc < 2) return 2;
    const size_t n = fread(input, 1, sizeof input - 1, stdin);
    bt_code code = bt_kernels_select("auto", &err);
    if (code == BT_OK) code = bt_threads_init(1, &err);
    if (code == BT_OK) code = bt_model_file_open(&s, argv[1], &err);
    if (code == BT_OK)
        code = argc > 2 && strcmp(argv[2], "--encode") == 0 ? encode(s, input, n, &err)
                                                            : print_log_probs(s, input, &err);
    if (code != BT_OK) fprintf(stderr, "%s\n", err.msg);
    bt_model_file_close(s);
    bt_threads_release();
    return bt_exit_code(code);
}
