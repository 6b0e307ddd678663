#include "simulator/parity.hpp"

namespace flashmla::simulator {

ParityItem parity_item([[maybe_unused]] core::CpuIsa isa) {
#if defined(__x86_64__)
    if (isa >= core::CpuIsa::kAvx512) return parity_item_vector512;
    if (isa >= core::CpuIsa::kAvx2) return parity_item_vector256;
#endif
    return parity_item_vector128;
}

}  // namespace flashmla::simulator
