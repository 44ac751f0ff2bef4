/* sha256.h - SHA-256 (FIPS 180-4) of a short text, as hexadecimal; other programs identify texts by it. */
#ifndef BT_ENGINE_BASE_NUMBERS_SHA256_H
#define BT_ENGINE_BASE_NUMBERS_SHA256_H

#include <stddef.h>

enum { BT_SHA256_HEX = 65 };
void bt_sha256_hex(char out[BT_SHA256_HEX], const void *data, size_t n);

#endif
