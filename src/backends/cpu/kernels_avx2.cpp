// The path for AVX2 with FMA and F16C: fp32 products, 6 x 2 vectors of accumulators in the 16 registers.
#include "backends/cpu/isa_avx2.hpp"
#include "backends/cpu/ops_f32.hpp"
#include "backends/cpu/rows.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Tag {};

struct Avx2Fp32 : Avx2<Tag> {
    static constexpr int kPanelVectors = 2;
    static constexpr int kDepthBlock = 288;  // 16 rows x 288 x 4 B = 18 KB of queries in L1

    template <int kVectors>
    static constexpr int tile() {
        return 12 / kVectors;
    }
};

constexpr TileKernels kKernels = make_kernels<Fp32Ops<Avx2Fp32>>();

}  // namespace

const TileKernels* avx2_kernels() { return &kKernels; }

}  // namespace flashmla::backends::cpu
