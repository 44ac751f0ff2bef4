/* isa_emulated_amx.c - the AMX set on tiles in software, for tests on machines without AMX; no user
 * can choose it. */
#include "engine/kernels/table/kernels.h"

#if defined(__AVX512F__)
#define BT_AMX_EMULATED 1
#include "engine/kernels/isa/isa_amx_set.h"

const bt_kernels bt_kernels_emulated_amx = BT_AMX_TABLE("emulated amx");
#endif
