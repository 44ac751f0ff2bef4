/* cpu_arm.h - names and features of ARM processors, for cpu.c. */
#ifndef BT_ENGINE_KERNELS_TABLE_CPU_ARM_H
#define BT_ENGINE_KERNELS_TABLE_CPU_ARM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/table/cpu.h"

/* Fills vendor, model, family, model_number and the features of ARM from this system. */
void bt_cpu_read_arm(bt_cpu *c);

/* The name of the core that a value of MIDR_EL1 identifies, "" if the table has no row for it, and its vendor, "" if
 * unknown. */
const char *bt_cpu_arm_core(uint64_t midr, const char **vendor);

/* Joins the names of n kinds of cores: "Cortex-A76 and Cortex-A55". A core without a row becomes "ARM core
 * 0xd0b". The same name is written once; names without room are left out. */
void bt_cpu_arm_model(const uint64_t *midr, size_t n, char *out, size_t size);

#endif
