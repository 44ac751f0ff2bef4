/* checked_locks.c - part of every unit test: checks the program's use of mutexes and threads. Unlocking a mutex that
 * another thread holds, locking one twice, destroying a locked one, or joining a thread that does not exist aborts the
 * test; a mutex that is not destroyed makes the test fail. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef __SANITIZE_THREAD__ /* ThreadSanitizer defines these functions itself and checks more. */

/* The linker defines these limits of the program's code. */
extern const char __executable_start, etext;

static int (*make)(pthread_mutex_t *, const pthread_mutexattr_t *);
static int (*take)(pthread_mutex_t *);
static int (*give)(pthread_mutex_t *);
static int (*drop)(pthread_mutex_t *);
static int (*join)(pthread_t, void **);
static atomic_int there; /* mutexes that the program has created and not destroyed */
static pid_t owner;

__attribute__((constructor(101))) static void find(void) {
    *(void **)&make = dlsym(RTLD_NEXT, "pthread_mutex_init");
    *(void **)&take = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    *(void **)&give = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    *(void **)&drop = dlsym(RTLD_NEXT, "pthread_mutex_destroy");
    *(void **)&join = dlsym(RTLD_NEXT, "pthread_join");
    owner = getpid();
}

__attribute__((destructor)) static void end(void) {
    if (getpid() != owner || atomic_load(&there) <= 0) return;
    fprintf(stderr, "checked_locks: %d mutexes were not destroyed\n", atomic_load(&there));
    fflush(NULL);
    _exit(1);
}

static bool is_own(const void *caller) {
    const char *at = caller;
    return at >= &__executable_start && at < &etext;
}

static void check_or_abort(bool well, const char *what) {
    if (well) return;
    fprintf(stderr, "checked_locks: %s\n", what);
    abort();
}

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
    pthread_mutexattr_t checked;
    if (!make) find();
    if (a || !is_own(__builtin_return_address(0))) return make(m, a);
    atomic_fetch_add(&there, 1);
    pthread_mutexattr_init(&checked);
    pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
    const int code = make(m, &checked);
    pthread_mutexattr_destroy(&checked);
    return code;
}

int pthread_mutex_destroy(pthread_mutex_t *m) {
    if (!drop) find();
    const int code = drop(m);
    if (is_own(__builtin_return_address(0))) atomic_fetch_sub(&there, 1);
    check_or_abort(code != EBUSY, "a mutex is destroyed while it is locked");
    return code;
}

int pthread_mutex_lock(pthread_mutex_t *m) {
    if (!take) find();
    const int code = take(m);
    check_or_abort(code != EDEADLK, "a thread locks a mutex that it holds already");
    return code;
}

int pthread_mutex_unlock(pthread_mutex_t *m) {
    if (!give) find();
    const int code = give(m);
    check_or_abort(code != EPERM, "a thread unlocks a mutex that it does not hold");
    return code;
}

int pthread_join(pthread_t t, void **result) {
    if (!join) find();
    const int code = join(t, result);
    check_or_abort(code == 0 || !is_own(__builtin_return_address(0)),
                   "a thread is joined that does not exist");
    return code;
}

#endif
