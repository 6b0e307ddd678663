#include "cpu/emulated_kernels.hpp"

#include "backends/cpu/isa_plain.hpp"
#include "backends/cpu/ops_bf16.hpp"
#include "backends/cpu/ops_f32.hpp"
#include "backends/cpu/rows.hpp"

namespace flashmla::cpu_tests {
namespace {

namespace cpu = backends::cpu;

struct Tag {};

// Same lanes, panels and blocks as the real paths.
template <int kBlock>
struct Emulated : cpu::Plain<Tag, 16> {
    static constexpr int kPanelVectors = 2;
    static constexpr int kDepthBlock = kBlock;
    using U = cpu::Lanes<kLanes>::Uint;

    template <int kVectors>
    static constexpr int tile() {
        return 12;
    }
    static FLASHMLA_INLINE F low(F pairs) { return reinterpret_cast<F>(reinterpret_cast<U>(pairs) << 16); }
    static FLASHMLA_INLINE F high(F pairs) { return reinterpret_cast<F>(reinterpret_cast<U>(pairs) & 0xffff0000u); }
    static FLASHMLA_INLINE F dot_bf16(F a, F b, F c) { return c + high(a) * high(b) + low(a) * low(b); }
};

// Attention alone, to keep the compile time of this file down.
constexpr cpu::TileKernels kFp32 = cpu::make_attention_kernels<cpu::Fp32Ops<Emulated<192>>>();
constexpr cpu::TileKernels kBf16 = cpu::make_attention_kernels<cpu::Bf16Ops<Emulated<144>>>();

}  // namespace

const cpu::TileKernels& emulated_avx512_kernels() { return kFp32; }
const cpu::TileKernels& emulated_avx512_bf16_kernels() { return kBf16; }

}  // namespace flashmla::cpu_tests
