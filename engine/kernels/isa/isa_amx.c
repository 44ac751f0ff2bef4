/* isa_amx.c - the AMX set on real tiles (isa_amx_set.h). */
#include "engine/kernels/table/kernels.h"

/* clang before 15 defines these macros without the second underscore */
#if ((defined(__AMX_INT8__) && defined(__AMX_BF16__)) || \
     (defined(__AMXINT8__) && defined(__AMXBF16__))) && \
    defined(__AVX512F__)
#include "engine/kernels/isa/isa_amx_set.h"

const bt_kernels bt_kernels_amx = BT_AMX_TABLE("amx");
#endif
