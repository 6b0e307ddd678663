#include "capi/guard.hpp"

#include <algorithm>
#include <cstring>

namespace flashmla::capi {
namespace {

// The longest message lists why each kernel of the catalogue was not taken; longer ones end in dots. Plain memory: the
// thread's end, or the library's unloading, has nothing to destroy.
constexpr std::size_t kCapacity = 4096;
thread_local char last_error[kCapacity] = "";

}  // namespace

void keep_error(std::string_view text) noexcept {
    constexpr std::string_view kDots = "...";
    const std::size_t length = std::min(text.size(), kCapacity - 1);
    std::memcpy(last_error, text.data(), length);
    if (length < text.size()) std::memcpy(last_error + length - kDots.size(), kDots.data(), kDots.size());
    last_error[length] = '\0';
}

flashmla_status to_c(const Status& status) noexcept {
    if (status.ok()) return FLASHMLA_OK;
    keep_error(status.message());
    switch (status.code()) {
        case StatusCode::kOk: break;
        case StatusCode::kInvalidArgument: return FLASHMLA_INVALID_ARGUMENT;
        case StatusCode::kUnsupported: return FLASHMLA_UNSUPPORTED;
        case StatusCode::kOutOfMemory: return FLASHMLA_OUT_OF_MEMORY;
        case StatusCode::kRuntimeError: break;
    }
    return FLASHMLA_RUNTIME_ERROR;
}

extern "C" const char* flashmla_last_error() { return last_error; }

}  // namespace flashmla::capi
