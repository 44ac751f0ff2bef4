/* dispatch.c - merges the kernel sets that this CPU and the user allow, from slowest to fastest, and records which
 * set fills each slot. */
#include <stdlib.h>
#include <string.h>

#include "engine/kernels/isa/blas.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"

enum slot {
#define BT_SLOT(name) SLOT_##name,
#define BT_TERN_SLOT(name) SLOT_##name,
#include "engine/kernels/table/slots.def"
#undef BT_SLOT
#undef BT_TERN_SLOT
    SLOT_COUNT
};

static const char *const slot_names[SLOT_COUNT] = {
#define BT_SLOT(name) #name,
#define BT_TERN_SLOT(name) #name,
#include "engine/kernels/table/slots.def"
#undef BT_SLOT
#undef BT_TERN_SLOT
};

enum { AVX2 = 2, AVX512, AMX, NEON, SETS };

/* one value of --isa: the fastest set that it allows, and the extensions that it hides */
typedef struct cap {
    const char *name;
    size_t set;
    unsigned hide;
} cap;
static const cap caps[] = {
    {"generic", 0, 0},
    {"blas", 1, 0},
    {"avx2-plain", AVX2, BT_HIDE_AVX_VNNI}, /* Haswell to Zen 3 */
    {"avx2", AVX2, 0},
    {"avx512-plain", AVX512, BT_HIDE_VNNI | BT_HIDE_BF16}, /* Skylake-X */
    {"avx512-vnni", AVX512, BT_HIDE_BF16},                 /* Cascade Lake, Ice Lake */
    {"avx512", AVX512, 0},
    {"amx", AMX, 0},
    {"neon-plain", NEON, BT_HIDE_DOTPROD | BT_HIDE_I8MM}, /* Cortex-A53 to A73 */
    {"neon-dotprod", NEON, BT_HIDE_I8MM},                 /* Cortex-A76, Neoverse N1, Apple M1 */
    {"neon", NEON, 0},
};
enum { CAPS = sizeof caps / sizeof *caps };

static bool is_auto_isa(const char *isa) { return !isa || !isa[0] || strcmp(isa, "auto") == 0; }
/* Returns NULL for "auto" if there is no vector set, and for an unknown word. */
static const cap *cap_of(const char *isa) {
    if (is_auto_isa(isa)) isa = bt_kernels_auto_isa(bt_cpu_found());
    for (size_t i = 0; i < CAPS; i++)
        if (strcmp(isa, caps[i].name) == 0) return &caps[i];
    return NULL;
}
const char *bt_kernels_isa_name(size_t i) {
    return i == 0 ? "auto" : i <= CAPS ? caps[i - 1].name : NULL;
}

static struct {
    bt_kernels table;
    const bt_kernels *used[SETS]; /* sets that were merged, slowest first */
    size_t n_used;
    const char *winner[SLOT_COUNT];
    bool ready;
} choice;

/* Returns NULL if the processor lacks this set. */
static const bt_kernels *set_on(size_t i, const bt_cpu *c) {
    bool avx2 = c->avx2 && c->fma && c->f16c, avx512 = avx2 && c->avx512,
         amx = avx512 && c->avx512_bf16 && c->amx_int8 && c->amx_bf16;
    switch (i) {
    case 0: return &bt_kernels_generic;
    case 1: return bt_kernels_blas();
#ifdef BT_HAVE_AVX2
    case AVX2: return avx2 ? &bt_kernels_avx2 : NULL;
#endif
#ifdef BT_HAVE_AVX512
    case AVX512: return avx512 ? &bt_kernels_avx512 : NULL;
#endif
#ifdef BT_HAVE_AMX
    case AMX: return amx ? &bt_kernels_amx : NULL;
#endif
#ifdef BT_HAVE_NEON
    case NEON: return c->neon ? &bt_kernels_neon : NULL;
#endif
    default: (void)avx512, (void)amx; return NULL;
    }
}
static const bt_kernels *set_at(size_t i) { return set_on(i, bt_cpu_found()); }

const char *bt_kernels_auto_isa(const bt_cpu *c) {
    size_t best = SETS - 1;
    while (best > 1 && !set_on(best, c)) best--;
    return best == NEON     ? "neon"
           : best == AMX    ? "amx"
           : best == AVX512 ? (c->bf16_slow ? "avx512-vnni" : "avx512")
           : best == AVX2   ? "avx2"
                            : "auto";
}

static size_t merged_scratch(size_t M, size_t N, size_t K, size_t T, size_t D) {
    size_t most = 0;
    for (size_t i = 0; i < choice.n_used; i++) {
        size_t n = choice.used[i]->scratch_bytes(M, N, K, T, D);
        if (n > most) most = n;
    }
    return most;
}

