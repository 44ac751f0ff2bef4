/* loss_scale.h - fp16 training: the loss is multiplied by a power of two before backward, so that small gradients
 * are within fp16's range, and gradients are divided by it before the norm and the update.
 *
 *     all gradients finite        good step; after `every` of them in a row the scale doubles
 *     some gradient is not        overflow: the step is not applied, the scale is halved
 *
 * Every rank has the same scale, because every rank computes the same gradient norm; a power of two changes no bit
 * of a gradient that is inside the range of fp32. Latent weights, moments and sums are always fp32.
 * Threads: one owner. */
#ifndef BT_ENGINE_OPTIM_LOSS_SCALE_H
#define BT_ENGINE_OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#define BT_LOSS_SCALE_MOST 0x1p40 /* far above the limit of any fp16 product */

typedef struct bt_loss_scale {
    bool on; /* false: the scale is always 1 */
    double value;
    int64_t good,
        every; /* good steps since the last change; number after which the scale doubles */
} bt_loss_scale;

/* Returns true for a valid scale: a power of two, 1 .. BT_LOSS_SCALE_MOST. */
bool bt_loss_scale_is(double value);
void bt_loss_scale_init(bt_loss_scale *s, bool on, double first, int64_t every);
/* Reports a non-finite gradient. Returns false if the scale cannot be the cause (off, or 1 already). */
bool bt_loss_scale_overflow(bt_loss_scale *s);
/* Reports an applied step; returns true if the scale grew. */
bool bt_loss_scale_good(bt_loss_scale *s);

#endif
