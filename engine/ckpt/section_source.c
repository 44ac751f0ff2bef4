/* section_source.c - finds the sections that overlap a slice, and copies the overlap. */
#include "engine/ckpt/section_source.h"

#include <stdlib.h>
#include <string.h>

static int compare_sections(const void *a, const void *b) {
    const section_head *x = &((const ckpt_section *)a)->head, *y = &((const ckpt_section *)b)->head;
    int d = strcmp(x->tensor, y->tensor);
    if (d == 0) d = strcmp(x->state, y->state);
    if (d != 0) return d;
    return x->first < y->first ? -1 : x->first > y->first;
}

void ckpt_source_sort(ckpt_source *s) {
    if (s->n > 1) qsort(s->sections, s->n, sizeof *s->sections, compare_sections);
}

void ckpt_source_release(ckpt_source *s) {
    free(s->scratch);
    free(s->sections);
    s->scratch = NULL;
    s->sections = NULL;
}

static size_t lower_bound(const ckpt_source *r, const ckpt_section *key) {
    size_t lo = 0, hi = r->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compare_sections(&r->sections[mid], key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Describes a slice or section as rows of elements of its tensor; its data are contiguous. */
typedef struct rows {
    uint64_t first, count, width, stride;
} rows;

static rows describe_rows(uint64_t first, uint64_t count, uint32_t width, uint32_t stride) {
    return width ? (rows){first, count, width, stride} : (rows){first, count, count, count};
}

/* Finds the row that contains element `at`, or the next row: its beginning in the tensor and in the data. */
static bool find_element_run(const rows *x, uint64_t at, uint64_t *begin, uint64_t *data) {
    uint64_t row = at <= x->first || x->width == 0 ? 0 : (at - x->first) / x->stride;
    if (row * x->stride + x->first + x->width <= at) row++;
    *begin = x->first + row * x->stride;
    *data = row * x->width;
    return *data < x->count;
}

/* Converts elements of a section to those of a slice. */
typedef struct copying {
    size_t to_bytes, from_bytes;
    bool convert;
    bt_moment_form to, from;
} copying;

static bool choose_conversion(copying *c, uint32_t to, uint32_t from) {
    *c = (copying){.to_bytes = bt_ckpt_type_bytes(to),
                   .from_bytes = bt_ckpt_type_bytes(from),
                   .convert = to != from};
    return !c->convert || (ckpt_form_of(to, &c->to) && ckpt_form_of(from, &c->from));
}

static void copy_elements(const copying *c, unsigned char *to, uint64_t at,
                          const unsigned char *from, uint64_t from_at, uint64_t n) {
    to += at * c->to_bytes;
    from += from_at * c->from_bytes;
    if (c->convert)
        bt_moment_convert(to, c->to, from, c->from, n);
    else
        memcpy(to, from, n * c->to_bytes);
}

/* Copies the elements that both have and returns their number. from NULL: only counts them. */
static uint64_t copy_common_elements(const rows *want, unsigned char *to, const rows *have,
                                     const unsigned char *from, const copying *how) {
    uint64_t at = want->first > have->first ? want->first : have->first, n = 0, w, wd, h, hd;
    while (find_element_run(want, at, &w, &wd) && find_element_run(have, at, &h, &hd)) {
        uint64_t begin = w > h ? w : h,
                 end = w + want->width < h + have->width ? w + want->width : h + have->width;
        if (begin < at) begin = at;
        if (begin < end) {
            if (from) copy_elements(how, to, wd + (begin - w), from, hd + (begin - h), end - begin);
            n += end - begin;
        }
        at = end > at ? end : begin; /* without overlap, continues where the later one begins */
    }
    return n;
}

/* Writes a key that sorts before all sections of the slice's tensor and state. Returns false: none can exist. */
static bool first_section_key(const bt_ckpt_slice *w, ckpt_section *key) {
    memset(key, 0, sizeof *key);
    if (strlen(w->tensor) >= sizeof key->head.tensor || strlen(w->state) >= sizeof key->head.state)
        return false;
    memcpy(key->head.tensor, w->tensor, strlen(w->tensor));
    memcpy(key->head.state, w->state, strlen(w->state));
    return true;
}

static bool section_is_of(const ckpt_section *s, const bt_ckpt_slice *w) {
    return strcmp(s->head.tensor, w->tensor) == 0 && strcmp(s->head.state, w->state) == 0;
}

bool ckpt_source_touches(const ckpt_source *r, const bt_ckpt_slice *w) {
    ckpt_section key;
    if (!first_section_key(w, &key)) return false;
    const rows want = describe_rows(w->first, w->count, w->width, w->stride);
    for (size_t i = lower_bound(r, &key); i < r->n && section_is_of(&r->sections[i], w); i++) {
        const section_head *h = &r->sections[i].head;
        const rows have = describe_rows(h->first, h->count, h->width, h->stride);
        if (copy_common_elements(&want, NULL, &have, NULL, NULL) > 0) return true;
    }
    return false;
}

bt_code ckpt_source_fill(ckpt_source *r, const bt_ckpt_slice *w, bt_err *err) {
    ckpt_section key;
    if (!first_section_key(w, &key))
        return bt_fail(err, BT_ARG, "tensor name '%s' is too long for a checkpoint", w->tensor);
    const rows want = describe_rows(w->first, w->count, w->width, w->stride);
    const size_t elem = bt_ckpt_type_bytes(w->type);
    unsigned char *data = w->data;
    uint64_t filled = 0;
    bool known = false;
    copying how;
    for (size_t i = lower_bound(r, &key); i < r->n && filled < w->count; i++) {
        const ckpt_section *s = &r->sections[i];
        if (!section_is_of(s, w)) break;
        known = true;
        if (!choose_conversion(&how, w->type, s->head.type))
            return bt_fail(
                err, BT_FORMAT,
                "'%s' (%s) of the checkpoint '%s' has elements of %d bytes instead of %zu",
                w->tensor, w->state, r->name, (int)s->head.elem_bytes, elem);
        if (s->head.tensor_elems != w->tensor_elems)
            return bt_fail(err, BT_FORMAT,
                           "'%s' of the checkpoint '%s' has %llu elements, but in this model %llu: "
                           "the shapes of the models differ",
                           w->tensor, r->name, (unsigned long long)s->head.tensor_elems,
                           (unsigned long long)w->tensor_elems);
        const rows have = describe_rows(s->head.first, s->head.count, s->head.width,
                                        s->head.stride);
        if (copy_common_elements(&want, NULL, &have, NULL, &how) == 0) continue;
        if (!how.convert && !w->width && !s->head.width && have.first >= want.first &&
            have.first + have.count <= want.first + want.count) {
            BT_TRY(r->read(r, s, data + (have.first - want.first) * elem, err));
            filled += have.count;
            continue;
        }
        // NOLINTNEXTLINE(clang-analyzer-unix.MallocSizeof): n floats as bytes
        if (!r->scratch && !(r->scratch = malloc(CKPT_SECTION_ELEMS * sizeof(float))))
            return bt_fail(err, BT_NOMEM, "cannot allocate the buffer to read '%s'", r->name);
        if (!r->holds_any || r->in_scratch != i) {
            r->holds_any = false;
            BT_TRY(r->read(r, s, r->scratch, err));
            r->in_scratch = i;
            r->holds_any = true;
        }
        filled += copy_common_elements(&want, data, &have, r->scratch, &how);
    }
    if (!known && w->optional) {
        memset(data, 0, w->count * elem);
        return BT_OK;
    }
    if (filled != w->count)
        return bt_fail(
            err, BT_FORMAT,
            "the checkpoint '%s' contains only %llu of the %llu requested elements of '%s' (%s)",
            r->name, (unsigned long long)filled, (unsigned long long)w->count, w->tensor, w->state);
    return BT_OK;
}
