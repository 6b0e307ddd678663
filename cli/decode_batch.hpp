// A decode call of any size with its memory on a device: random normal data, permuted pages, poison where nothing may
// be read. reference::DecodeCase is the hard data of `verify`; this one fills gigabytes in seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/lengths.hpp"
#include "cli/device_buffers.hpp"
#include "flashmla/flashmla.hpp"

namespace flashmla::cli {

struct BatchSpec {
    bench::Lengths lengths;
    std::int64_t s_q = 1;
    std::int64_t h_q = 128;
    std::int64_t d_qk = 576;
    std::int64_t d_v = 512;
    std::int64_t page_size = 64;
    DType dtype = DType::kBFloat16;
    bool causal = false;
    double softmax_scale = 0;
    double q_std = 1;
    double k_std = 1;
    std::uint64_t seed = 0;
    bool batch_invariant = false;
    std::string kernel;   // empty = the planner's choice
    int num_workers = 0;  // 0 = all

    std::int64_t total_keys() const;
};

// One request of a batch, copied to the host as a batch of its own.
struct HostRequest {
    std::vector<std::uint16_t> q, keys, out;
    std::vector<float> lse;
    std::vector<std::int32_t> block_table, length;
    DecodeArgs args;  // views of the above
};

class DecodeBatch {
public:
    // Makes the data with `host_threads` threads; throws what planning refuses.
    DecodeBatch(const BatchSpec& spec, const DeviceInfo& device, DeviceBuffers& buffers, int host_threads);

    const DecodePlan& plan() const { return plan_; }
    const BatchSpec& spec() const { return spec_; }

    // One decode call, enqueued on the buffers' stream.
    Status run() const;

    // Request i with the results of the last run.
    HostRequest host_request(std::int64_t i) const;

private:
    void fill_pages(int host_threads);
    void fill_query();
    void fill_table();

    BatchSpec spec_;
    DeviceBuffers& buffers_;
    DecodePlan plan_;
    DecodeArgs args_;
    std::int64_t num_pages_ = 0;
    std::vector<std::int32_t> block_table_;  // the host's copy
    void* workspace_ = nullptr;
};

}  // namespace flashmla::cli
