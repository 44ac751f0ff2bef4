/* resolve_batch.c - divides the tokens of a step into micro-batches and into units of reproducible training. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/ramp.h"
#include "engine/config/resolve_impl.h"
#include "engine/parallel/schedule/balance.h"

enum {
    MICRO_TOKENS = 2048, /* maximum number of tokens in an automatic micro-batch */
    /* elements in the residual stream of an automatic micro-batch, whose activations should fit the L2 caches */
    MICRO_RESIDUAL = 2048 * 512,
    /* maximum number of tokens in an automatic unit of reproducible training: four units in a default batch */
    UNIT_TOKENS = 1024,
    /* micro-batches per pipeline stage with which filling and draining take a fifth of the time */
    PIPE_MICROS = 4,
    /* minimum number of micro-batches of a rank if ranks may have different numbers */
    UNEVEN_MICROS = 4,
};

int64_t bt_divisor_below(int64_t n, int64_t most) {
    for (int64_t d = most < n ? most : n; d > 1; d--)
        if (n % d == 0) return d;
    return 1;
}

int64_t bt_divisor_above(int64_t n, int64_t least) {
    for (int64_t d = least; d < n; d++)
        if (n % d == 0) return d;
    return n;
}

/* Writes the multiples of `unit` nearest to x: "4", or "4 or 6". */
static const char *nearest_multiples(char *buf, size_t size, int64_t x, int64_t unit) {
    int64_t below = x / unit * unit, above = below + unit;
    if (below > 0)
        snprintf(buf, size, "%" PRId64 " or %" PRId64, below, above);
    else
        snprintf(buf, size, "%" PRId64, above);
    return buf;
}

const char *bt_divisors(char *buf, size_t size, int64_t n, int64_t x) {
    int64_t below = bt_divisor_below(n, x < 1 ? 1 : x), above = bt_divisor_above(n, x);
    if (below != above)
        snprintf(buf, size, "%" PRId64 " or %" PRId64, below, above);
    else
        snprintf(buf, size, "%" PRId64, below);
    return buf;
}

/* Reproducible training sums over units that depend only on the batch. The number of ranks, --micro-batch and --accum
 * determine which rank computes which units, but do not change any bit. */
static bt_code resolve_units(bt_run_cfg *c, bool to_move, int64_t sequences, int64_t dp,
                             bt_err *err) {
    char buf[64];
    int64_t least = to_move && dp > 1 ? 2 * dp : dp;
    if (c->train.unit == 0) {
        int64_t most = UNIT_TOKENS / c->model.seq_len;
        c->train.unit = bt_divisor_below(sequences, most < 1 ? 1 : most);
    }
    if (sequences % c->train.unit != 0)
        return bt_fail(err, BT_ARG,
                       "train.unit %" PRId64 " does not divide the %" PRId64
                       " sequences of a step (use %s)",
                       c->train.unit, sequences,
                       bt_divisors(buf, sizeof buf, sequences, c->train.unit));
    int64_t units = sequences / c->train.unit;
    if (units < least && sequences < least)
        return bt_fail(err, BT_ARG,
                       "parallel.balance=auto: %" PRId64
                       " sequences per step are too few for %" PRId64
                       " data-parallel ranks, %" PRId64 " are needed (use parallel.balance=even)",
                       sequences, dp, least);
    if (units < least)
        return bt_fail(err, BT_ARG,
                       "train.reproducible: %" PRId64 " unit%s of %" PRId64
                       " sequences a step %s too few for %" PRId64
                       " data-parallel ranks%s (set train.unit=%" PRId64
                       ", the same for every run to be compared)",
                       units, units == 1 ? "" : "s", c->train.unit, units == 1 ? "is" : "are", dp,
                       to_move ? " of unlike speed" : "",
                       bt_divisor_below(sequences, sequences / least));
    c->train.micro_batch = c->train.unit;
    c->train.accum = (units + dp - 1) / dp;
    return BT_OK;
}

static int64_t micro_tokens(const bt_run_cfg *c) {
    int64_t wide = MICRO_RESIDUAL / c->model.d_model;
    return wide < MICRO_TOKENS ? wide : MICRO_TOKENS;
}

