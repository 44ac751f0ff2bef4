/* tb_file.h - a TensorBoard event file: scalars, texts, histograms and the settings of a run.
 *
 * Errors:  the stream's error indicator, and bt_tb_failed for memory; check both once at the end.
 * Owns:    buffers, not the stream. Threads: one caller. Cost: no allocation after the largest event. */
#ifndef BT_STORE_EXPORT_TB_FILE_H
#define BT_STORE_EXPORT_TB_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "engine/base/text.h"

typedef struct bt_tb_file {
    FILE *f;
    bt_text part[5]; /* messages by depth, the event first */
} bt_tb_file;

/* time of an event in seconds since 1970, and its step, counted from 1 as on screens */
typedef struct bt_tb_at {
    double wall_s;
    int64_t step;
} bt_tb_at;

enum { BT_TB_BINS = 64 };
typedef struct bt_tb_bins {
    double limit[BT_TB_BINS]; /* upper edge of a bin, ascending */
    double count[BT_TB_BINS];
    double least; /* lower edge of the first bin */
    int n;
} bt_tb_bins;

typedef enum { BT_TB_SUCCESS = 1, BT_TB_FAILURE = 2, BT_TB_RUNNING = 3 } bt_tb_status;

void bt_tb_init(bt_tb_file *t, FILE *f, double wall_s); /* writes the version */
void bt_tb_release(bt_tb_file *t);
bool bt_tb_failed(const bt_tb_file *t);

void bt_tb_scalar(bt_tb_file *t, bt_tb_at at, const char *tag, double value);
void bt_tb_text(bt_tb_file *t, bt_tb_at at, const char *tag, const char *text);
/* Writes bins with a count only; nothing if all are empty. */
void bt_tb_histogram(bt_tb_file *t, bt_tb_at at, const char *tag, const bt_tb_bins *bins);
/* Writes the settings for the page HPARAMS, each with a text or a number (text NULL), and how the run ended. */
typedef struct bt_tb_setting {
    const char *name, *text;
    double number;
} bt_tb_setting;
void bt_tb_settings(bt_tb_file *t, double wall_s, const char *run, const bt_tb_setting *s,
                    size_t n);
void bt_tb_ended(bt_tb_file *t, double wall_s, bt_tb_status status);

uint32_t bt_crc32c(const void *data, size_t n);

#endif
