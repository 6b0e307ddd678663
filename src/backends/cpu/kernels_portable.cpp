// The path for any CPU: 128-bit vectors as the compiler sees fit, no fused multiply-add.
#include "backends/cpu/fp8_vector.hpp"
#include "backends/cpu/ops_f32.hpp"
#include "backends/cpu/rows.hpp"
#include "core/float_formats.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Portable {
    static constexpr int kLanes = 4;
    static constexpr int kPanelVectors = 2;
    static constexpr int kDepthBlock = 576;
    using F = Lanes<kLanes>::Float;
    using H = Lanes<kLanes>::Half;

    template <int kVectors>
    static constexpr int tile() {
        return 12 / kVectors;
    }
    static FLASHMLA_INLINE F multiply_add_f32(F a, F b, F c) { return a * b + c; }
    static F decode_fp16(const void* from) {
        const H codes = load<H>(from);
        F v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::fp16_to_float(codes[i]);
        return v;
    }
    static FLASHMLA_INLINE F decode_e4m3(const std::uint8_t* from) { return cpu::decode_e4m3<Portable>(from); }
    static H encode_fp16(F value) {
        H v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::float_to_fp16(value[i]);
        return v;
    }
};

constexpr TileKernels kKernels = make_kernels<Fp32Ops<Portable>>();

}  // namespace

const TileKernels* portable_kernels() { return &kKernels; }

}  // namespace flashmla::backends::cpu
