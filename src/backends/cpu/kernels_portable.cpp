// The path for any CPU: 128-bit vectors as the compiler sees fit, no fused multiply-add.
#include "backends/cpu/isa_plain.hpp"
#include "backends/cpu/ops_f32.hpp"
#include "backends/cpu/rows.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Tag {};

struct Portable : Plain<Tag, 4> {
    static constexpr int kPanelVectors = 2;
    static constexpr int kDepthBlock = 576;

    template <int kVectors>
    static constexpr int tile() {
        return 12 / kVectors;
    }
};

constexpr TileKernels kKernels = make_kernels<Fp32Ops<Portable>>();

}  // namespace

const TileKernels* portable_kernels() { return &kKernels; }

}  // namespace flashmla::backends::cpu
