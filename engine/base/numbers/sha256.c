/* sha256.c - SHA-256 by libsodium. */
#include "engine/base/numbers/sha256.h"

#include <sodium.h>

void bt_sha256_hex(char out[BT_SHA256_HEX], const void *data, size_t n) {
    unsigned char hash[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(hash, data, n); /* cannot fail */
    sodium_bin2hex(out, BT_SHA256_HEX, hash, sizeof hash);
}
