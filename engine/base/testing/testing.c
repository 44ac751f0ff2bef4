/* testing.c - the hooks of testing.h, read from the environment. */
#include "engine/base/testing/testing.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool bt_testing_tp_messages, bt_testing_exchange_messages;

double bt_testing_slowness(int rank) {
    const char *text = getenv("BITRAIN_TEST_SLOW");
    char *end;
    if (!text || strtol(text, &end, 10) != rank || *end != ':') return 1;
    double factor = strtod(end + 1, NULL);
    return factor > 1 && factor < 1000 ? factor : 1;
}

int64_t bt_testing_delay_ns(void) {
    const char *text = getenv("BITRAIN_TEST_DELAY");
    const long ms = text ? strtol(text, NULL, 10) : 0;
    return ms > 0 && ms <= 1000 ? ms * 1000000 : 0;
}

int bt_testing_host(int rank) {
    const char *text = getenv("BITRAIN_TEST_HOSTS");
    if (!text || !*text) return -1;
    int host = 0;
    for (long first = 0, ranks = 1;; host++) {
        char *end;
        if (*text) {
            ranks = strtol(text, &end, 10);
            text = *end == ',' ? end + 1 : "";
        }
        if (ranks < 1) ranks = 1;
        first += ranks;
        if (rank < first) return host;
    }
}

static const char *text_after_number(const char *text, int64_t wanted) {
    char *end;
    return text && strtoll(text, &end, 10) == wanted && end > text && *end == ':' ? end + 1 : NULL;
}

const char *bt_testing_processor(int rank) {
    return text_after_number(getenv("BITRAIN_TEST_PROCESSOR"), rank);
}

const char *bt_testing_cpu(void) { return getenv("BITRAIN_TEST_CPU"); }

static bool may_inject_fault(void) {
    const char *file = getenv("BITRAIN_TEST_ONCE");
    if (!file) return true;
    const int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    close(fd);
    return true;
}

bool bt_testing_flip(int rank, int64_t step, char tensor[64], uint32_t *bit) {
    const char *text = text_after_number(text_after_number(getenv("BITRAIN_TEST_FLIP"), rank),
                                         step);
    if (!text) return false;
    const size_t n = strcspn(text, ":");
    snprintf(tensor, 64, "%.*s", (int)(n < 63 ? n : 63), text);
    *bit = text[n] == ':' ? (uint32_t)strtoul(text + n + 1, NULL, 10) % 32 : 0;
    return may_inject_fault();
}

bool bt_testing_nan(int rank, int64_t step, const char *tensor) {
    /* the NaN of RANK:STEP:TENSOR was injected; reset when the variable is not set */
    static bool came;
    const char *value = getenv("BITRAIN_TEST_NAN"), *text = text_after_number(value, rank);
    char *end;
    if (!value) came = false;
    if (!text) return false;
    const int64_t first = strtoll(text, &end, 10),
                  last = *end == '-' ? strtoll(end + 1, &end, 10) : -1;
    if (*end != ':' || strcmp(end + 1, tensor) != 0) return false;
    if (last >= 0) return step >= first && step <= last;
    if (step != first || came || !may_inject_fault()) return false;
    came = true;
    return true;
}

void bt_testing_hang(int rank, int64_t step) {
    const char *how = text_after_number(text_after_number(getenv("BITRAIN_TEST_HANG"), rank), step),
               *file = how ? strchr(how, ':') : NULL;
    int fd = file ? open(file + 1, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    close(fd);
    for (volatile bool forever = true; forever;)
        if (how[0] != 'b') pause();
}

const char *bt_testing_powercap(void) { return getenv("BITRAIN_TEST_POWERCAP"); }
