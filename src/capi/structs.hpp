// Structs that cross the C interface: their size says which fields the caller's header had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "flashmla/flashmla.h"
#include "flashmla/status.hpp"

namespace flashmla::capi {

// Size of the struct in the first header that had it: callers of then stay welcome, the fields they lack are zero.
// A struct that grows gets a specialisation with the size it had.
template <class T>
inline constexpr std::size_t kFirstSize = sizeof(T);

// The header's name of a type, for messages.
constexpr const char* c_name(const flashmla_absorb_args*) { return "flashmla_absorb_args"; }
constexpr const char* c_name(const flashmla_append_args*) { return "flashmla_append_args"; }
constexpr const char* c_name(const flashmla_build_info*) { return "flashmla_build_info"; }
constexpr const char* c_name(const flashmla_capability_query*) { return "flashmla_capability_query"; }
constexpr const char* c_name(const flashmla_convert_args*) { return "flashmla_convert_args"; }
constexpr const char* c_name(const flashmla_copy_pages_args*) { return "flashmla_copy_pages_args"; }
constexpr const char* c_name(const flashmla_decode_args*) { return "flashmla_decode_args"; }
constexpr const char* c_name(const flashmla_decode_shape*) { return "flashmla_decode_shape"; }
constexpr const char* c_name(const flashmla_dense_prefill_args*) { return "flashmla_dense_prefill_args"; }
constexpr const char* c_name(const flashmla_dense_prefill_backward_args*) {
    return "flashmla_dense_prefill_backward_args";
}
constexpr const char* c_name(const flashmla_device_info*) { return "flashmla_device_info"; }
constexpr const char* c_name(const flashmla_gather_args*) { return "flashmla_gather_args"; }
constexpr const char* c_name(const flashmla_merge_args*) { return "flashmla_merge_args"; }
constexpr const char* c_name(const flashmla_plan_info*) { return "flashmla_plan_info"; }
constexpr const char* c_name(const flashmla_plan_options*) { return "flashmla_plan_options"; }
constexpr const char* c_name(const flashmla_prefill_shape*) { return "flashmla_prefill_shape"; }
constexpr const char* c_name(const flashmla_sparse_prefill_args*) { return "flashmla_sparse_prefill_args"; }
constexpr const char* c_name(const flashmla_tensor*) { return "flashmla_tensor"; }

struct StructSizes {
    const char* type;
    std::size_t smallest, largest;
};
Status check_struct_size(const char* argument, const void* given, const StructSizes& sizes);
Status null_pointer(const char* argument, const std::string& wanted);

// struct_size comes first in every struct. Nothing beyond it is read before it is known to be right.
template <class T>
Status check_struct(const char* argument, const T* given) {
    static_assert(std::is_standard_layout_v<T> && std::is_trivially_copyable_v<T>);
    static_assert(offsetof(T, struct_size) == 0 && kFirstSize<T> <= sizeof(T));
    return check_struct_size(argument, given, {c_name(given), kFirstSize<T>, sizeof(T)});
}

// A copy of what the caller gave, fields that its header did not have zeroed.
template <class T>
Status read_struct(const char* argument, const T* given, T& copy) {
    // Null is never ok; said again for those who only read this function, the static analyzer among them.
    if (Status status = check_struct(argument, given); !status.ok() || given == nullptr) return status;
    copy = {};
    std::memcpy(&copy, given, given->struct_size);
    return {};
}

// Fills what the caller's struct has room for; check_struct has passed.
template <class T>
void write_struct(T value, T* out) {
    value.struct_size = out->struct_size;
    std::memcpy(out, &value, value.struct_size);
}

}  // namespace flashmla::capi
