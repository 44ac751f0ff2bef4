/* params.h - the tensor table of one model, made from params.def: names and flat offsets, layer by layer.
 *
 * A tensor's full name is "layers.3.attn_q" or "embed". Offsets count elements in the flat arrays; each tensor is
 * aligned to 16
 * elements (64 bytes), and the padding is always zero.
 * Threads: constant after init. */
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

/* Part of a model on one rank: the slice of rank tp_rank of a tensor-parallel group of tp_size, and of that the layers
 * of stage pp_stage of a pipeline of pp_size. The first stage has the embedding, the last has final norm and head (or a
 * classifier's score). All zero: the whole model. virtual_stages v > 1: the pipeline has v * pp_size virtual stages,
 * assigned in turn, so that a rank has v separate chunks of layers: chunk k is virtual stage k * pp_size + pp_stage
 * (Narayanan et al. 2021, arXiv:2104.04473, section 2.2). 0 or 1: a stage's layers are one chunk. */
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
    int copies;                    /* number of tensor-parallel ranks that have this block */
    /* elements before it are counted by a lower rank, which also has them: none, all, or those of a kv head */
    size_t first_counted;
    size_t offset;  /* elements, in the flat arrays */
    float init_std; /* 0: initialised to one, unless `adapter` or `zero` is set */
    bool zero;      /* initialised to zero */
    bool adapter;   /* initialised uniformly within `spread` (0: to zero), or: */
    bool
        row_norms; /* magnitudes of DoRA: initialised to the norms of the rows of their layer's weight */
    float spread;
    bool decay, tern; /* tern is false for linear = dense */
    bool linear;      /* true for a BitLinear weight even if linear = dense */
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
typedef struct bt_layer_run {
    int first, n;
} bt_layer_run;
/* Returns the number of chunks of a stage; at least one. */
int bt_slice_chunks(bt_model_slice slice);
/* Returns the layers of a chunk. All virtual stages have as many layers as the head's work on the last one permits to
 * divide evenly; at least one each if virtual stages <= layers. */
bt_layer_run bt_slice_chunk(const bt_model_cfg *whole, bt_model_slice slice, int chunk);
int bt_slice_layers(const bt_model_cfg *whole, bt_model_slice slice);
/* Computes the shape of one slice. BT_ARG names sizes that cannot be divided. */
bt_code bt_slice_cfg(bt_model_cfg *out, const bt_model_cfg *whole, bt_model_slice slice,
                     bt_err *err) BT_MUST_CHECK;
/* Returns the first token id of the slice. */
size_t bt_slice_vocab(const bt_model_cfg *whole, bt_model_slice slice);
/* Returns true if n slices have equally many heads, and every kv head is in one slice, in two neighbours, or in equally
 * many slices that have no other. */
bool bt_slice_heads_fit(const bt_model_cfg *whole, int n);
/* Returns the number of kv heads that two neighbouring slices share, among the slices 0 .. slice.tp_rank. */
size_t bt_slice_shared_kv(const bt_model_cfg *whole, bt_model_slice slice);
/* Makes the table of the tensors that train: those of the model, or with whole->lora its adapters and a classifier's
 * score.
 * The table of the frozen base is made with bt_params_base. */
bt_code bt_params_init(bt_params *p, const bt_model_cfg *whole, bt_model_slice slice, bt_err *err)
    BT_MUST_CHECK;
void bt_params_release(bt_params *p);
/* Returns the config of the base of adapters: without adapters, and not a classifier. */
bt_model_cfg bt_params_base(const bt_model_cfg *whole);
/* Returns the elements of a chunk in the flat arrays, the first one with the embedding, the last one with the head. */
bt_range bt_params_chunk(const bt_params *p, const bt_model_cfg *whole, bt_model_slice slice,
                         int chunk);
/* Returns NULL if the tensor is absent. */
const bt_tensor *bt_params_get(const bt_params *p, int layer, bt_param_id id);
const bt_tensor *bt_params_named(const bt_params *p, const char *name);
/* Return the rows A, B and M of the adapter of a linear layer's row; BT_P_COUNT if it is not a linear layer. */
bt_param_id bt_adapter_a(bt_param_id layer);
bt_param_id bt_adapter_b(bt_param_id layer);
bt_param_id bt_adapter_m(bt_param_id layer);
bt_param_id bt_adapter_layer(bt_param_id adapter);
/* Returns the index in the whole tensor of element `i` of a block. */
size_t bt_tensor_place(const bt_tensor *t, size_t i);
/* Returns a hash of all names and whole shapes: models with equal hashes can exchange checkpoints. */
uint64_t bt_params_hash(const bt_params *p);

#endif
