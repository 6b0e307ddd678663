// Errors as values: every call of the library returns a Status or a Result<T>; nothing throws, exits or prints.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace flashmla {

enum class StatusCode {
    kOk,
    kInvalidArgument,  // the caller passed something the operation never accepts (shape, dtype, stride, null, ...)
    kUnsupported,      // a legal request that this build, device or kernel set cannot serve; the message says why
    kOutOfMemory,
    kRuntimeError,  // the device or the driver failed; the message holds the failing expression
};

class [[nodiscard]] Status {
public:
    Status() = default;  // success
    Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

    bool ok() const { return code_ == StatusCode::kOk; }
    StatusCode code() const { return code_; }
    // One sentence: the argument's name, what it got, what it accepts. Empty on success.
    const std::string& message() const { return message_; }

private:
    StatusCode code_ = StatusCode::kOk;
    std::string message_;
};

inline Status invalid_argument(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
inline Status unsupported(std::string message) { return {StatusCode::kUnsupported, std::move(message)}; }
inline Status runtime_error(std::string message) { return {StatusCode::kRuntimeError, std::move(message)}; }

// A value or the reason why there is none. value() may only be called when ok().
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : held_(std::move(value)) {}
    Result(Status status) : held_(std::move(status)) {}

    bool ok() const { return std::holds_alternative<T>(held_); }
    const T& value() const& { return std::get<T>(held_); }
    T&& value() && { return std::get<T>(std::move(held_)); }
    Status status() const { return ok() ? Status{} : std::get<Status>(held_); }

private:
    std::variant<Status, T> held_;
};

}  // namespace flashmla
