/* fuzz_foreign_run.c - arbitrary bytes as the file of another program: TensorBoard's events, CSV or JSON rows. Either
 * the steps are in ascending order, or it is refused with a message. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/import/foreign_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char path[64];
    bt_foreign_run r;
    bt_err err = BT_ERR_INIT;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, n) == (ssize_t)n) {
        if (bt_foreign_run_read(&r, path, &err) != BT_OK) {
            if (!err.msg[0] || r.at) abort();
        } else {
            for (size_t i = 1; i < r.n; i++)
                if (r.at[i].step <= r.at[i - 1].step) abort();
            bt_foreign_run_release(&r);
        }
    }
    close(fd);
    return 0;
}
