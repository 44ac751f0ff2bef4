/* fuzz_checkpoint.c - arbitrary bytes as manifest.json (first byte even) or as a data file (odd) of a checkpoint. If
 * bit 1 of the first byte is set, hashes are corrected, so that later checks are reached. If bit 2 is set, the bytes
 * are a state in memory left by a rank, with a head shortened to 256 bytes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/ckpt/memory/memory_format.h"
#include "engine/ckpt/memory/memory_state.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { GENERATION = 0x1234, STEP = 7 };
static void write_fuzz_file(const char *name, const void *data, size_t n) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    close(fd);
}

static void read_manifest(const uint8_t *body, size_t n, bool sealed) {
    ckpt_manifest m;
    bt_err err = BT_ERR_INIT;
    if (sealed) {
        char hash[33], *text = malloc(n + 96);
        ckpt_hash_hex(hash, body, n);
        const int head = sprintf(text, "{\"seal\":\"%s\",\"manifest\":", hash);
        memcpy(text + head, body, n);
        memcpy(text + head + n, "}\n", 2);
        write_fuzz_file("manifest.json", text, (size_t)head + n + 2);
        free(text);
    } else
        write_fuzz_file("manifest.json", body, n);
    if (ckpt_manifest_read(dir, &m, &err) != BT_OK) {
        if (!err.msg[0]) abort();
        return;
    }
    for (size_t i = 0; i < m.n_files; i++) {
        /* The name must not lead out of the folder. */
        if (!ckpt_file_name_ok(m.files[i].name) || strchr(m.files[i].name, '/')) abort();
        (void)(ckpt_file_open(dir, &m.files[i], m.generation, m.meta.step, NULL, NULL, &err) ==
               BT_OK);
    }
    ckpt_manifest_release(&m);
}

static uint64_t correct_hash(const void *s, size_t bytes) {
    return XXH3_64bits(s, bytes - sizeof(uint64_t));
}

/* Corrects head, foot, index and section heads if they are inside the file. */
static void correct_hashes(uint8_t *s, size_t n, uint64_t n_sections) {
    file_head head;
    file_foot foot;
    memcpy(&head, s, sizeof head);
    memcpy(head.magic, CKPT_FILE_MAGIC, 8);
    head.version = 1 + head.version % CKPT_VERSION;
    head.rank = 0;
    head.generation = GENERATION;
    head.n_sections = n_sections;
    head.file_bytes = n;
    head.step = STEP;
    head.self_hash = correct_hash(&head, sizeof head);
    memcpy(s, &head, sizeof head);
    const size_t index = n - sizeof foot - n_sections * 8;
    memset(&foot, 0, sizeof foot);
    memcpy(foot.magic, CKPT_FOOT_MAGIC, 8);
    foot.file_bytes = n;
    foot.index_offset = index;
    foot.n_sections = n_sections;
    for (uint64_t i = 0, at = sizeof head; i < n_sections; i++) {
        section_head h;
        memcpy(s + index + 8 * i, &at, 8);
        if (at + sizeof h > index) break;
        memcpy(&h, s + at, sizeof h);
        h.magic = CKPT_SECTION_MAGIC;
        h.self_hash = correct_hash(&h, sizeof h);
        memcpy(s + at, &h, sizeof h);
        const uint64_t room = index - at - sizeof h, bytes = h.count * (uint64_t)h.elem_bytes;
        at += sizeof h + (bytes <= room ? bytes : 0);
    }
    foot.index_hash = XXH3_64bits(s + index, n_sections * 8);
    foot.self_hash = correct_hash(&foot, sizeof foot);
    memcpy(s + n - sizeof foot, &foot, sizeof foot);
}