/* If ranks have unequal numbers of micro-batches, the micro-batch must divide the batch, with enough for all ranks. */
static bt_code resolve_uneven(bt_run_cfg *c, bt_balance_kind kind, int64_t sequences, int64_t dp,
                              bt_err *err) {
    char buf[64];
    int64_t least = kind == BT_BALANCE_AUTO ? 2 * dp : dp;
    if (!c->train.micro_batch) {
        int64_t most = c->train.accum ? sequences / dp / c->train.accum
                                      : sequences / dp / UNEVEN_MICROS,
                cached = micro_tokens(c) / c->model.seq_len;
        if (!c->train.accum && most > cached) most = cached;
        c->train.micro_batch = bt_divisor_below(sequences, most < 1 ? 1 : most);
    }
    if (sequences % c->train.micro_batch != 0)
        return bt_fail(err, BT_ARG,
                       "train.micro_batch %" PRId64 " does not divide the %" PRId64
                       " sequences of a step (use %s)",
                       c->train.micro_batch, sequences,
                       bt_divisors(buf, sizeof buf, sequences, c->train.micro_batch));
    int64_t micros = sequences / c->train.micro_batch, mean = (micros + dp - 1) / dp;
    if (micros < least)
        return bt_fail(err, BT_ARG,
                       "parallel.balance=%.32s: %" PRId64
                       " micro-batches a step are too few for %" PRId64
                       " data-parallel ranks, %" PRId64 " are needed (use --batch-tokens %" PRId64
                       "%s, or parallel.balance=even)",
                       c->parallel.balance, micros, dp, least,
                       least * c->train.micro_batch * c->model.seq_len,
                       sequences >= least ? " or a smaller --micro-batch" : "");
    if (c->train.accum && c->train.accum != mean)
        return bt_fail(err, BT_ARG,
                       "micro_batch %" PRId64 " makes %" PRId64 " micro-batches for %" PRId64
                       " ranks, %" PRId64 " each on average, but train.accum is %" PRId64
                       " (leave it out)",
                       c->train.micro_batch, micros, dp, mean, c->train.accum);
    c->train.accum = mean;
    return BT_OK;
}

static bt_code divide_step_tokens(bt_run_cfg *c, bt_err *err) {
    char a[64], b[64];
    int64_t dp = c->mesh.dp_replicate * c->mesh.dp_shard, T = c->model.seq_len;
    if (c->train.batch_tokens == 0) {
        if (!c->train.micro_batch || !c->train.accum)
            return bt_fail(err, BT_ARG,
                           "train.batch_tokens 0 needs train.micro_batch and train.accum: the "
                           "batch is their product over the ranks");
        if (c->train.micro_batch * c->train.accum > 1000000000 / T / dp)
            return bt_fail(err, BT_ARG,
                           "micro_batch %" PRId64 " x accum %" PRId64 " x %" PRId64
                           " ranks x seq_len %" PRId64 " is above 1e9 tokens a step",
                           c->train.micro_batch, c->train.accum, dp, T);
        c->train.batch_tokens = c->train.micro_batch * c->train.accum * dp * T;
    }
    if (c->train.batch_tokens % T != 0)
        return bt_fail(err, BT_ARG,
                       "train.batch_tokens %" PRId64 " is not a multiple of model.seq_len %" PRId64
                       " (use --batch-tokens %s)",
                       c->train.batch_tokens, T,
                       nearest_multiples(a, sizeof a, c->train.batch_tokens, T));
    int64_t sequences = c->train.batch_tokens / T;
    if (sequences < dp)
        return bt_fail(err, BT_ARG,
                       "more data-parallel ranks (%" PRId64 ") than sequences in a step (%" PRId64
                       " = train.batch_tokens %" PRId64 " / model.seq_len %" PRId64
                       "): use at most %" PRId64 " rank%s, or --batch-tokens %" PRId64,
                       dp, sequences, c->train.batch_tokens, T, sequences,
                       sequences == 1 ? "" : "s", dp * T);
    bt_balance_kind balance;
    BT_TRY(bt_balance_parse(c->parallel.balance, &balance, NULL, (size_t)dp, err));
    if (c->train.reproducible)
        return resolve_units(c, balance == BT_BALANCE_AUTO, sequences, dp, err);
    if (balance != BT_BALANCE_EVEN) return resolve_uneven(c, balance, sequences, dp, err);
    if (sequences % dp != 0)
        return bt_fail(err, BT_ARG,
                       "%" PRId64 " data-parallel ranks do not divide the %" PRId64
                       " sequences of a step (train.batch_tokens %" PRId64
                       " / model.seq_len %" PRId64 "): use %s ranks, or --batch-tokens %s",
                       dp, sequences, c->train.batch_tokens, T,
                       bt_divisors(a, sizeof a, sequences, dp),
                       nearest_multiples(b, sizeof b, c->train.batch_tokens, dp * T));
    int64_t mine = sequences / dp;
    if (!c->train.micro_batch && !c->train.accum) {
        /* A pipeline is partly idle during its first and last micro-batches. */
        int64_t most = micro_tokens(c) / T,
                many = c->mesh.pp > 1 ? mine / (PIPE_MICROS * c->mesh.pp) : most;
        if (many < most) most = many;
        /* virtual stages need a multiple of pp micro-batches */
        int64_t parts = c->parallel.virtual_stages > 1 && mine % c->mesh.pp == 0 ? c->mesh.pp : 1;
        c->train.micro_batch = bt_divisor_below(mine / parts, most < 1 ? 1 : most);
    }
    int64_t given = c->train.micro_batch ? c->train.micro_batch : c->train.accum;
    if (mine % given != 0)
        return bt_fail(err, BT_ARG,
                       "train.%s %" PRId64 " does not divide the %" PRId64
                       " sequences of a rank's step (use %s)",
                       c->train.micro_batch ? "micro_batch" : "accum", given, mine,
                       bt_divisors(a, sizeof a, mine, given));
    if (!c->train.micro_batch) c->train.micro_batch = mine / c->train.accum;
    if (!c->train.accum) c->train.accum = mine / c->train.micro_batch;
    if (c->train.micro_batch * c->train.accum != mine)
        return bt_fail(err, BT_ARG,
                       "micro_batch %" PRId64 " x accum %" PRId64 " = %" PRId64
                       " sequences, but a rank's step has %" PRId64 " (use --accum %" PRId64
                       ", or --batch-tokens %" PRId64 ")",
                       c->train.micro_batch, c->train.accum, c->train.micro_batch * c->train.accum,
                       mine, mine / c->train.micro_batch,
                       c->train.micro_batch * c->train.accum * dp * T);
    return BT_OK;
}

