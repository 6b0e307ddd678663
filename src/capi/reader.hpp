// Reads what a C caller gave, argument by argument, and keeps the first complaint. A call that is in order allocates
// nothing here.
#pragma once

#include <cstdint>
#include <string>

#include "capi/structs.hpp"
#include "capi/values.hpp"
#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla::capi {

class Reader {
public:
    // `prefix` goes before every field's name in messages ("device."); what outlives the reader.
    explicit Reader(const char* prefix = "") : prefix_(prefix) {}

    const Status& status() const { return status_; }

    // A copy of a struct of the caller's; zeros after a complaint, so that its fields may be read all the same.
    template <class T>
    T structure(const char* argument, const T* given) {
        T copy{};
        if (status_.ok()) status_ = read_struct(argument, given, copy);
        return status_.ok() ? copy : T{};
    }

    // An output struct or value: there, and of a size that is known.
    template <class T>
    void output(const char* argument, const T* out) {
        if (status_.ok()) status_ = check_struct(argument, out);
    }
    void pointer(const char* argument, const void* given, const char* wanted);

    void flag(const char* field, std::int32_t given, bool& value);
    void reserved(const char* field, std::int64_t given);
    void device(const char* field, flashmla_device_type type, std::int32_t index, Device& value);
    // FLASHMLA_CACHE_OF_DTYPE is fp16 beside fp16, otherwise bf16.
    void format(const char* field, flashmla_cache_format given, DType dtype, CacheFormat& value);
    void dtype(const char* field, flashmla_dtype given, DType& value) { enumeration(kDTypes, field, given, value); }
    void operation(const char* field, flashmla_operation given, Operation& value) {
        enumeration(kOperations, field, given, value);
    }
    void range(const char* field, std::int64_t given, std::int64_t low, std::int64_t high);

    // Null, or rank 0, gives a view of rank 0: not given.
    void tensor(const char* field, const flashmla_tensor* given, TensorView& view);

    void complain(const char* field, const std::string& got, const std::string& wanted);

private:
    template <class T, std::size_t N>
    void enumeration(const ValuePair<T> (&pairs)[N], const char* field, std::int32_t given, T& value) {
        if (!status_.ok()) return;
        std::string accepted;
        for (const ValuePair<T>& pair : pairs) {
            if (pair.c != given) continue;
            value = pair.cpp;
            return;
        }
        for (const ValuePair<T>& pair : pairs) {
            accepted += (accepted.empty() ? "" : ", ") + std::to_string(pair.c) + " (" + name(pair.cpp) + ")";
        }
        complain(field, std::to_string(given), accepted);
    }

    const char* prefix_;
    Status status_;
};

}  // namespace flashmla::capi
