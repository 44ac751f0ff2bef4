/* file_kind.c - recognises file formats by a table of their first bytes. */
#include "engine/data/io/file_kind.h"

#include <stdio.h>
#include <string.h>

#include "engine/data/io/text_file.h"
#include "engine/data/io/utf8.h"

#define PANDAS(read) \
    "convert it with 'python3 -c \"import pandas; pandas." read \
    ".to_json('{}.jsonl', orient='records', lines=True)\"'"
#define TO_SAFETENSORS \
    "convert its folder with 'python3 -c \"from transformers import AutoModelForCausalLM as M; " \
    "M.from_pretrained('FOLDER').save_pretrained('OUT')\"', which writes safetensors"
#define DATASETS(load) \
    "convert it with 'python3 -c \"from datasets import *; " load ".to_json('{}.jsonl')\"'"

/* A longer magic precedes its prefixes. The row of safetensors is first: such a file begins with the length of its
 * header, whose low bytes may equal the magic of another format (a header of 640 bytes begins with 80 02, like a
 * pickle). */
static const bt_file_kind kinds[] = {
    {"\0\0{\"", 4, 6, NULL, "a safetensors file", "give its folder as a model (--init-from)", false,
     true},
    {"version https://git-lfs.github.com/spec/", 40, 0, NULL,
     "a Git LFS pointer and not the file itself", "fetch the file with 'git lfs pull'", true,
     false},
    {"\x1f\x8b", 2, 0, NULL, "gzip-compressed", "decompress it first, or name it *.gz", false,
     false},
    {"\x28\xb5\x2f\xfd", 4, 0, NULL, "zstd-compressed", "decompress it first, or name it *.zst",
     false, false},
    {"\xfd"
     "7zXZ",
     5, 0, NULL, "xz-compressed", "decompress it with 'xz -dk {}'", false, false},
    {"1AY", 3, 4, "BZh", "bzip2-compressed", "decompress it with 'bunzip2 -k {}'", true, false},
    {"BZh", 3, 0, NULL, "bzip2-compressed", "decompress it with 'bunzip2 -k {}'", false, false},
    {"\x04\x22\x4d\x18", 4, 0, NULL, "lz4-compressed", "decompress it with 'lz4 -dk {}'", false,
     false},
    {"7z\xbc\xaf\x27\x1c", 6, 0, NULL, "a 7z archive", "unpack it first", false, false},
    {"Rar!\x1a\x07", 6, 0, NULL, "a rar archive", "unpack it first", false, false},
    {"PK\x03\x04", 4, 0, "/data.pkl", "a PyTorch checkpoint (pytorch_model.bin, *.pt)",
     TO_SAFETENSORS, false, false},
    {"PK\x03\x04", 4, 0, "[Content_Types].xml", "an Office document",
     "save it as text, or a table as CSV", false, false},
    {"PK\x03\x04", 4, 0, NULL, "a zip archive", "unpack it first", false, false},
    {"ustar", 5, 257, NULL, "a tar archive", "unpack it with 'tar -xf {}'", false, false},
    {"\xff\xfe\0\0", 4, 0, NULL, "UTF-32 text", "convert it with 'iconv -f UTF-32 -t UTF-8'", false,
     false},
    {"\0\0\xfe\xff", 4, 0, NULL, "UTF-32 text", "convert it with 'iconv -f UTF-32 -t UTF-8'", false,
     false},
    {"\xff\xfe", 2, 0, NULL, "UTF-16 text", "convert it with 'iconv -f UTF-16 -t UTF-8'", false,
     false},
    {"\xfe\xff", 2, 0, NULL, "UTF-16 text", "convert it with 'iconv -f UTF-16 -t UTF-8'", false,
     false},
    {"PAR1", 4, 0, NULL, "a Parquet file", PANDAS("read_parquet('{}')"), false, false},
    {"ARROW1", 6, 0, NULL, "an Arrow file", PANDAS("read_feather('{}')"), false, false},
    {"\x10\0\0\0", 4, 8, "\xff\xff\xff\xff", "an Arrow stream", DATASETS("Dataset.from_file('{}')"),
     false, false},
    {"ORC", 3, 0, NULL, "an ORC file", PANDAS("read_orc('{}')"), false, false},
    {"Obj\x01", 4, 0, NULL, "an Avro file", "convert it to JSON lines", false, false},
    {"\x89HDF\r\n\x1a\n", 8, 0, NULL, "an HDF5 file",
     "convert it to JSON lines, a model to safetensors", false, false},
    {"\x93NUMPY", 6, 0, NULL, "a NumPy array", "write its text to a file first", false, false},
    {"\x80\x02", 2, 0, NULL, "a Python pickle", TO_SAFETENSORS, false, false},
    {"\x80\x03", 2, 0, NULL, "a Python pickle", TO_SAFETENSORS, false, false},
    {"\x80\x04", 2, 0, NULL, "a Python pickle", TO_SAFETENSORS, false, false},
    {"\x80\x05", 2, 0, NULL, "a Python pickle", TO_SAFETENSORS, false, false},
    {"GGUF", 4, 0, NULL, "a GGUF model", "give it as a model (--init-from)", false, true},
    {"tjgg", 4, 0, NULL, "a GGML model of before GGUF", "convert it to GGUF with llama.cpp", false,
     false},
    {"%PDF-", 5, 0, NULL, "a PDF document", "extract its text with 'pdftotext {}'", true, false},
    {"{\\rtf", 5, 0, NULL, "an RTF document", "save it as plain text", true, false},
    {"\xd0\xcf\x11\xe0", 4, 0, NULL, "an Office document", "save it as text, or a table as CSV",
     false, false},
    {"{", 1, 0, "\"bitrain-tokenizer\"", "a tokenizer", "give it with --tokenizer", true, false},
    {"{", 1, 0, "\"added_tokens\"", "a tokenizer", "import it with 'bitrain tokenizer import {}'",
     true, false},
    {"BTSHARD\n", 8, 0, NULL, "a token shard", "name it *.bts", false, false},
    {"SQLite format 3", 15, 0, NULL, "a SQLite database", "export its text first", false, false},
    {"\x89PNG", 4, 0, NULL, "an image", "there is no text in it", false, false},
    {"\xff\xd8\xff", 3, 0, NULL, "an image", "there is no text in it", false, false},
    {"GIF8", 4, 0, NULL, "an image", "there is no text in it", false, false},
    {"\x7f"
     "ELF",
     4, 0, NULL, "a program", "there is no text in it", false, false},
};

