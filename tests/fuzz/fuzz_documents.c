/* fuzz_documents.c - arbitrary bytes as text or JSON lines (first byte) are read to the end or refused with a
 * message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/data/io/documents.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!n) return 0;
    char path[64];
    int fd = memfd_create("fuzz", 0);
    bt_documents *d;
    bt_piece p;
    bt_err err = BT_ERR_INIT;
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bt_source f = {path, data[0] & 1 ? BT_SOURCE_JSONL : BT_SOURCE_TEXT, n - 1, 0, 0};
    if (write(fd, data + 1, n - 1) == (ssize_t)(n - 1) &&
        bt_documents_open(&d, &f, 1, data[0] & 2 ? "a.b" : "text", &err) == BT_OK) {
        bt_code code;
        size_t total = 0;
        while ((code = bt_documents_next(d, &p, &err)) == BT_OK && p.text) {
            total += p.n;
            if (bt_text_cut(p.text, p.n) > p.n) abort();
        }
        if (code != BT_OK && !err.msg[0]) abort();
        if (code == BT_OK && total > n) abort();
        bt_documents_close(d);
    }
    close(fd);
    return 0;
}
