// The AVX-512 paths' templates over vectors of the same width that any CPU can compute with.
#pragma once

#include "backends/cpu/tile_kernels.hpp"

namespace flashmla::cpu_tests {

const backends::cpu::TileKernels& emulated_avx512_kernels();
const backends::cpu::TileKernels& emulated_avx512_bf16_kernels();

}  // namespace flashmla::cpu_tests
