/* replay_main.c - runs a fuzz target without libFuzzer, on every file of a folder and on seeded mutations of them:
 * replay.NAME FOLDER ROUNDS [SEED]. It is part of every build, and with the preset `asan` it runs under the sanitizers.
 * A failing input is printed with round and seed; it was saved in ./fuzz-NAME.bin before the target was called. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { SEEDS = 64, LONGEST = 1 << 16 };

typedef struct input {
    uint8_t *data;
    size_t n;
} input;

static input seeds[SEEDS];
static size_t n_seeds;
static uint64_t state;

static uint64_t next_seeded(void) { /* xorshift64*: Vigna 2016 */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}
static size_t seeded_below(size_t n) { return n ? (size_t)(next_seeded() % n) : 0; }

static void read_seed_file(const char *folder, const char *name) {
    char path[4096];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return;
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > LONGEST ||
        n_seeds == SEEDS) {
        if (fd >= 0) close(fd);
        return;
    }
    input *in = &seeds[n_seeds++];
    in->n = (size_t)st.st_size;
    in->data = malloc(in->n + 1);
    if (!in->data || read(fd, in->data, in->n) != (ssize_t)in->n) exit(2);
    close(fd);
}

/* Makes one to eight changes: bytes, bits, numbers, pieces that are moved, removed or doubled, a piece of another
 * seed. */
static size_t mutate_input(uint8_t *x, size_t n) {
    static const uint64_t edges[] = {
        0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, (uint64_t)1 << 62, UINT64_MAX};
    for (size_t k = 1 + seeded_below(8); k > 0; k--) {
        const size_t at = seeded_below(n), size = 1 + seeded_below(n - at < 32 ? n - at : 32);
        const input *other = &seeds[seeded_below(n_seeds)];
        const uint64_t edge = edges[seeded_below(sizeof edges / sizeof *edges)];
        switch (n ? seeded_below(7) : 6) {
        case 0: x[at] = (uint8_t)next_seeded(); break;
        case 1: x[at] ^= (uint8_t)(1u << seeded_below(8)); break;
        case 2: memcpy(x + at, &edge, n - at < 8 ? n - at : 8); break;
        case 3:
            memmove(x + at, x + seeded_below(n - size + 1), n - at < size ? n - at : size);
            break;
        case 4: n = at; break;
        case 5:
            if (n + size > LONGEST || size > n - at) break;
            memmove(x + at + size, x + at, n - at);
            n += size;
            break;
        default:
            if (other->n == 0 || n + 32 > LONGEST) break;
            const size_t from = seeded_below(other->n),
                         m = other->n - from < 32 ? other->n - from : 32;
            memcpy(x + n, other->data + from, m);
            n += m;
        }
    }
    return n;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const long rounds = strtol(argv[2], NULL, 10);
    const uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    uint8_t *x = malloc(LONGEST + 64);
    DIR *d = opendir(argv[1]);
    if (!d || !x) {
        fprintf(stderr, "cannot open the folder '%s'\n", argv[1]);
        return 2;
    }
    for (const struct dirent *e; (e = readdir(d));) read_seed_file(argv[1], e->d_name);
    closedir(d);
    if (n_seeds == 0) {
        fprintf(stderr, "no inputs in '%s'\n", argv[1]);
        return 2;
    }
    for (size_t i = 0; i < n_seeds; i++) (void)LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].n);
    for (long r = 0; r < rounds; r++) {
        state = (seed * 1000003 + (uint64_t)r) | 1;
        for (int warm = 0; warm < 4; warm++) (void)next_seeded();
        const input *in = &seeds[seeded_below(n_seeds)];
        memcpy(x, in->data, in->n);
        const size_t n = mutate_input(x, in->n);
        fprintf(stderr, "\rround %ld seed %llu", r, (unsigned long long)seed);
        /* The exact size lets a sanitizer detect reads beyond it. */
        uint8_t *exact = malloc(n + !n);
        if (!exact) return 2;
        memcpy(exact, x, n);
        (void)LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
    fprintf(stderr, "\n%zu inputs, %ld mutations: no fault\n", n_seeds, rounds);
    for (size_t i = 0; i < n_seeds; i++) free(seeds[i].data);
    free(x);
    return 0;
}