static const bt_file_kind csv = {.what = "a table of comma-separated values",
                                 .remedy = PANDAS("read_csv('{}')") ", or name it *.txt"},
                          tsv = {.what = "a table of tab-separated values",
                                 .remedy =
                                     PANDAS("read_csv('{}', sep='\\t')") ", or name it *.txt"};

static bool head_contains(const char *head, size_t n, const char *word) {
    const size_t k = strlen(word);
    for (size_t i = 0; i + k <= n; i++)
        if (memcmp(head + i, word, k) == 0) return true;
    return false;
}

/* True for control characters and for bytes that are not UTF-8, except a truncated character at the end. */
static bool is_binary(const char *head, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)head[i];
        if (c < 0x20 && !(c >= '\b' && c <= '\r') && c != 0x1b) return true;
    }
    return bt_utf8_valid(head, n) + 3 < n;
}

const bt_file_kind *bt_file_kind_of(const char *head, size_t n) {
    if (n > BT_FILE_KIND_HEAD) n = BT_FILE_KIND_HEAD;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const bt_file_kind *k = &kinds[i];
        if (n < k->at + k->n || memcmp(head + k->at, k->magic, k->n) != 0) continue;
        if (k->inside && !head_contains(head, n, k->inside)) continue;
        if (k->text || is_binary(head, n)) return k;
    }
    return NULL;
}

const bt_file_kind *bt_file_kind_named(const char *path) {
    const size_t n = bt_text_file_stem(path);
    if (n > 4 && strncmp(path + n - 4, ".csv", 4) == 0) return &csv;
    return n > 4 && strncmp(path + n - 4, ".tsv", 4) == 0 ? &tsv : NULL;
}

bt_code bt_file_kind_refuse(const bt_file_kind *kind, const char *noun, const char *path,
                            bt_err *err) {
    char remedy[360];
    size_t n = 0;
    const char *file = strlen(path) < 60 ? path : "FILE";
    for (const char *r = kind->remedy; *r && n + 64 < sizeof remedy;) {
        if (r[0] == '{' && r[1] == '}') {
            n += (size_t)snprintf(remedy + n, sizeof remedy - n, "%s", file);
            r += 2;
        } else {
            remedy[n++] = *r++;
        }
    }
    remedy[n] = '\0';
    return bt_fail(err, BT_FORMAT, "%s '%.120s' is %s: %s", noun, path, kind->what, remedy);
}
