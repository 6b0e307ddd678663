// Reading the tensors of a DecodeArgs on the host, one element or row at a time, never a byte that holds no live token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/float_formats.hpp"
#include "core/problem.hpp"
#include "flashmla/decode.hpp"

namespace flashmla::reference {

// One query row: token `token` and head `head` of request `request`.
struct Row {
    std::int64_t request = 0;
    std::int64_t token = 0;
    std::int64_t head = 0;
};

// "request 0, token 1, head 2"
inline std::string describe(const Row& row) {
    return "request " + std::to_string(row.request) + ", token " + std::to_string(row.token) + ", head " +
           std::to_string(row.head);
}

inline const std::uint16_t* data_16bit(const TensorView& view) { return static_cast<const std::uint16_t*>(view.data); }

inline std::int64_t query_offset(const DecodeArgs& args, const Row& row) {
    return row.request * args.q.stride[0] + row.token * args.q.stride[1] + row.head * args.q.stride[2];
}

inline const std::uint16_t* query_row(const DecodeArgs& args, const Row& row) {
    return data_16bit(args.q) + query_offset(args, row);
}

inline std::uint16_t* stored_out(const DecodeArgs& args, const Row& row) {
    return static_cast<std::uint16_t*>(args.out.data) + row.request * args.out.stride[0] +
           row.token * args.out.stride[1] + row.head * args.out.stride[2];
}

inline float& stored_lse(const DecodeArgs& args, const Row& row) {
    return static_cast<float*>(args.lse.data)[row.request * args.lse.stride[0] + row.head * args.lse.stride[1] +
                                              row.token * args.lse.stride[2]];
}

inline int request_length(const DecodeArgs& args, std::int64_t request) {
    const bool cumulative = args.cache_seqlens.rank == 0;
    const TensorView& lengths = cumulative ? args.cu_seqlens_k : args.cache_seqlens;
    const std::int64_t capacity = std::min<std::int64_t>(args.block_table.shape[1] * args.k_cache.shape[1], INT32_MAX);
    return core::request_length(static_cast<const std::int32_t*>(lengths.data), cumulative, static_cast<int>(capacity),
                                static_cast<int>(request));
}

// The cached tokens of one request of a dense call over a 16-bit cache, as one KV head sees them.
class PagedKeys {
public:
    PagedKeys(const DecodeArgs& args, std::int64_t request, std::int64_t kv_head)
        : cache_(args.k_cache),
          base_(data_16bit(args.k_cache) + kv_head * args.k_cache.stride[2]),
          pages_(static_cast<const std::int32_t*>(args.block_table.data) + request * args.block_table.stride[0]) {}

    // The d_qk values of token `key`; its first d_v are the value row.
    const std::uint16_t* row(std::int64_t key) const {
        const std::int64_t page_size = cache_.shape[1];
        return base_ + pages_[key / page_size] * cache_.stride[0] + (key % page_size) * cache_.stride[1];
    }

private:
    TensorView cache_;
    const std::uint16_t* base_;
    const std::int32_t* pages_;
};

}  // namespace flashmla::reference
