// The path for AVX-512: fp32 products, 12 x 2 vectors of accumulators.
#include "backends/cpu/isa_avx512.hpp"
#include "backends/cpu/ops_f32.hpp"
#include "backends/cpu/rows.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Tag {};

struct Avx512Fp32 : Avx512<Tag> {
    static constexpr int kDepthBlock = 192;  // 32 rows x 192 x 4 B = 24 KB of queries in L1
};

constexpr TileKernels kKernels = make_kernels<Fp32Ops<Avx512Fp32>>();

}  // namespace

const TileKernels* avx512_kernels() { return &kKernels; }

}  // namespace flashmla::backends::cpu
