/* fact.h - formats facts of a run for display and compares them, by the rows of facts.def. Any thread. */
#ifndef BT_ENGINE_BASE_TABLES_FACT_H
#define BT_ENGINE_BASE_TABLES_FACT_H

#include <stdbool.h>
#include <stddef.h>

/* Returns buf with, for example, "1.23 TFLOP/s" for ("peak_flops", "1.2312e+12"). A value without a row, or that is not
 * a number, is copied unchanged. */
const char *bt_fact_format(char *buf, size_t size, const char *key, const char *value);
/* Returns buf with a setting's value for display: "0.00133333" for "0.0013333333333333333". Text that is not a number
 * is copied unchanged; NULL is "-". */
const char *bt_setting_format(char *buf, size_t size, const char *value);
/* Returns true if measured values differ by at most their noise, or texts are equal. NULL: there is no such fact. */
bool bt_fact_same(const char *key, const char *a, const char *b);
/* Returns the factor within which two values of a fact count as equal; 0: they must be equal. */
double bt_fact_noise(const char *key);

#endif
