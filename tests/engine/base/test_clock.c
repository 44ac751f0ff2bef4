/* The times of records follow from one reading of the system clock, which processes share under a name; setting the
 * clock later has no effect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/syscall.h>
#include <cmocka.h>

#include "engine/base/clock.h"

static const int64_t second = 1000000;
static int64_t set_by_s;

/* Returns the real time plus `set_by_s` seconds. */
int clock_gettime(clockid_t id, struct timespec *t) {
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += set_by_s;
    return rc;
}

static void setting_the_clock_changes_no_time(void **state) {
    (void)state;
    const int64_t begin = bt_wall_us();
    assert_true(begin > 1700000000 * second);
    static const int64_t by[] = {-3600, 86400, 31536000};
    for (int i = 0; i < 3; i++) {
        set_by_s = by[i];
        const int64_t now = bt_wall_us();
        assert_true(now >= begin && now < begin + 600 * second);
    }
    set_by_s = 0;
}

static void processes_share_a_clock_by_its_name(void **state) {
    (void)state;
    char name[BT_CLOCK_NAME], again[BT_CLOCK_NAME], other[BT_CLOCK_NAME];
    assert_true(bt_clock_name(name)[0]);
    const size_t boot = strcspn(name, " ");
    const int64_t offset = strtoll(name + boot, NULL, 10), day = 86400 * second;
    snprintf(other, sizeof other, "%.*s %lld", (int)boot, name, (long long)(offset - day));
    int64_t here = bt_wall_us();
    assert_true(bt_clock_now_us(other) >= here - day &&
                bt_clock_now_us(other) < here - day + 600 * second);
    bt_clock_join(other, 0);
    assert_true(bt_wall_us() < here);
    assert_string_equal(bt_clock_name(again), other);
    /* A shared clock of another boot, or none, has no effect; times are never before the newest record. */
    static const char *const none[] = {"other-boot 5", "", NULL, " 5"};
    for (int i = 0; i < 4; i++) {
        bt_clock_join(none[i], 0);
        assert_string_equal(bt_clock_name(again), other);
        assert_true(bt_clock_now_us(none[i]) < here);
    }
    bt_clock_join(NULL, here + day);
    const int64_t now = bt_wall_us();
    assert_true(now >= here + day && now < here + day + 600 * second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_the_clock_changes_no_time),
        cmocka_unit_test(processes_share_a_clock_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
