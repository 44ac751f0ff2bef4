/* out_file.h - a file while it is written: under a temporary name, with its space reserved first, so that a full disk
 * is detected before any write; and functions that write tensors of a model into it. Threads: one caller, which has the
 * thread pool. */
#ifndef BT_ENGINE_INTEROP_OUT_FILE_H
#define BT_ENGINE_INTEROP_OUT_FILE_H

#include "engine/interop/model_file.h"

typedef struct bt_out_file {
    char path[4400];
    int fd;
} bt_out_file;

/* BT_BUSY if DEST exists. part receives a temporary name beside it, which is unique to this process. */
bt_code bt_out_prepare(const char *dest, char part[4200], bt_err *err) BT_MUST_CHECK;
bt_code bt_out_open(bt_out_file *f, const char *path, uint64_t bytes, bt_err *err) BT_MUST_CHECK;
bt_code bt_out_put(const bt_out_file *f, const void *data, size_t n, uint64_t at, bt_err *err)
    BT_MUST_CHECK;
/* Writes the file to the disk and closes it. If code is an error, only closes it. */
bt_code bt_out_close(bt_out_file *f, bt_code code, bt_err *err) BT_MUST_CHECK;

/* The format of a written tensor. */
typedef struct bt_form {
    bt_number number;
    bt_row_order order;
    bool quantise;  /* codes times their scale instead of latent weights */
    bool unit;      /* quantise: codes times 1, while the scale is written separately */
    float subtract; /* subtracted from every element that is not a code */
} bt_form;

uint64_t bt_form_bytes(const bt_tensor *t, const bt_form *form);
/* Returns the absmean of a ternary tensor, as the model computes it. x: all its elements. */
float bt_absmean(const bt_tensor *t, const float *x);
/* Writes tensor i at byte `at`. scale (or NULL): receives that of its codes, or of each row. */
bt_code bt_tensor_write(bt_model_file *s, size_t i, const bt_form *form, const bt_out_file *f,
                        uint64_t at, float *scale, bt_err *err) BT_MUST_CHECK;

#endif
