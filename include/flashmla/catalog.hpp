// The kernels this library has, as data: what each one takes and where it runs. The planner chooses from this list.
#pragma once

#include <cstdint>
#include <span>

#include "flashmla/cache_format.hpp"
#include "flashmla/types.hpp"

namespace flashmla {

enum class KernelId : std::uint8_t {
    kCpuDecodeDense,
    kCpuDecodeSparse,
    kSm90DecodeDense,
    kCpuDensePrefill,
    kCpuSparsePrefill,
    kCpuDensePrefillBackward,
    kCpuMerge,
    kCpuAbsorb,
    kCpuAppend,
    kCpuGather,
    kCpuCopyPages,
    kCpuConvert
};

struct HeadDims {
    int d_qk = 0;
    int d_v = 0;
    friend bool operator==(const HeadDims&, const HeadDims&) = default;
};

struct KernelInfo {
    KernelId id = KernelId::kCpuDecodeDense;
    const char* name = "";
    Operation operation = Operation::kDecode;
    std::span<const CacheFormat> formats;  // empty: the operation reads no cache. A 16-bit one goes with its own dtype
    bool sparse = false;                   // decode: keys by indices instead of a block table
    bool attn_sink = false;                // decode: a sink may be given
    const char* summary = "";
    DeviceType device = DeviceType::kCpu;
    int compute_capability = 0;  // exactly this one (90 = sm_90a code); 0 = any, on the CPU
    std::span<const DType> dtypes;
    std::span<const HeadDims> dims;  // empty: any
    int page_size = 0;               // the only page size taken; 0 = any
    int io_alignment_bytes = 1;      // addresses and strides of q, k_cache and out are multiples of this
    bool built = false;              // part of this build; a kernel that is not can still be planned, on any machine
};

// Most specialised first; the planner takes the first that fits.
std::span<const KernelInfo> kernel_catalog();

}  // namespace flashmla
