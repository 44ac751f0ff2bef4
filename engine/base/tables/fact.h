/* fact.h - facts of a run for people, by facts.def. Any thread. */
#ifndef BT_ENGINE_BASE_TABLES_FACT_H
#define BT_ENGINE_BASE_TABLES_FACT_H

#include <stdbool.h>
#include <stddef.h>

/* "1.23 TFLOP/s" for ("peak_flops", "1.2312e+12"); a value without a row, or that is not a number, is unchanged.
 * Returns buf. */
const char *bt_fact_format(char *buf, size_t size, const char *key, const char *value);
/* a setting's value as displayed: "0.00133333" for "0.0013333333333333333"; text that is not a number is
 * unchanged, "-" for NULL. Returns buf. */
const char *bt_setting_format(char *buf, size_t size, const char *value);
/* measured figures within the noise of their measurement are the same, other texts when they are
 * equal; NULL: the run has no such fact */
bool bt_fact_same(const char *key, const char *a, const char *b);
/* the factor within which two values of this fact are the same; 0: it is exact */
double bt_fact_noise(const char *key);

#endif
