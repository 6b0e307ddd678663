// Which instruction set's functions serve a call.
#pragma once

#include "backends/cpu/tile_kernels.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

// What attention over latents multiplies in: bf16 where queries and keys are bf16 values exactly (e4m3 codes and the
// power-of-two scales of 584-byte records included), or else fp32: fp16 would lose range, and codes times the free
// scales of 656-byte records would lose bits.
DType product_type(const DecodeShape& shape);

// The functions of the widest compiled-in path that this CPU has, with products in `products`: bf16 asks for bf16 dot
// products where the path has them, anything else for fp32. FLASHMLA_CPU_ISA forces a path (core/cpu_isa.hpp).
Result<const TileKernels*> select_kernels(DType products);

}  // namespace flashmla::backends::cpu
