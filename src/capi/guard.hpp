// The edge of the library towards C: no exception passes, a failure leaves its words with the calling thread.
#pragma once

#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "flashmla/c/types.h"
#include "flashmla/status.hpp"

namespace flashmla::capi {

// Keeps the text for flashmla_last_error(). Allocates nothing: it also reports that memory ran out.
void keep_error(std::string_view text) noexcept;

flashmla_status to_c(const Status& status) noexcept;

// Runs `body`, which returns a Status.
template <class Body>
flashmla_status guarded(Body&& body) noexcept {
    try {
        return to_c(std::forward<Body>(body)());
    } catch (const std::bad_alloc&) {
        keep_error("host memory: an allocation failed");
        return FLASHMLA_OUT_OF_MEMORY;
    } catch (const std::exception& exception) {
        keep_error(exception.what());
        return FLASHMLA_RUNTIME_ERROR;
    } catch (...) {
        keep_error("flashmla: an exception of unknown type");
        return FLASHMLA_RUNTIME_ERROR;
    }
}

}  // namespace flashmla::capi
