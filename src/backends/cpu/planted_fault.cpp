#include "core/planted_fault.hpp"

#if FLASHMLA_PLANTED_FAULT < 0
#include <cstdlib>

namespace flashmla::core {

const int planted_at_run_time = [] {
    const char* chosen = std::getenv("FLASHMLA_PLANTED_FAULT");
    return chosen != nullptr ? std::atoi(chosen) : 0;
}();

}  // namespace flashmla::core
#endif