static void read_file(const uint8_t *data, size_t n, bool sealed) {
    ckpt_file f = {.bytes = n};
    ckpt_section *sections = NULL;
    bt_err err = BT_ERR_INIT;
    int fd = -1;
    uint8_t *copy = malloc(n + 1);
    memcpy(copy, data, n);
    f.n_sections = n > 80 ? data[n / 2] % 4 : 0;
    if (sealed && n >= sizeof(file_head) + sizeof(file_foot) + 8 * f.n_sections)
        correct_hashes(copy, n, f.n_sections);
    ckpt_file_name(f.name, sizeof f.name, 0, GENERATION);
    ckpt_hash_hex(f.hash, copy, n);
    write_fuzz_file(f.name, copy, n);
    if (ckpt_file_open(dir, &f, GENERATION, STEP, &fd, &sections, &err) == BT_OK) {
        for (uint64_t i = 0; i < f.n_sections; i++)
            if (sections[i].data_offset + sections[i].head.count * sections[i].head.elem_bytes > n)
                abort();
        close(fd);
        free(sections);
        (void)(ckpt_file_verify(dir, &f, GENERATION, STEP, &err) == BT_OK);
    } else if (!err.msg[0])
        abort();
    free(copy);
}

/* HEAD: the numeric fields of a memory_head and the beginning of its texts */
enum { HEAD = 256 };
_Static_assert(offsetof(memory_head, values) < HEAD + 64, "the fields are inside");

static void read_memory(const uint8_t *data, size_t n, bool sealed) {
    static float embed[100], middle[10], columns[8];
    bt_memory_id id = {0};
    bt_ckpt_meta meta;
    bt_err err = BT_ERR_INIT;
    if (n < HEAD) return;
    const size_t bytes = sizeof(memory_head) + n - HEAD;
    uint8_t *segment = calloc(1, bytes);
    memory_head *h = (memory_head *)segment;
    memcpy(h, data, HEAD);
    memcpy(segment + sizeof *h, data + HEAD, n - HEAD);
    if (sealed) {
        memcpy(h->magic, MEMORY_MAGIC, sizeof h->magic);
        h->version = 1;
        h->bytes = bytes;
        h->rank = 0;
        h->world_size = 1;
        const size_t room = (bytes - sizeof *h) / sizeof(section_head);
        if (h->n_sections > room) h->n_sections %= room + 1;
        section_head *table = (section_head *)(h + 1);
        uint64_t at = memory_data_begin(h->n_sections);
        for (size_t i = 0; i < h->n_sections && at <= bytes; i++) {
            if (!ckpt_section_possible(&table[i], bytes - at)) break;
            table[i].data_hash = XXH3_64bits(segment + at, table[i].count * table[i].elem_bytes);
            at = memory_next(at, &table[i]);
        }
        h->table_hash = XXH3_64bits(h + 1, h->n_sections * sizeof(section_head));
        h->self_hash = correct_hash(h, sizeof *h);
    }
    write_fuzz_file(MEMORY_PREFIX "one", segment, bytes);
    free(segment);
    if (bt_memory_state_find(dir, &id, &meta)) {
        const bt_ckpt_slice want[] = {{.tensor = "embed",
                                       .state = "weight",
                                       .tensor_elems = 100,
                                       .count = 100,
                                       .data = embed},
                                      {.tensor = "embed",
                                       .state = "weight",
                                       .tensor_elems = 100,
                                       .first = 45,
                                       .count = 10,
                                       .data = middle},
                                      {.tensor = "embed",
                                       .state = "weight",
                                       .tensor_elems = 100,
                                       .count = 8,
                                       .data = columns,
                                       .width = 2,
                                       .stride = 10}};
        for (size_t i = 0; i < sizeof want / sizeof *want; i++)
            if (bt_memory_state_load(dir, &id, &want[i], 1, &err) != BT_OK && !err.msg[0]) abort();
    }
    bt_ckpt_meta_release(&meta);
    bt_memory_state_drop(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    (void)make_dir();
    if (n == 0) return 0;
    if (data[0] & 4)
        read_memory(data + 1, n - 1, data[0] & 2);
    else if (data[0] & 1)
        read_file(data + 1, n - 1, data[0] & 2);
    else
        read_manifest(data + 1, n - 1, data[0] & 2);
    return 0;
}
