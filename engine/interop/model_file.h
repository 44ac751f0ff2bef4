/* model_file.h - a model to read: our checkpoint, a folder of Hugging Face, a GGUF file. Every format has the same
 * interface here: a shape, a tokenizer, and the elements of our tensors (params.def) as fp32.
 *
 * Order:    open -> read* -> close. `read` takes any stretch of any tensor, in our row order; what is
 *           kept in memory is a buffer of about a MiB, never a tensor.
 * Codes:    files that hold -1, 0, 1 and a scale s give latent weights of which absmean
 *           quantisation makes those codes and that scale again: 0, and +-s * n / (non-zero codes),
 *           whose mean of |w| is s. The first read of such a tensor reads it once more, to count;
 *           bt_model_file_codes reads it once. With cfg.scale all of this holds for each row or group.
 * Owns:     open files, tensor table, tokenizer. Threads: one caller. */
#ifndef BT_ENGINE_INTEROP_MODEL_FILE_H
#define BT_ENGINE_INTEROP_MODEL_FILE_H

#include "engine/base/text.h"
#include "engine/ckpt/ckpt.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/interop/formats/stored.h"

typedef enum { BT_IN_NATIVE, BT_IN_HF, BT_IN_GGUF } bt_container;

/* Order of a tensor's rows in its file: the model's; GGUF's pairs (rows of q and k of the architecture llama); Hugging
 * Face's
 * four rows in a byte. */
typedef enum { BT_ROWS_PLAIN, BT_ROWS_TURNED, BT_ROWS_PACKED } bt_row_order;

typedef struct bt_stored_location {  /* position of one of the model's tensors */
    const bt_stored *stored, *scale; /* scale: a tensor of one element, or of one a row; or NULL */
    bt_row_order order;
    bool inverse; /* values are divided by the scale */
    bool coded;   /* only -s, 0, s occur, in the whole tensor or in each row or group (cfg.scale) */
    size_t inputs;    /* coded: number of inputs of a row with one scale; 0: the tensor has one */
    float add;        /* added to every element: the offset of a norm's gain */
    bool counted;     /* the following arrays are filled */
    float *s, *level; /* (1), or those of all rows or groups */
} bt_stored_location;

typedef struct bt_model_file bt_model_file;

/* Replaces the reading of a linear layer's tensor (tune/merge.h). All NULL: the values of the file. */
typedef struct bt_model_view {
    void *ctx;
    bt_code (*read)(void *ctx, bt_model_file *s, size_t i, uint64_t first, uint64_t count,
                    float *out, bt_err *err);
    bt_code (*scale)(void *ctx, bt_model_file *s, size_t i, float *scale, bt_err *err);
    void (*release)(void *ctx);
} bt_model_view;

/* Receives the progress of a conversion, or of reading a model into memory. progress NULL: no reports. */
typedef struct bt_model_watch {
    void (*progress)(void *ctx, double done); /* 0..1, called by the working thread at intervals */
    void *ctx;
    uint64_t elems; /* elements so far */
} bt_model_watch;

struct bt_model_file {
    bt_container container;
    char path[4096];
    bt_arch arch; /* BT_ARCH_COUNT for a native checkpoint */
    bt_model_cfg cfg;
    bt_params params;
    bt_tokenizer *tokenizer; /* NULL: there is none, or none that can be used */
    bt_err no_tokenizer;     /* why there is no tokenizer */
    bt_token_roles
        roles; /* read from the files beside the weights; the tokenizer, if there is one, has them as well */
    bt_text notes;    /* one line for each property of the file that the user should check */
    bt_number number; /* type of most elements of the matrices */
    /* files of other programs */
    bt_stored_list stored;
    bt_stored_location *places; /* [params.n] */
    float *row;
    bool doubted; /* a note reports implausible scales */
    bool
        recognised; /* ternary because of the values of its floats alone (bt_model_file_recognise) */
    /* a native checkpoint */
    bt_ckpt_reader *ckpt;
    bt_ckpt_meta meta;
    bt_text passed_over; /* one line for each newer checkpoint that is damaged, with the reason */
    bt_model_view view;
    bt_model_watch watch;
};

/* Returns the kind of the model at a path, without opening it: a folder with config.json, a GGUF file, or otherwise a
 * native
 * checkpoint. */
bt_container bt_model_file_kind(const char *path);
bt_code bt_model_file_open(bt_model_file **out, const char *path, bt_err *err) BT_MUST_CHECK;
/* Sets the tokenizer's special tokens from the model's files; a note lists those that do not fit. */
void bt_model_file_give_roles(bt_model_file *s);
void bt_model_file_close(bt_model_file *s);
/* Reads elements first .. first+count of tensor i of `params`. */
bt_code bt_model_file_read(bt_model_file *s, size_t i, uint64_t first, uint64_t count, float *out,
                           bt_err *err) BT_MUST_CHECK;
