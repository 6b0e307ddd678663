// Which instruction set's functions serve a call.
#pragma once

#include "backends/cpu/tile_kernels.hpp"
#include "flashmla/status.hpp"

namespace flashmla::backends::cpu {

// The widest compiled-in path that this CPU has and that computes in `dtype`; FLASHMLA_CPU_ISA forces one
// (core/cpu_isa.hpp).
Result<const TileKernels*> select_kernels(DType dtype);

}  // namespace flashmla::backends::cpu
