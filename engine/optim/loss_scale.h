/* loss_scale.h - loss scale of fp16 training: the loss is multiplied by a power of two before backward, so that small
 * gradients are within the range of fp16, and gradients are divided by it before norm and update.
 *
 *     all gradients finite        good step; after `every` of them in a row the scale doubles
 *     a gradient is not finite    overflow: the step is not applied, and the scale is halved
 *
 * Every rank has the same scale, because all compute the same gradient norm. A power of two changes no bits of a
 * gradient within the range of fp32. Latent weights, moments and sums are always fp32.
 * Threads: one owner. */
#ifndef BT_ENGINE_OPTIM_LOSS_SCALE_H
#define BT_ENGINE_OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#define BT_LOSS_SCALE_MOST 0x1p40 /* far above the limit of any fp16 product */

typedef struct bt_loss_scale {
    bool on; /* false: the scale is always 1 */
    double value;
    /* number of good steps since the last change; number after which the scale doubles */
    int64_t good, every;
} bt_loss_scale;

/* Returns true for a valid scale: a power of two from 1 to BT_LOSS_SCALE_MOST. */
bool bt_loss_scale_is(double value);
void bt_loss_scale_init(bt_loss_scale *s, bool on, double first, int64_t every);
/* Called after a gradient that is not finite. false: the scale is off or 1, so not the cause. */
bool bt_loss_scale_overflow(bt_loss_scale *s);
/* Called after an applied step. Returns true if the scale has grown. */
bool bt_loss_scale_good(bt_loss_scale *s);

#endif
