/* spark.h - private to store/: the small loss curve in lists of runs. */
#ifndef BT_STORE_WRITE_SPARK_H
#define BT_STORE_WRITE_SPARK_H

#include <stddef.h>
#include <stdint.h>

enum { BT_SPARK_POINTS = 64, BT_SPARK_TEXT = BT_SPARK_POINTS * 16 + 8 };

/* Point i covers the steps [i, i+1) * stride; NaN: no values. */
typedef struct bt_spark {
    double at[BT_SPARK_POINTS];
    int n;
    int64_t stride; /* 1 at the beginning; a power of two */
} bt_spark;

void bt_spark_add(bt_spark *s, int64_t step, double value);
/* Convert to and from "[3.1,null,2.9]"; last_step: newest step of the run. */
void bt_spark_text(const bt_spark *s, char *out, size_t size);
void bt_spark_parse(bt_spark *s, const char *text, int64_t last_step);

#endif
