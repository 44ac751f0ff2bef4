/* refuse_memory.c - malloc and related functions that can refuse a request. */
#include "tests/memory/refuse_memory.h"

#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__

bool refuse_memory_works(void) { return false; }
void refuse_memory(const refusal *r) { (void)r; }
bool grant_memory(void) { return false; }
void record_requests(bool own) { (void)own; }
long recorded_requests(void) { return 0; }
bool is_of_new_place(long k) { return k == 0; }
void forget_requests(void) {}
long memory_blocks(bool own) { return own ? 0 : 0; }
void tell_refused(void) {}

#else

/* The functions of the C library, by the names under which a replacement of malloc may call them. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);
/* The linker defines these limits of the program's code. */
extern const char __executable_start, etext;

enum { FRAMES = 24, DEEP = 100, PLACES = 1 << 14 };

typedef struct state {
    refusal r;
    atomic_long asked;
    atomic_bool armed, refused;
} state;
static _Thread_local state of_thread; /* state of the thread that called refuse_memory */
static state of_all;
static atomic_bool everywhere;
static atomic_long blocks, own_blocks;
static void *frames[FRAMES];
static int n_frames;
static bool record_own;
static atomic_bool recording;
static pthread_t recorder;
static int outer_frames; /* number of stack frames of record_requests' caller */
/* hashes of the call stacks of the program's own requests, those of earlier recordings first */
static uint64_t places[PLACES];
static long old_places, n_places;

static bool is_own(const void *caller) {
    const char *at = caller;
    return at >= &__executable_start && at < &etext;
}

/* Counts a request by the thread that called record_requests; stack frames outside the recorded function are
 * omitted. */
static void record_request(const void *caller) {
    void *at[DEEP];
    if (record_own && !is_own(caller)) return;
    if (record_own && old_places + n_places < PLACES) {
        recording = false; /* backtrace may request memory */
        const int n = backtrace(at, DEEP) - outer_frames;
        places[old_places + n_places] = n > 0 ? XXH3_64bits(at, (size_t)n * sizeof *at) : 0;
        recording = true;
    }
    n_places++;
}

static bool must_refuse(const void *caller) {
    if (recording && pthread_equal(pthread_self(), recorder)) record_request(caller);
    state *s = atomic_load(&everywhere) ? &of_all : &of_thread;
    if (!atomic_load(&s->armed) || (s->r.own && !is_own(caller))) return false;
    const long k = atomic_fetch_add(&s->asked, 1);
    if (k < s->r.after || (k > s->r.after && !s->r.all)) return false;
    if (!atomic_exchange(&s->refused, true)) {
        atomic_store(&s->armed, false); /* reading the stack may allocate */
        n_frames = backtrace(frames, FRAMES);
        atomic_store(&s->armed, true);
    }
    errno = ENOMEM;
    return true;
}

static void count_block_change(long n, const void *caller) {
    atomic_fetch_add(&blocks, n);
    if (is_own(caller)) atomic_fetch_add(&own_blocks, n);
}

static void *check_counted(void *p, const void *caller) {
    if (p) count_block_change(1, caller);
    return p;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t n) {
    return must_refuse(CALLER) ? NULL : check_counted(__libc_malloc(n), CALLER);
}

void *calloc(size_t n, size_t size) {
    return must_refuse(CALLER) ? NULL : check_counted(__libc_calloc(n, size), CALLER);
}

void *realloc(void *p, size_t n) {
    if (must_refuse(CALLER)) return NULL;
    void *q = __libc_realloc(p, n);
    if (!p) return check_counted(q, CALLER);
    if (n == 0 && !q) count_block_change(-1, CALLER);
    return q;
}

void *aligned_alloc(size_t align, size_t n) {
    return must_refuse(CALLER) ? NULL : check_counted(__libc_memalign(align, n), CALLER);
}

int posix_memalign(void **out, size_t align, size_t n) {
    void *p = must_refuse(CALLER) ? NULL : check_counted(__libc_memalign(align, n), CALLER);
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}

void free(void *p) {
    if (p) count_block_change(-1, CALLER);
    __libc_free(p);
}

bool refuse_memory_works(void) {
    void *here[1];
    (void)backtrace(here, 1); /* loads the library that backtrace needs, once */
    return true;
}

void refuse_memory(const refusal *r) {
    state *s = r->everywhere ? &of_all : &of_thread;
    n_frames = 0;
    s->r = *r;
    atomic_store(&s->asked, 0);
    atomic_store(&s->refused, false);
    atomic_store(&s->armed, true);
    atomic_store(&everywhere, r->everywhere);
}

void record_requests(bool own) {
    void *at[DEEP];
    recorder = pthread_self();
    record_own = own;
    outer_frames = backtrace(at, DEEP) - 1;
    n_places = 0;
    recording = true;
}

long recorded_requests(void) {
    recording = false;
    return n_places;
}

bool is_of_new_place(long k) {
    if (old_places + k >= PLACES) return true;
    for (long i = 0; i < old_places + k; i++)
        if (places[i] == places[old_places + k]) return false;
    return true;
}

void forget_requests(void) {
    if (record_own) old_places += n_places;
}

bool grant_memory(void) {
    state *s = atomic_exchange(&everywhere, false) ? &of_all : &of_thread;
    atomic_store(&s->armed, false);
    return atomic_load(&s->refused);
}

long memory_blocks(bool own) { return atomic_load(own ? &own_blocks : &blocks); }

void tell_refused(void) {
    if (n_frames > 0) backtrace_symbols_fd(frames, n_frames, STDERR_FILENO);
}

#endif
