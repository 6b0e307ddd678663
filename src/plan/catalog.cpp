#include "plan/catalog.hpp"

#include "backends/sm90/decode_dense/config.hpp"
#include "plan/split_schedule.hpp"

namespace flashmla {
namespace {

namespace sm90_dense = backends::sm90::decode_dense;
static_assert(sm90_dense::kKeyTile == plan::kKeyTile, "the schedule counts in the kernel's key tiles");

#if defined(FLASHMLA_HAVE_SM90_DECODE_DENSE)
constexpr bool kWithCuda = true;
#else
constexpr bool kWithCuda = false;
#endif

constexpr DType k16Bit[] = {DType::kBFloat16, DType::kFloat16};
constexpr DType kFloats[] = {DType::kBFloat16, DType::kFloat16, DType::kFloat32};
constexpr DType kQueryTypes[] = {DType::kBFloat16, DType::kFloat16, DType::kFloat8E4m3};
constexpr CacheFormat k16BitFormats[] = {CacheFormat::kBFloat16, CacheFormat::kFloat16};
constexpr HeadDims kSm90DenseDims[] = {{sm90_dense::kDimQk, sm90_dense::kDimV}};
constexpr HeadDims kLatentDims[] = {{576, 512}, {512, 512}, {320, 256}};
constexpr HeadDims kMultiHeadDims[] = {{192, 128}, {128, 128}};

constexpr KernelInfo kCatalog[] = {
    {.id = KernelId::kSm90DecodeDense,
     .name = sm90_dense::kName,
     .operation = Operation::kDecode,
     .formats = k16BitFormats,
     .summary = "dense decode on Hopper: WGMMA on 64-row tiles, KV streamed by TMA",
     .device = DeviceType::kCuda,
     .compute_capability = 90,
     .dtypes = k16Bit,
     .dims = kSm90DenseDims,
     .page_size = sm90_dense::kKeyTile,
     .io_alignment_bytes = 16,  // TMA and 16-byte stores
     .built = kWithCuda},
    {.id = KernelId::kCpuDecodeDense,
     .name = "cpu_decode_dense",
     .operation = Operation::kDecode,
     .formats = kAllCacheFormats,
     .attn_sink = true,
     .summary = "dense decode on the CPU: blocked products, online softmax, fixed-order merge",
     .device = DeviceType::kCpu,
     .compute_capability = 0,
     .dtypes = kQueryTypes,
     .dims = kLatentDims,
     .page_size = 0,
     .io_alignment_bytes = 1,
     .built = true},
    {.id = KernelId::kCpuDecodeSparse,
     .name = "cpu_decode_sparse",
     .operation = Operation::kDecode,
     .formats = kAllCacheFormats,
     .sparse = true,
     .attn_sink = true,
     .summary = "token-sparse decode on the CPU, from one or two caches: the dense kernel over lists of tokens",
     .device = DeviceType::kCpu,
     .dtypes = kQueryTypes,
     .dims = kLatentDims,
     .built = true},
    {.id = KernelId::kCpuSparsePrefill,
     .name = "cpu_sparse_prefill",
     .operation = Operation::kSparsePrefill,
     .formats = {},
     .summary = "token-sparse prefill over latents on the CPU: the decode kernel, a row tile a query token",
     .device = DeviceType::kCpu,
     .dtypes = k16Bit,
     .dims = kLatentDims,
     .built = true},
    {.id = KernelId::kCpuDensePrefill,
     .name = "cpu_dense_prefill",
     .operation = Operation::kDensePrefill,
     .formats = {},
     .summary = "multi-head attention over ragged batches on the CPU: blocked products, online softmax",
     .device = DeviceType::kCpu,
     .dtypes = k16Bit,
     .dims = kMultiHeadDims,
     .built = true},
    {.id = KernelId::kCpuDensePrefillBackward,
     .name = "cpu_dense_prefill_backward",
     .operation = Operation::kDensePrefillBackward,
     .formats = {},
     .summary = "gradients of multi-head attention on the CPU, one pass for dq and one for dk and dv",
     .device = DeviceType::kCpu,
     .dtypes = k16Bit,
     .dims = kMultiHeadDims,
     .built = true},
    {.id = KernelId::kCpuMerge,
     .name = "cpu_merge",
     .operation = Operation::kMerge,
     .formats = {},
     .summary = "partial results over disjoint keys, by their log-sum-exp, any head width",
     .device = DeviceType::kCpu,
     .dtypes = kFloats,
     .dims = {},
     .built = true},
    {.id = KernelId::kCpuAppend,
     .name = "cpu_append",
     .operation = Operation::kAppend,
     .formats = kAllCacheFormats,
     .summary = "new tokens into their slots, quantised as they go, rotary embedding of the key part on request",
     .device = DeviceType::kCpu,
     .dtypes = kFloats,
     .dims = {},
     .built = true},
    {.id = KernelId::kCpuGather,
     .name = "cpu_gather",
     .operation = Operation::kGather,
     .formats = kAllCacheFormats,
     .summary = "records back to rows, by slot or by block table",
     .device = DeviceType::kCpu,
     .dtypes = kFloats,
     .dims = {},
     .built = true},
    {.id = KernelId::kCpuCopyPages,
     .name = "cpu_copy_pages",
     .operation = Operation::kCopyPages,
     .formats = kAllCacheFormats,
     .summary = "whole pages, bytes as they are",
     .device = DeviceType::kCpu,
     .dtypes = kFloats,
     .dims = {},
     .built = true},
    {.id = KernelId::kCpuConvert,
     .name = "cpu_convert",
     .operation = Operation::kConvert,
     .formats = kAllCacheFormats,
     .summary = "a cache from one format to another",
     .device = DeviceType::kCpu,
     .dtypes = kFloats,
     .dims = {},
     .built = true},
    {.id = KernelId::kCpuAbsorb,
     .name = "cpu_absorb",
     .operation = Operation::kAbsorb,
     .formats = {},
     .summary = "queries into latent space and latent outputs back, a product a head, any widths",
     .device = DeviceType::kCpu,
     .dtypes = kFloats,
     .dims = {},
     .built = true},
};

}  // namespace

std::span<const KernelInfo> kernel_catalog() { return kCatalog; }

const KernelInfo& plan::kernel_info(KernelId id) {
    for (const KernelInfo& kernel : kCatalog) {
        if (kernel.id == id) return kernel;
    }
    return kCatalog[0];  // unreachable for the enumerators
}

const KernelInfo* plan::kernel_named(std::string_view name) {
    for (const KernelInfo& kernel : kCatalog) {
        if (name == kernel.name) return &kernel;
    }
    return nullptr;
}

}  // namespace flashmla
