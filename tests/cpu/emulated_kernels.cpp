#include "cpu/emulated_kernels.hpp"

#include "backends/cpu/fp8_vector.hpp"
#include "backends/cpu/ops_bf16.hpp"
#include "backends/cpu/ops_f32.hpp"
#include "backends/cpu/rows.hpp"
#include "core/float_formats.hpp"

namespace flashmla::cpu_tests {
namespace {

namespace cpu = backends::cpu;

// Same lanes, panels and blocks as the real paths.
template <int kBlock>
struct Emulated {
    static constexpr int kLanes = 16;
    static constexpr int kPanelVectors = 2;
    static constexpr int kDepthBlock = kBlock;
    using F = cpu::Lanes<kLanes>::Float;
    using U = cpu::Lanes<kLanes>::Uint;
    using H = cpu::Lanes<kLanes>::Half;

    template <int kVectors>
    static constexpr int tile() {
        return 12;
    }
    static FLASHMLA_INLINE F multiply_add_f32(F a, F b, F c) { return a * b + c; }
    static FLASHMLA_INLINE F decode_fp16(const void* from) {
        const H codes = cpu::load<H>(from);
        F v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::fp16_to_float(codes[i]);
        return v;
    }
    static FLASHMLA_INLINE F decode_e4m3(const std::uint8_t* from) { return cpu::decode_e4m3<Emulated>(from); }
    static FLASHMLA_INLINE H encode_fp16(F value) {
        H v;
        for (int i = 0; i < kLanes; ++i) v[i] = core::float_to_fp16(value[i]);
        return v;
    }
    static FLASHMLA_INLINE F low(F pairs) { return reinterpret_cast<F>(reinterpret_cast<U>(pairs) << 16); }
    static FLASHMLA_INLINE F high(F pairs) { return reinterpret_cast<F>(reinterpret_cast<U>(pairs) & 0xffff0000u); }
    static FLASHMLA_INLINE F dot_bf16(F a, F b, F c) { return c + high(a) * high(b) + low(a) * low(b); }
};

constexpr cpu::TileKernels kFp32 = cpu::make_kernels<cpu::Fp32Ops<Emulated<192>>>();
constexpr cpu::TileKernels kBf16 = cpu::make_kernels<cpu::Bf16Ops<Emulated<144>>>();

}  // namespace

const cpu::TileKernels& emulated_avx512_kernels() { return kFp32; }
const cpu::TileKernels& emulated_avx512_bf16_kernels() { return kBf16; }

}  // namespace flashmla::cpu_tests
