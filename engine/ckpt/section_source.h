/* section_source.h - reads slices of any layout from sections of another layout, in files or in memory. Private to
 * engine/ckpt. */
#ifndef BT_ENGINE_CKPT_SECTION_SOURCE_H
#define BT_ENGINE_CKPT_SECTION_SOURCE_H

#include "engine/ckpt/format.h"

typedef struct ckpt_source {
    const char *name; /* for messages; borrowed */
    ckpt_section
        *sections; /* (n) malloc'ed; sorted by (tensor, state, first) before the first fill */
    size_t n;
    /* Reads the data of a section, compared with its hash, into out (count elements). */
    bt_code (*read)(struct ckpt_source *s, const ckpt_section *x, void *out, bt_err *err);
    unsigned char *scratch; /* buffer for the longest section, allocated on first use */
    size_t in_scratch;      /* index of the section in `scratch`, if holds_any */
    bool holds_any;
} ckpt_source;

void ckpt_source_sort(ckpt_source *s);
/* Returns true if the source has an element of the slice. */
bool ckpt_source_touches(const ckpt_source *s, const bt_ckpt_slice *w);
/* Reads every element of the slice; BT_FORMAT if one is missing. */
bt_code ckpt_source_fill(ckpt_source *s, const bt_ckpt_slice *w, bt_err *err) BT_MUST_CHECK;
void ckpt_source_release(ckpt_source *s);

#endif
