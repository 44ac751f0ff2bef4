/* island_message.c - writes and reads frames, and validates every frame that is received. */
#include "engine/islands/wire/island_message.h"

#include <string.h>

#include <xxhash.h>

enum { MAGIC = 0x53495442 }; /* "BTIS" */

/* Byte layout of a message head. */
typedef struct head_bytes {
    uint32_t magic;
    uint16_t version, type;
    uint64_t epoch;
    uint32_t island, incarnation;
    uint64_t seq, weights;
    uint32_t chunk, chunks, bytes, zero;
    uint64_t checksum;
} head_bytes;
_Static_assert(sizeof(head_bytes) == BT_ISLAND_HEAD, "the head has no holes");

#define ISLAND BT_SENT_BY_ISLAND
#define HUB BT_SENT_BY_HUB
#define BT_ISLAND_MESSAGE(id, name, from, least, most, help) {name, from, least, most},
static const struct {
    const char *name;
    bt_island_sender from;
    size_t least, most;
} rows[] = {
#include "engine/islands/wire/island_messages.def"
};
#undef BT_ISLAND_MESSAGE

const char *bt_island_type_name(bt_island_type t) {
    return (size_t)t < BT_ISLAND_TYPES ? rows[t].name : "?";
}

#define BT_UPDATE_OUTCOME(id, name, help) {name, help},
static const struct {
    const char *name, *help;
} outcomes[] = {
#include "engine/islands/wire/update_outcomes.def"
};
#undef BT_UPDATE_OUTCOME

const char *bt_update_outcome_name(bt_update_outcome o) {
    return (size_t)o < BT_UPDATE_OUTCOMES ? outcomes[o].name : "?";
}

const char *bt_update_outcome_help(bt_update_outcome o) {
    return (size_t)o < BT_UPDATE_OUTCOMES ? outcomes[o].help : "?";
}

static uint64_t frame_checksum(const void *frame, size_t bytes) {
    return XXH3_64bits(frame, offsetof(head_bytes, checksum)) ^
           XXH3_64bits((const char *)frame + sizeof(head_bytes), bytes - sizeof(head_bytes));
}

size_t bt_island_write(void *frame, const bt_island_head *head, const void *payload) {
    const size_t bytes = sizeof(head_bytes) + head->bytes;
    head_bytes h = {.magic = MAGIC,
                    .version = BT_ISLAND_VERSION,
                    .type = (uint16_t)head->type,
                    .epoch = head->epoch,
                    .island = head->island,
                    .incarnation = head->incarnation,
                    .seq = head->seq,
                    .weights = head->version,
                    .chunk = head->chunk,
                    .chunks = head->chunks,
                    .bytes = head->bytes};
    if (head->bytes) memcpy((char *)frame + sizeof h, payload, head->bytes);
    memcpy(frame, &h, sizeof h);
    h.checksum = frame_checksum(frame, bytes);
    memcpy(frame, &h, sizeof h);
    return bytes;
}

bt_code bt_island_parse(const void *frame, size_t bytes, bt_island_sender from,
                        bt_island_head *head, const void **payload, bt_err *err) {
    head_bytes h;
    if (bytes < sizeof h)
        return bt_fail(err, BT_FORMAT, "a message of %zu bytes, which is shorter than its head",
                       bytes);
    if (bytes > BT_ISLAND_FRAME)
        return bt_fail(err, BT_FORMAT,
                       "a message of %zu bytes, which is longer than the limit of %d", bytes,
                       BT_ISLAND_FRAME);
    memcpy(&h, frame, sizeof h);
    if (h.magic != MAGIC) return bt_fail(err, BT_FORMAT, "a message of another program");
    if (h.version != BT_ISLAND_VERSION)
        return bt_fail(err, BT_UNSUPPORTED,
                       "a message of version %d of the protocol, but this program uses version %d",
                       h.version, BT_ISLAND_VERSION);
    if (h.checksum != frame_checksum(frame, bytes))
        return bt_fail(err, BT_FORMAT, "a damaged message with a wrong checksum");
    if (h.type >= BT_ISLAND_TYPES || rows[h.type].from != from)
        return bt_fail(err, BT_FORMAT, "a message of unknown type %d", h.type);
    if (h.zero)
        return bt_fail(err, BT_FORMAT,
                       "the message '%s' for process %u of a hub of several processes, which this "
                       "version does not support",
                       rows[h.type].name, h.zero + 1);
    if (h.bytes != bytes - sizeof h)
        return bt_fail(err, BT_FORMAT, "the message '%s' announces %u bytes of payload but has %zu",
                       rows[h.type].name, h.bytes, bytes - sizeof h);
    if (h.bytes < rows[h.type].least || h.bytes > rows[h.type].most)
        return bt_fail(err, BT_FORMAT,
                       "the message '%s' with %u bytes of payload; %zu to %zu are allowed",
                       rows[h.type].name, h.bytes, rows[h.type].least, rows[h.type].most);
    if (h.chunks > BT_ISLAND_CHUNKS || (h.chunks ? h.chunk >= h.chunks : h.chunk != 0))
        return bt_fail(err, BT_FORMAT, "the message '%s' with the impossible chunk %u of %u",
                       rows[h.type].name, h.chunk, h.chunks);
    *head = (bt_island_head){.type = (bt_island_type)h.type,
                             .epoch = h.epoch,
                             .island = h.island,
                             .incarnation = h.incarnation,
                             .seq = h.seq,
                             .version = h.weights,
                             .chunk = h.chunk,
                             .chunks = h.chunks,
                             .bytes = h.bytes};
    *payload = (const char *)frame + sizeof h;
    return BT_OK;
}

int bt_island_line(const char *text, size_t n, const char *key, char *out, size_t size) {
    const size_t k = strlen(key);
    for (size_t i = 0; i < n;) {
        const char *line = text + i, *end = memchr(line, '\n', n - i);
        const size_t len = end ? (size_t)(end - line) : n - i;
        if (len > k && memcmp(line, key, k) == 0 && line[k] == '=' && len - k - 1 < size &&
            !memchr(line, 0, len)) {
            memcpy(out, line + k + 1, len - k - 1);
            out[len - k - 1] = 0;
            return 1;
        }
        i += len + 1;
    }
    return 0;
}