/* Reads the values of the file, without the view. */
bt_code bt_model_file_read_own(bt_model_file *s, size_t i, uint64_t first, uint64_t count,
                               float *out, bt_err *err) BT_MUST_CHECK;
/* the scale of a tensor that holds codes, else 0; with cfg.scale those of all rows or groups */
bt_code bt_model_file_scale(bt_model_file *s, size_t i, float *scale, bt_err *err) BT_MUST_CHECK;
/* number of scales of tensor i: 1, or with cfg.scale that of its rows or groups */
size_t bt_model_file_scales(const bt_model_file *s, size_t i);
/* Reads the codes of tensor i, (rows, cols) in the model's order, once and without floats: the same as absmean
 * quantisation of
 * the values of bt_model_file_read. *direct is false, and codes are undefined, if the tensor has no codes, or they must
 * be made
 * from its latent weights. */
bt_code bt_model_file_codes(bt_model_file *s, size_t i, int8_t *codes, bool *direct, bt_err *err)
    BT_MUST_CHECK;
/* Reads all elements into the flat array of a model of this shape. */
bt_code bt_model_file_weights(bt_model_file *s, float *weights, bt_err *err) BT_MUST_CHECK;

/* Reports further elements as done; called by writers of a format and by readers of a whole model. */
void bt_model_file_passed(bt_model_file *s, uint64_t elems);

/* Functions for the readers of formats: hf_read.c, gguf_read.c, native.c. */
bt_code bt_model_file_open_native(bt_model_file *s, bt_err *err) BT_MUST_CHECK;
bt_code bt_model_file_open_hf(bt_model_file *s, bt_err *err) BT_MUST_CHECK;
bt_code bt_model_file_open_gguf(bt_model_file *s, bt_err *err) BT_MUST_CHECK;
/* Makes the tensor table of s->cfg, empty places and buffers. */
bt_code bt_model_file_tables(bt_model_file *s, bt_err *err) BT_MUST_CHECK;
/* Checks that a stored tensor has the shape of one of the model's. BT_FORMAT: err contains both. */
bt_code bt_model_file_check_shape(const bt_tensor *t, const bt_stored *f, bt_row_order order,
                                  bt_err *err) BT_MUST_CHECK;
/* Checks that every tensor has a place, and every stored tensor, except those for which `extra` returns true, belongs
 * to a
 * tensor. Otherwise err lists the first of them. */
bt_code bt_model_file_complete(bt_model_file *s,
                               bool (*extra)(const bt_model_file *s, const char *name), bt_err *err)
    BT_MUST_CHECK;
/* Reads all rows of tensor i, whose place is coded, once: their codes (codes NULL: counted only), and the statistics
 * of the place. *alike is false if they are not codes of one size, or those of a row or group */
bt_code bt_model_file_read_codes(bt_model_file *s, size_t i, int8_t *codes, bool *alike,
                                 bt_err *err) BT_MUST_CHECK;

/* Properties of sampled rows of tensors of codes. */
typedef struct bt_scales_seen {
    bool row, tensor; /* every row has one scale; every tensor has one */
    unsigned groups; /* bits 1 << bt_scale_kind: all groups of so many inputs have one scale each */
} bt_scales_seen;
extern const bt_scales_seen bt_scales_all; /* all properties */
/* Samples up to 64 rows of a stored tensor; removes the properties that they lack. */
bt_code bt_scales_sample(const bt_stored_list *all, const bt_stored *t, bt_scales_seen *one,
                         bt_err *err) BT_MUST_CHECK;
/* Returns the scales of a ternary model with these properties, those of the largest groups; BT_SCALE_TENSOR if it has
 * none of them. */
bt_scale_kind bt_scales_kind(const bt_scales_seen *one);
/* A dense model with a place for every tensor becomes a ternary one if all of its linear layers hold floats that are
 * exactly -s, 0, s with one s for each tensor, row or group; a note reports it. Every other model is unchanged */
bt_code bt_model_file_recognise(bt_model_file *s, bt_err *err) BT_MUST_CHECK;
/* Changes a ternary model whose file has the values of its weights, also in blocks of codes, to dense layers with these
 * values instead of latent weights. Other models are unchanged. */
bt_code bt_model_file_keep_floats(bt_model_file *s, bt_err *err) BT_MUST_CHECK;

#endif
