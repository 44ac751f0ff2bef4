/* fuzz_config.c - arbitrary bytes as a configuration file: refused with a message, or parsed into settings whose texts
 * give the same settings again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/config/run_cfg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Formats and parses every setting. */
static void round_trip(const bt_opts *o) {
    static bt_run_cfg again;
    static bt_opts p;
    bt_text value, second;
    bt_err err = BT_ERR_INIT;
    if (bt_opts_init(&p, bt_run_opts, bt_run_opts_n, &again, &err) != BT_OK) abort();
    bt_text_init(&value);
    bt_text_init(&second);
    for (size_t i = 0; i < o->n; i++) {
        bt_text_clear(&value);
        bt_text_clear(&second);
        bt_opt_value(o, i, &value);
        if (bt_opts_set(&p, o->table[i].key, bt_text_str(&value), BT_FROM_FILE, "fuzz", &err) !=
            BT_OK)
            abort();
        bt_opt_value(&p, i, &second);
        if (strcmp(bt_text_str(&value), bt_text_str(&second)) != 0) abort();
    }
    bt_text_release(&value);
    bt_text_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bt_run_cfg cfg;
    static bt_opts o;
    char path[64];
    bt_err err = BT_ERR_INIT;
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (bt_opts_init(&o, bt_run_opts, bt_run_opts_n, &cfg, &err) != BT_OK) abort();
    const bt_code code = bt_opts_yaml(&o, path, &err);
    if (code == BT_OK)
        round_trip(&o);
    else if (!err.msg[0])
        abort(); /* it was refused without a message */
    close(fd);
    return 0;
}
