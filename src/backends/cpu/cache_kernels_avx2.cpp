#include "backends/cpu/cache_quantize.hpp"
#include "backends/cpu/isa_avx2.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Tag {};
constexpr CacheKernels kKernels = make_cache_kernels<Avx2<Tag>>();

}  // namespace

const CacheKernels* cache_kernels_avx2() { return &kKernels; }

}  // namespace flashmla::backends::cpu
