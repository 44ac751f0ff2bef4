/* section_source.h - reads slices of any layout from sections of another one, in files or memory. For engine/ckpt. */
#ifndef BT_ENGINE_CKPT_SECTION_SOURCE_H
#define BT_ENGINE_CKPT_SECTION_SOURCE_H

#include "engine/ckpt/format.h"

typedef struct ckpt_source {
    const char *name; /* for errors; borrowed */
    /* (n) allocated; sorted by (tensor, state, first) before the first fill */
    ckpt_section *sections;
    size_t n;
    /* Reads the data of a section into out (count elements) and compares them with their hash. */
    bt_code (*read)(struct ckpt_source *s, const ckpt_section *x, void *out, bt_err *err);
    unsigned char *scratch; /* buffer for the longest section; allocated on first use */
    size_t in_scratch;      /* index of the section in `scratch`, if holds_any */
    bool holds_any;
} ckpt_source;

void ckpt_source_sort(ckpt_source *s);
bool ckpt_source_touches(const ckpt_source *s, const bt_ckpt_slice *w);
/* Reads every element of the slice. BT_FORMAT: one is missing. */
bt_code ckpt_source_fill(ckpt_source *s, const bt_ckpt_slice *w, bt_err *err) BT_MUST_CHECK;
void ckpt_source_release(ckpt_source *s);

#endif