/* Interleaved passes proceed in rounds with one micro-batch per stage (pass_order.h). */
static bt_code check_rounds(const bt_run_cfg *c, bt_err *err) {
    char buf[64];
    const int64_t dp = c->mesh.dp_replicate * c->mesh.dp_shard,
                  sequences = c->train.batch_tokens / c->model.seq_len,
                  micros = sequences / c->train.micro_batch;
    if (c->parallel.virtual_stages <= 1 || c->mesh.pp <= 1) return BT_OK;
    if (strcmp(c->parallel.balance, "even") != 0)
        return bt_fail(err, BT_ARG,
                       "--virtual-stages %" PRId64
                       " with parallel.balance=%.32s: all ranks must have equally many "
                       "micro-batches (use parallel.balance=even)",
                       c->parallel.virtual_stages, c->parallel.balance);
    if (micros % (dp * c->mesh.pp) == 0) return BT_OK;
    const int64_t per_rank = (micros + dp - 1) / dp, round = dp * c->mesh.pp * c->model.seq_len,
                  mine = sequences / dp;
    char other[48] = "";
    if (!c->train.reproducible && mine % c->mesh.pp == 0)
        snprintf(other, sizeof other, "--micro-batch %" PRId64 ", or ",
                 bt_divisor_below(mine / c->mesh.pp, c->train.micro_batch));
    return bt_fail(
        err, BT_ARG,
        "--virtual-stages %" PRId64 ": %" PRId64 " %s%s of a rank %s no multiple of the "
        "%" PRId64 " pipeline stages (use %s--batch-tokens %s%s)",
        c->parallel.virtual_stages, per_rank, c->train.reproducible ? "unit" : "micro-batch",
        per_rank == 1           ? ""
        : c->train.reproducible ? "s"
                                : "es",
        per_rank == 1 ? "is" : "are", c->mesh.pp, other,
        nearest_multiples(buf, sizeof buf, c->train.batch_tokens, round * c->train.micro_batch),
        c->train.reproducible ? ", or another train.unit, the same for every run to be compared"
                              : "");
}

bt_code bt_resolve_batch(bt_run_cfg *c, bt_err *err) {
    BT_TRY(divide_step_tokens(c, err));
    return check_rounds(c, err);
}
