// Planning: from shapes and a device description to a kernel and one workspace. Pure: no pointers, no CUDA, no lengths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashmla/cache_format.hpp"
#include "flashmla/catalog.hpp"
#include "flashmla/device.hpp"
#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla {

// Shapes of one decode call (docs/numerics.md gives the semantics).
struct DecodeShape {
    std::int64_t b = 0;                           // requests, >= 0
    std::int64_t s_q = 1;                         // query tokens a request, >= 1
    std::int64_t h_q = 1;                         // query heads, >= 1, a multiple of h_kv
    std::int64_t h_kv = 1;                        // KV heads (1 in MLA)
    std::int64_t d_qk = 576;                      // latent + rope
    std::int64_t d_v = 512;                       // the first d_v columns of a cache row are its value
    std::int64_t page_size = 64;                  // tokens a cache page
    std::int64_t max_pages = 0;                   // block_table's width; 0 when sparse
    DType dtype = DType::kBFloat16;               // of q
    CacheFormat format = CacheFormat::kBFloat16;  // a 16-bit one goes with dtype: cache_format_16bit
    bool causal = false;
    std::int64_t topk = 0;             // indices a query token; 0 = dense
    std::int64_t extra_topk = 0;       // indices into the extra cache; 0 = there is none
    std::int64_t extra_page_size = 0;  // tokens a page of the extra cache
    bool attn_sink = false;            // a sink is given
    friend bool operator==(const DecodeShape&, const DecodeShape&) = default;
};

struct PlanOptions {
    // A request's bits depend on that request alone: split boundaries are a function of its own length.
    bool batch_invariant = false;
    // Force a kernel by its catalogue name; empty = let the planner choose.
    std::string kernel;
    // Workers (CTA clusters on a GPU, threads on a CPU); 0 = all the device has. On the CPU it never changes the bits.
    int num_workers = 0;
};

// Why a kernel of the operation was or was not taken.
struct KernelVerdict {
    std::string kernel;
    bool chosen = false;
    std::string reason;
};

// Immutable once made; may be shared by threads and kept for as long as shapes and device stay the same.
struct DecodePlan {
    DecodeShape shape;
    PlanOptions options;
    DeviceInfo device;
    KernelId kernel_id = KernelId::kCpuDecodeDense;
    std::string kernel;                   // catalogue name
    std::string reason;                   // one sentence
    std::vector<KernelVerdict> verdicts;  // every kernel of the operation
    int num_workers = 1;
    int row_tiles_per_worker = 1;     // row tiles that one worker advances side by side, on a GPU one a CTA
    std::size_t workspace_bytes = 0;  // 0 is legal
};

// kInvalidArgument for shapes no kernel accepts in principle; kUnsupported when no kernel of this build fits the
// device.
Result<DecodePlan> plan_decode(const DecodeShape& shape, const DeviceInfo& device, const PlanOptions& options = {});

}  // namespace flashmla
