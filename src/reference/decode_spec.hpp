// The recipe of a test case: shapes, lengths, and what makes its data hard. A spec and its seed give the same bytes
// anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashmla/cache_format.hpp"
#include "flashmla/types.hpp"

namespace flashmla::reference {

enum class KeyOrder : std::uint8_t {
    kRandom,
    kRising,        // every 16 keys raise the running maximum of every row
    kDominantLast,  // each request's last key takes nearly all the weight
};

enum class PageOrder : std::uint8_t {
    kPermuted,
    kSequential,
    kReversed,
    kShared,  // permuted, and requests begin with pages of request 0
    kCycled,  // each request's table repeats a few pages, so that long requests need little memory
};

// What fills every byte of the pool that holds no live token.
enum class Poison : std::uint8_t { kNan, kInfinity, kMinusInfinity, kAllOnes, kZero };

// How many entries of a query token's index lists count.
enum class ListLengths : std::uint8_t { kAll, kPerRequest, kPerToken };

struct DecodeSpec {
    std::string name;
    std::uint64_t seed = 1;
    DType dtype = DType::kBFloat16;
    std::vector<std::int32_t> lengths;  // one a request
    std::int64_t s_q = 1;
    std::int64_t h_q = 16;
    std::int64_t h_kv = 1;
    std::int64_t d_qk = 576;
    std::int64_t d_v = 512;
    std::int64_t page_size = 64;
    bool causal = false;

    CacheFormat format = CacheFormat::kBFloat16;  // of the cache; a 16-bit one stands for dtype's own
    bool fp8_queries = false;                     // e4m3, with fp8_flat; out is bf16, and so is dtype
    int descales = 0;                             // with fp8_flat: 0 none, 1 one for all requests, 2 one a request
    bool power_of_two_scales = true;              // fp8_656
    bool spread_groups = false;  // groups of values that share a scale differ by powers of two up to 2^10

    // Sparse (topk > 0): the lists name tokens of the request, `lengths` being how many it has.
    std::int64_t topk = 0;
    ListLengths list_lengths = ListLengths::kAll;
    double masked = 0.2;          // share of the entries that name no token
    std::int64_t extra_topk = 0;  // > 0: there is an extra cache
    std::int64_t extra_page_size = 2;
    bool attn_sink = false;  // infinities of both signs among the heads

    double logit_std = 1;      // standard deviation of a row's logits
    double softmax_scale = 0;  // used when has_softmax_scale
    bool has_softmax_scale = false;
    KeyOrder keys = KeyOrder::kRandom;
    PageOrder pages = PageOrder::kPermuted;
    Poison poison = Poison::kNan;

    bool cumulative_lengths = false;  // lengths are passed as cu_seqlens_k
    int pool_layers = 1;       // pages of so many layers lie packed in the pool; this case's layer is the middle one
    int spare_pages = 2;       // pages of the pool that no request owns
    int spare_columns = 2;     // block-table entries past the longest request
    bool strided_q = false;    // heads outside tokens, and rows wider than d_qk
    bool strided_out = false;  // rows of out wider than d_v, lse with tokens outside heads

    // Rows with NaN in their own inputs have no right answer; they must be written, and must leave the others alone.
    std::int64_t live_heads = 0;    // > 0: q is NaN and infinity from this head on
    std::int64_t nan_request = -1;  // >= 0: every key of this request is NaN
};

// The cache's format, 16-bit ones by dtype.
inline CacheFormat cache_format(const DecodeSpec& spec) {
    return is_16bit(spec.format) ? cache_format_16bit(spec.dtype) : spec.format;
}

// All that matters of a spec, on one line.
std::string describe(const DecodeSpec& spec);

// A random spec, a function of the seed alone. No request is longer than max_length; the work of an exact answer for
// every row stays below about `max_rows` * max_length keys.
DecodeSpec random_spec(std::uint64_t seed, int max_length, int max_rows);

}  // namespace flashmla::reference