static void merge_set(const bt_kernels *set) {
    bt_kernels *t = &choice.table;
    bool tern = set->tern_bytes && set->tern_pack && set->packed_2bit_bytes &&
                set->packed_2bit_pack && set->packed_2bit_codes && set->tern_fwd && set->tern_dx &&
                set->tern_dx8 && set->w8_bytes && set->w8_pack && set->w8_dx8 && set->w8_fwd;
    choice.used[choice.n_used++] = set;
    t->name = set->name;
    if (set->gemm) t->row_grain = set->row_grain, t->multiplies_bf16 = set->multiplies_bf16;
#define BT_SLOT(slot) \
    if (set->slot) { \
        t->slot = set->slot; \
        choice.winner[SLOT_##slot] = set->name; \
    }
#define BT_TERN_SLOT(slot) \
    if (tern) { \
        t->slot = set->slot; \
        choice.winner[SLOT_##slot] = set->name; \
    }
#include "engine/kernels/table/slots.def"
#undef BT_SLOT
#undef BT_TERN_SLOT
    t->scratch_bytes = merged_scratch;
}

static void choose_kernels(void) {
    memset(&choice, 0, sizeof choice);
    merge_set(&bt_kernels_generic);
    choice.ready = true;
}

/* Returns the reason for which the requested kernel set i is not available on this machine. */
static const char *missing_feature(size_t i) {
    const bt_cpu *c = bt_cpu_found();
    if (i == NEON) return "it has no NEON";
    if (i == AMX && c->avx512 && !c->amx_tile)
        return "no AMX here, or the system gives no permission for its tiles";
    if (i == AMX && c->avx512)
        return "AMX for int8 and bf16, and AVX-512 with bf16, are needed together";
    return i >= AVX512 ? "no AVX-512 (F, BW, VL, DQ) here" : "no AVX2 with FMA and F16C here";
}

bt_code bt_kernels_select(const char *isa, bt_err *err) {
    const bool automatic = is_auto_isa(isa);
    const cap *wanted = cap_of(isa);
    const size_t best = wanted ? wanted->set : 0;
    if (!automatic && !wanted)
        return bt_fail(err, BT_ARG, "unknown kernel set '%s' (" BT_ISA_WORDS ")", isa);
    if (wanted && !set_at(wanted->set)) {
        if (wanted->set == 1) BT_TRY(bt_blas_load(err));
        return bt_fail(err, BT_UNSUPPORTED,
                       "kernel set '%s' does not run on this processor (%s): %s (--isa auto takes "
                       "the fastest that does)",
                       isa, bt_cpu_get()->model, missing_feature(wanted->set));
    }
    bt_cpu_hide(wanted ? wanted->hide : 0);
    /* OpenBLAS is loaded only if no vector set is used, because vector sets have every product */
    bool vector = false;
    for (size_t i = 2; i <= best; i++)
        if (set_at(i) && set_at(i)->gemm && set_at(i)->tern_fwd && set_at(i)->attn_fwd)
            vector = true;
    choose_kernels();
    for (size_t i = 1; i <= (automatic && best == 0 ? 1 : best); i++) {
        if (i == 1 && vector) continue;
        const bt_kernels *set = set_at(i);
        if (set) merge_set(set);
    }
    if (wanted && wanted->hide) choice.table.name = wanted->name;
    return BT_OK;
}

bt_isa_level bt_kernels_level(const char *isa) {
    static const bt_isa_level of_set[SETS] = {BT_LEVEL_GENERIC, BT_LEVEL_BLAS, BT_LEVEL_AVX2,
                                              BT_LEVEL_AVX512,  BT_LEVEL_AMX,  BT_LEVEL_AVX2};
    const cap *wanted = cap_of(isa);
    const size_t set = wanted ? wanted->set : set_at(1) ? 1 : 0;
    const bool bf16 = bt_cpu_found()->avx512_bf16 && !(wanted && wanted->hide & BT_HIDE_BF16);
    return set == AVX512 && bf16 ? BT_LEVEL_AVX512_BF16 : of_set[set];
}

const char *bt_kernels_level_isa(bt_isa_level level) {
    static const char *const words[BT_LEVEL_COUNT] = {
        [BT_LEVEL_GENERIC] = "generic",
        [BT_LEVEL_BLAS] = "blas",
#if defined(__aarch64__)
        [BT_LEVEL_AVX2] = "neon",
#else
        [BT_LEVEL_AVX2] = "avx2",
#endif
        [BT_LEVEL_AVX512] = "avx512-vnni",
        [BT_LEVEL_AVX512_BF16] = "avx512",
        [BT_LEVEL_AMX] = "amx"
    };
    return words[level];
}

bool bt_kernels_int8_pays(const char *isa) {
    const cap *wanted = cap_of(isa);
    return wanted && wanted->set >= AVX2 && set_at(wanted->set);
}

bool bt_kernels_int8_attention_pays(const char *isa) {
    const cap *wanted = cap_of(isa);
    const bt_cpu *c = bt_cpu_found();
    if (!wanted || bt_kernels_level(isa) == BT_LEVEL_AVX512_BF16) return false;
    return (wanted->set == AVX512 && c->avx512_vnni && !(wanted->hide & BT_HIDE_VNNI)) ||
           (wanted->set == NEON && c->dotprod && !(wanted->hide & BT_HIDE_DOTPROD)) ||
           (wanted->set == AVX2 && c->avx_vnni && !(wanted->hide & BT_HIDE_AVX_VNNI));
}

bool bt_kernels_multiply_bf16(void) {
    const bt_kernels *k = bt_active_kernels();
    return k->multiplies_bf16 && k->multiplies_bf16();
}

const bt_kernels *bt_active_kernels(void) {
    if (!choice.ready) choose_kernels();
    return &choice.table;
}

const char *bt_kernels_isa(void) { return bt_active_kernels()->name; }
size_t bt_kernels_slots(void) { return SLOT_COUNT; }
const char *bt_kernels_slot_name(size_t i) { return i < SLOT_COUNT ? slot_names[i] : ""; }

const char *bt_kernels_slot_winner(size_t i) {
    (void)bt_active_kernels();
    return i < SLOT_COUNT ? choice.winner[i] : "";
}
