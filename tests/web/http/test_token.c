/* test_token.c - the token of a server: random bytes as hex digits, and an error if the system returns fewer bytes. The
 * test replaces getrandom. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <cmocka.h>

#include "web/http/http_server.h"

static ssize_t given; /* number of bytes that getrandom returns */

ssize_t getrandom(void *bytes, size_t n, unsigned flags) {
    (void)flags;
    if (given < 0) return errno = ENOSYS, -1;
    for (size_t i = 0; i < n; i++) ((unsigned char *)bytes)[i] = (unsigned char)(i * 17);
    return given < (ssize_t)n ? given : (ssize_t)n;
}

static void all_bytes_or_none(void **state) {
    (void)state;
    static const ssize_t least[] = {-1, 0, 1, BT_TOKEN_HEX / 2 - 1};
    char token[BT_TOKEN_HEX + 1] = "";
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
        given = least[i];
        err = (bt_err)BT_ERR_INIT;
        assert_int_equal(bt_http_make_token(token, &err), BT_IO);
        assert_non_null(strstr(err.msg, "random bytes"));
    }
    given = 1000;
    assert_int_equal(bt_http_make_token(token, &err), BT_OK);
    assert_int_equal(strlen(token), BT_TOKEN_HEX);
    assert_memory_equal(token, "00112233", 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_bytes_or_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
