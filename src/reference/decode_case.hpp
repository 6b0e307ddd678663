// A dense-decode call with memory, made from a spec: hard data, poison wherever reading is illegal, guards wherever
// writing is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashmla/decode.hpp"
#include "reference/decode_spec.hpp"
#include "reference/tensor_access.hpp"

namespace flashmla::reference {

// Where the buffers of a case lie: in the case itself, or copied to a device.
struct CaseBases {
    const void* q = nullptr;
    const void* pool = nullptr;
    const void* table = nullptr;
    const void* lengths = nullptr;
    void* out = nullptr;
    void* lse = nullptr;
};

class DecodeCase {
public:
    // What fills the outputs before a run.
    static constexpr std::uint16_t kUnwrittenOut = 0x7fa5;      // a NaN in bf16 and in fp16 that no arithmetic yields
    static constexpr std::uint32_t kUnwrittenLse = 0x7fa5a5a5;  // a NaN likewise

    explicit DecodeCase(DecodeSpec spec);

    const DecodeSpec& spec() const { return spec_; }

    // Whether the row has a right answer (see live_heads and nan_request of the spec).
    bool is_live(const Row& row) const {
        return (spec_.live_heads == 0 || row.head < spec_.live_heads) && row.request != spec_.nan_request;
    }

    // The call on the case's own memory.
    DecodeArgs args() const;
    // The call on copies of whole buffers, whose first bytes are at `bases`; dense.
    DecodeArgs args_at(const CaseBases& bases, Device device) const;

    // Whole buffers, guards included, for copies to and from a device: all that a dense call reads and writes.
    const std::vector<std::uint16_t>& q() const { return q_; }
    const std::vector<std::uint16_t>& pool() const { return pool_; }
    const std::vector<std::int32_t>& table() const { return table_; }
    const std::vector<std::int32_t>& lengths() const { return lengths_; }
    std::vector<std::uint16_t>& out() { return out_; }
    std::vector<float>& lse() { return lse_; }

    // Fills out and lse, guards included, with the patterns of "never written" (a NaN each).
    void reset_outputs();

    // Empty when every element of out and lse was written, nothing around them was, no input changed, rows with a key
    // are finite and rows without one are 0 and +inf. Otherwise what was found, where. Looks at every element.
    std::string structural_fault() const;

private:
    void fill_query();
    void fill_pool();
    void fill_table();
    void fill_extra_pool();
    void fill_lists();
    void fill_factors();
    void add_sparse(DecodeArgs& args) const;
    float flat_scale(std::int64_t request) const;
    std::uint64_t input_hash() const;
    bool inputs_changed() const;

    DecodeSpec spec_;
    std::int64_t table_width_ = 0;
    std::int64_t num_pages_ = 0;
    std::vector<std::uint16_t> q_, pool_, out_;
    std::vector<std::int32_t> table_, lengths_;
    // Sparse: index lists and how many entries count.
    std::vector<std::int32_t> ids_, counts_, extra_ids_, extra_counts_;
    std::vector<std::uint16_t> extra_pool_;
    std::vector<std::int64_t> extra_first_page_;  // of each request, and the end
    std::vector<float> sink_, descale_q_, descale_k_;
    std::vector<float> lse_;
    std::uint64_t input_hash_ = 0;
};

}  // namespace flashmla::reference
