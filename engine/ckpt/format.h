/* format.h - layout of a data file (.btck), and functions that read and write it. Private to engine/ckpt.
 *
 *     file_head    64 bytes   magic, version, generation, step, rank, number of sections, hash of itself
 *     section_head 144 bytes  tensor, state, position in the tensor, hash of the data, hash of itself  \ n times
 *     data         count * elem_bytes bytes, little-endian                                            /
 *     index        n * 8 bytes: offset of each section_head
 *     file_foot    48 bytes   magic, size of the file, offset and hash of the index, hash of itself
 *
 * One of these hashes covers each byte, and the manifest contains the XXH3-128 of the whole file. The generation is a
 * random number of the save, so a manifest cannot refer to a file of another save. */
#ifndef BT_ENGINE_CKPT_FORMAT_H
#define BT_ENGINE_CKPT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/ckpt/ckpt.h"

enum { CKPT_VERSION = 2, CKPT_FILE_NAME_MAX = 64 };
#define CKPT_SECTION_ELEMS \
    ((uint64_t)4 \
     << 20) /* maximum length of a section; it is limited because a reader of a part must hash all of it */
#define CKPT_FILE_MAGIC "BTCKDAT1"
#define CKPT_FOOT_MAGIC "BTCKEND1"
#define CKPT_SECTION_MAGIC 0x74636573u /* "sect" */

typedef struct file_head {
    char magic[8];
    uint32_t version, rank;
    uint64_t generation, n_sections, file_bytes;
    int64_t step;
    uint64_t reserved;
    uint64_t self_hash; /* XXH3-64 of the preceding bytes */
} file_head;

typedef struct section_head {
    uint32_t magic;
    uint16_t elem_bytes, type;  /* type: bt_ckpt_type; version 1 has only 0, fp32 */
    char tensor[56], state[32]; /* NUL-padded */
    uint64_t tensor_elems, first, count;
    uint64_t data_hash;     /* XXH3-64 of the following count * elem_bytes bytes. */
    uint32_t width, stride; /* block of columns, as in bt_ckpt_slice */
    uint64_t self_hash;
} section_head;

typedef struct file_foot {
    char magic[8];
    uint64_t file_bytes, index_offset, n_sections, index_hash, self_hash;
} file_foot;

_Static_assert(sizeof(file_head) == 64 && sizeof(section_head) == 144 && sizeof(file_foot) == 48,
               "layout on disk");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "checkpoints are little-endian");

typedef struct ckpt_file { /* a data file as listed in the manifest */
    char name[CKPT_FILE_NAME_MAX];
    uint64_t bytes, n_sections;
    char hash[33]; /* XXH3-128, hex */
    int rank;
} ckpt_file;

void ckpt_file_name(char *out, size_t size, int rank, uint64_t generation);
/* Returns true for a name that ckpt_file_name could have written: no '/', no '..'. */
bool ckpt_file_name_ok(const char *name);
/* Reserves the space and writes FOLDER/NAME.tmp, fsyncs it, renames it, fsyncs the folder, and reads the file back.
 * Removes the file after a failure. */
bt_code ckpt_file_write(const char *folder, ckpt_file *f, uint64_t generation,
                        const bt_ckpt_job *job, bt_err *err) BT_MUST_CHECK;
/* Reads head, foot and index, and checks existence, size and generation. sections: receives an array with offsets,
 * which the caller frees; may be NULL. */
typedef struct ckpt_section {
    section_head head;
    uint64_t data_offset;
    uint32_t file;
} ckpt_section;
bt_code ckpt_file_open(const char *folder, const ckpt_file *f, uint64_t generation, int64_t step,
                       int *fd, ckpt_section **sections, bt_err *err) BT_MUST_CHECK;
/* Returns false for types that are bytes, not numbers. */
bool ckpt_form_of(uint32_t type, bt_moment_form *form);
/* Returns the distance from the beginning to the end of a slice or section, with gaps between rows; 0: impossible. */
uint64_t ckpt_span(uint64_t count, uint32_t width, uint32_t stride);
/* Returns true if the values of a head are possible for its tensor, and its data fit into `room` bytes. Every reader
 * must check this before it uses a field, because a valid hash does not imply valid values. */
bool ckpt_section_possible(const section_head *h, uint64_t room);
/* Compares every byte with the hashes in the manifest. The error names section, byte range and likely cause. */
bt_code ckpt_file_verify(const char *folder, const ckpt_file *f, uint64_t generation, int64_t step,
                         bt_err *err) BT_MUST_CHECK;
typedef struct ckpt_reading {
    const _Atomic bool *stop; /* BT_STOPPED is returned soon after it becomes true; NULL: never */
    bool from_disk;           /* removes the file from the page cache first */
    double share;             /* maximum share of a processor, limited by sleeping; 0: no limit */
} ckpt_reading;
bt_code ckpt_file_read_whole(const char *folder, const ckpt_file *f, uint64_t generation,
                             int64_t step, const ckpt_reading *how, bt_err *err) BT_MUST_CHECK;

typedef struct ckpt_manifest {
    bt_ckpt_meta meta;
    uint64_t generation;
    int world_size;
    ckpt_file *files;
    size_t n_files;
    char seal[33]; /* XXH3-128 of the body */
} ckpt_manifest;
void ckpt_manifest_release(ckpt_manifest *m);
/* Writes the text of the manifest; seal receives its hash. */
bt_code ckpt_manifest_text(const bt_ckpt_meta *meta, uint64_t generation, int world_size,
                           const ckpt_file *files, size_t n_files, bt_text *out, char seal[33],
                           bt_err *err) BT_MUST_CHECK;
bt_code ckpt_manifest_read(const char *folder, ckpt_manifest *out, bt_err *err) BT_MUST_CHECK;

bt_code ckpt_write_all(int fd, const void *data, size_t n, uint64_t offset, const char *path,
                       bt_err *err) BT_MUST_CHECK;
bt_code ckpt_read_all(int fd, void *data, size_t n, uint64_t offset, const char *path, bt_err *err)
    BT_MUST_CHECK;
bt_code ckpt_sync_folder(const char *folder, bt_err *err) BT_MUST_CHECK;
/* Writes NAME.tmp, fsyncs it, renames it to NAME, and fsyncs the folder. before_rename (or NULL) may refuse. */
bt_code ckpt_replace_file(const char *folder, const char *name, const void *data, size_t n,
                          bt_code (*before_rename)(void *ctx, bt_err *err), void *ctx, bt_err *err)
    BT_MUST_CHECK;
/* Reads a whole file into memory that the caller frees, with a terminating NUL. BT_FORMAT: it is larger than limit. */
bt_code ckpt_slurp(const char *path, size_t limit, char **data, size_t *n, bt_err *err)
    BT_MUST_CHECK;
void ckpt_hash_hex(char out[33], const void *data, size_t n);

#endif
