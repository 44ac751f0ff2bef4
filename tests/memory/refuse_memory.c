/* refuse_memory.c - malloc and related functions that can refuse a request. */
#include "tests/memory/refuse_memory.h"

#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__

bool refuse_memory_works(void) { return false; }
void refuse_memory(const refusal *r) { (void)r; }
bool grant_memory(void) { return false; }
long memory_blocks(bool own) { return own ? 0 : 0; }
void tell_refused(void) {}

#else

/* the C library's functions, by the names under which a replacement of malloc may call them */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);
/* limits of the program's code, defined by the linker */
extern const char __executable_start, etext;

enum { FRAMES = 24 };

typedef struct state {
    refusal r;
    atomic_long asked;
    atomic_bool armed, refused;
} state;
static _Thread_local state of_thread; /* of the thread that called refuse_memory */
static state of_all;
static atomic_bool everywhere;
static atomic_long blocks, own_blocks;
static void *frames[FRAMES];
static int n_frames;

static bool is_own(const void *caller) {
    const char *at = caller;
    return at >= &__executable_start && at < &etext;
}

static bool refuses(const void *caller) {
    state *s = atomic_load(&everywhere) ? &of_all : &of_thread;
    if (!atomic_load(&s->armed) || (s->r.own && !is_own(caller))) return false;
    const long k = atomic_fetch_add(&s->asked, 1);
    if (k < s->r.after || (k > s->r.after && !s->r.all)) return false;
    if (!atomic_exchange(&s->refused, true)) {
        atomic_store(&s->armed, false); /* Reading the stack may allocate. */
        n_frames = backtrace(frames, FRAMES);
        atomic_store(&s->armed, true);
    }
    errno = ENOMEM;
    return true;
}

static void count(long n, const void *caller) {
    atomic_fetch_add(&blocks, n);
    if (is_own(caller)) atomic_fetch_add(&own_blocks, n);
}

static void *counted(void *p, const void *caller) {
    if (p) count(1, caller);
    return p;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t n) { return refuses(CALLER) ? NULL : counted(__libc_malloc(n), CALLER); }

void *calloc(size_t n, size_t size) {
    return refuses(CALLER) ? NULL : counted(__libc_calloc(n, size), CALLER);
}

void *realloc(void *p, size_t n) {
    if (refuses(CALLER)) return NULL;
    void *q = __libc_realloc(p, n);
    if (!p) return counted(q, CALLER);
    if (n == 0 && !q) count(-1, CALLER);
    return q;
}

void *aligned_alloc(size_t align, size_t n) {
    return refuses(CALLER) ? NULL : counted(__libc_memalign(align, n), CALLER);
}

int posix_memalign(void **out, size_t align, size_t n) {
    void *p = refuses(CALLER) ? NULL : counted(__libc_memalign(align, n), CALLER);
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}

void free(void *p) {
    if (p) count(-1, CALLER);
    __libc_free(p);
}

bool refuse_memory_works(void) {
    void *here[1];
    (void)backtrace(here, 1); /* Loads what backtrace needs, once. */
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
