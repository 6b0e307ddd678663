// The keys that one query row of a decode call sees, as doubles, whatever holds and names them: a block table or index
// lists, one cache or two, any format.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/tensor_access.hpp"

namespace flashmla::reference {

class RowKeys {
public:
    RowKeys(const DecodeArgs& args, const Row& row);

    std::int64_t count() const { return count_; }

    // The d_qk values of the j-th key, as the cache's format and the request's descale_k say what they are worth. The
    // first d_v are its value row.
    void read(std::int64_t j, std::vector<double>& values) const;

private:
    struct Place {
        bool extra = false;
        std::int64_t page = 0;
        std::int64_t token = 0;
    };

    TensorView locate(std::int64_t j, Place& place) const;
    void list(const TensorView& cache, const TensorView& indices, const TensorView& lengths, bool extra);
    void decode_all() const;

    DecodeArgs args_;  // both caches reduced to the row's KV head
    Row row_;
    CacheFormat format_;
    double descale_;
    std::int64_t count_ = 0;
    std::vector<Place> places_;           // sparse
    mutable std::vector<float> decoded_;  // of fp8 caches, every key, before descale_k; filled by the first read
};

// What a code of descale_q or descale_k is multiplied by for a request; 1 when not given.
double descale_of(const TensorView& descale, std::int64_t request);

}  // namespace flashmla::reference
