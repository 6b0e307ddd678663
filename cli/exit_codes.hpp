// What the program's exit status means (docs/cli.md), and the exception that carries one to main.
#pragma once

#include <string>
#include <utility>

#include "flashmla/status.hpp"

namespace flashmla::cli {

enum ExitCode : int {
    kExitOk = 0,
    kExitCheckFailed = 1,   // the program ran, and a result was wrong
    kExitBadInput = 2,      // bad options, files or shapes: nothing was computed
    kExitUnsupported = 3,   // a legal request that this build or device cannot serve
    kExitRuntimeError = 4,  // out of memory, a failed launch, an unwritable file
};

struct Failure {
    ExitCode code;
    std::string message;
};

constexpr ExitCode exit_code(StatusCode code) {
    switch (code) {
        case StatusCode::kOk: return kExitOk;
        case StatusCode::kInvalidArgument: return kExitBadInput;
        case StatusCode::kUnsupported: return kExitUnsupported;
        case StatusCode::kOutOfMemory:
        case StatusCode::kRuntimeError: return kExitRuntimeError;
    }
    return kExitRuntimeError;
}

inline void require(const Status& status) {
    if (!status.ok()) throw Failure{exit_code(status.code()), status.message()};
}

template <class T>
T require(Result<T> result) {
    require(result.status());
    return std::move(result).value();
}

}  // namespace flashmla::cli
