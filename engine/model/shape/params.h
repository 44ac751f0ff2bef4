/* params.h - the tensor table of one model: made from params.def, names and flat offsets, layer by layer.
 *
 * A tensor's full name is "layers.3.attn_q" or "embed". Offsets are elements in the flat arrays, each tensor
 * aligned to 16 elements (64 bytes); padding is always zero. Threads: constant after init. */
#ifndef BT_ENGINE_MODEL_SHAPE_PARAMS_H
#define BT_ENGINE_MODEL_SHAPE_PARAMS_H

#include "engine/base/range.h"
#include "engine/model/shape/config.h"

#define BT_PARAM(id, name, scope, rows, cols, init, decay, tern, shard, when) BT_P_##id,
typedef enum {
#include "engine/model/shape/params.def"
    BT_P_COUNT
} bt_param_id;
#undef BT_PARAM

typedef enum {
    BT_SHARD_NONE,
    BT_SHARD_ROW,
    BT_SHARD_KVROW,
    BT_SHARD_COL,
    BT_SHARD_VOCAB
} bt_shard_axis;

/* Part of a model on one rank: the slice of rank tp_rank of a tensor-parallel group of tp_size, and of it the
 * layers of stage pp_stage of a pipeline of pp_size. The first stage has the embedding, the last has final norm
 * and head (or a classifier's score). All zero: the whole model.
 * virtual_stages v > 1: the pipeline has v * pp_size virtual stages, assigned in turn, so that a rank has v
 * separate chunks of layers: chunk k is virtual stage k * pp_size + pp_stage (Narayanan et al. 2021,
 * arXiv:2104.04473, section 2.2). 0 or 1: a stage's layers are one chunk. */
typedef struct bt_model_slice {
    int tp_rank, tp_size, pp_stage, pp_size, virtual_stages;
} bt_model_slice;

typedef struct bt_tensor {
    char name[48];
    bt_param_id id;
    int layer;     /* -1: global */
    size_t number; /* index among the tensors of all stages */
    /* size of the block in this slice of the model; count = rows * cols */
    size_t rows, cols, count;
    size_t whole_rows, whole_cols; /* size of the whole tensor */
    size_t row0, col0;             /* position of the block in the tensor */
    int copies;                    /* number of tensor-parallel ranks with this block */
    /* elements before it are replicated on a lower tensor-parallel rank and must not be counted twice: none, all,
     * or the elements of a kv head */
    size_t first_counted;
    size_t offset;  /* elements, in the flat arrays */
    float init_std; /* 0: initialised to one, unless `adapter` or `zero` */
    bool zero;      /* initialised to zero */
    bool adapter;   /* initialised uniformly within `spread` (0: to zero), or: */
    bool
        row_norms; /* magnitudes of DoRA: initialised to the norms of the rows of their layer's weight */
    float spread;
    bool decay, tern; /* tern is false for linear = dense */
    bool linear;      /* a BitLinear weight, whatever `linear` is */
    bt_shard_axis shard;
} bt_tensor;

typedef struct bt_params {
    bt_tensor *tensors;
    size_t n;
    size_t total;   /* elements of the flat arrays, including padding */
    uint64_t count; /* number of parameters in this slice */
    size_t whole_n; /* tensors of all stages */
    uint64_t hash;  /* hash of all stages' tensors: bt_params_hash */
    /* index[layer + 1][id]: tensor index, SIZE_MAX when absent; row 0 is global */
    size_t (*index)[BT_P_COUNT];
} bt_params;

/* Returns true for the stage with the embedding, and for a whole model. */
bool bt_slice_is_first_stage(bt_model_slice slice);
/* Returns true for the stage with final norm and head. */
bool bt_slice_is_last_stage(bt_model_slice slice);
/* contiguous layers */
typedef struct bt_layer_run {
    int first, n;
} bt_layer_run;
/* Returns the number of chunks of a stage, at least one. */
int bt_slice_chunks(bt_model_slice slice);
/* Returns the layers of a chunk: divided over all virtual stages as evenly as the head's work on the last one
 * permits; at least one each if virtual stages <= layers. */
bt_layer_run bt_slice_chunk(const bt_model_cfg *whole, bt_model_slice slice, int chunk);
/* Returns the layers of all chunks. */
int bt_slice_layers(const bt_model_cfg *whole, bt_model_slice slice);
/* Computes the shape of one slice: its layers, heads, kv heads, feed-forward width and vocabulary. BT_ARG names
 * numbers that do not divide. */
bt_code bt_slice_cfg(bt_model_cfg *out, const bt_model_cfg *whole, bt_model_slice slice,
                     bt_err *err) BT_MUST_CHECK;
/* Returns the first token id of the slice. */
size_t bt_slice_vocab(const bt_model_cfg *whole, bt_model_slice slice);
/* true if n slices have equally many heads, and every kv head is in one slice, in two neighbours, or in equally
 * many slices that have no other */
bool bt_slice_heads_fit(const bt_model_cfg *whole, int n);
/* number of kv heads shared by two neighbouring slices, among the slices 0 .. slice.tp_rank; at most one for each
 * pair */
size_t bt_slice_shared_kv(const bt_model_cfg *whole, bt_model_slice slice);
/* The tensors that train: those of the model, or with whole->lora its adapters and a classifier's score; the table
 * of the frozen base is made by bt_params_base */
bt_code bt_params_init(bt_params *p, const bt_model_cfg *whole, bt_model_slice slice, bt_err *err)
    BT_MUST_CHECK;
void bt_params_release(bt_params *p);
/* the config of the base of adapters: without them, and no classifier */
bt_model_cfg bt_params_base(const bt_model_cfg *whole);
/* the elements of a chunk in the flat arrays: the first chunk includes the embedding, the last one norm and head,
 * if they are on this rank */
bt_range bt_params_chunk(const bt_params *p, const bt_model_cfg *whole, bt_model_slice slice,
                         int chunk);
/* Returns NULL if the tensor is absent. */
const bt_tensor *bt_params_get(const bt_params *p, int layer, bt_param_id id);
const bt_tensor *bt_params_named(const bt_params *p, const char *name);
/* the rows A, B and M of the adapter of a linear layer's row; BT_P_COUNT: not a linear layer */
bt_param_id bt_adapter_a(bt_param_id layer);
bt_param_id bt_adapter_b(bt_param_id layer);
bt_param_id bt_adapter_m(bt_param_id layer);
/* the row of an adapter's layer; BT_P_COUNT: not an adapter */
bt_param_id bt_adapter_layer(bt_param_id adapter);
/* Returns the index of element `i` of a block in the tensor. */
size_t bt_tensor_place(const bt_tensor *t, size_t i);
/* Returns a hash of every name and whole shape: models with equal hashes can exchange checkpoints, whatever their
 * slices. */
uint64_t bt_params_hash(const bt_params *p);

#endif
