/* fuzz_model_file.c - arbitrary bytes as a model of another program, depending on the first byte a GGUF file, a
 * safetensors file or a config.json. A file that opens is read completely. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/interop/formats/gguf.h"
#include "engine/interop/hf_config.h"
#include "engine/interop/model_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void open_gguf(const char *path) {
    bt_model_file *s = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_model_file_open(&s, path, &err) != BT_OK) return;
    float *w = s->params.total < 1 << 20 ? malloc(s->params.total * sizeof *w) : NULL;
    if (w && bt_model_file_weights(s, w, &err) != BT_OK && !err.msg[0]) abort();
    free(w);
    bt_model_file_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char path[64];
    bt_err err = BT_ERR_INIT;
    bt_stored_list l = {0};
    bt_hf_config c;
    if (!n) return 0;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data + 1, n - 1) == (ssize_t)(n - 1)) {
        if (data[0] % 3 == 0) open_gguf(path);
        if (data[0] % 3 == 1 && bt_safetensors_read(&l, path, &err) != BT_OK && !err.msg[0])
            abort();
        if (data[0] % 3 == 2 && bt_hf_config_read(&c, path, NULL, &err) != BT_OK && !err.msg[0])
            abort();
    }
    bt_stored_release(&l);
    close(fd);
    return 0;
}
