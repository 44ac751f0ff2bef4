/* blas.h - OpenBLAS, loaded at run time. The core type must be in the environment before the library is loaded,
 * because Debian's 0.3.21 does not recognise recent CPUs and then uses its Prescott kernels, at a fifth of the
 * speed. */
#ifndef BT_ENGINE_KERNELS_ISA_BLAS_H
#define BT_ENGINE_KERNELS_ISA_BLAS_H

#include "engine/base/status.h"

/* loads the library once and sets one BLAS thread, because our thread pool divides the work. BT_UNSUPPORTED when the
 * library is missing. */
bt_code bt_blas_load(bt_err *err) BT_MUST_CHECK;
const char *bt_blas_corename(void); /* core name reported by the library, "" if not loaded */
const char *bt_blas_config(void);   /* version and build options of OpenBLAS */

#endif
