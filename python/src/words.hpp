// The words by which Python callers name things: dtypes, cache formats, operations, options.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <span>
#include <string>

#include "flashmla/cache_format.hpp"
#include "flashmla/device.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/types.hpp"
#include "raise.hpp"

namespace flashmla::python {

// The value called `word`, or ValueError that lists the words there are.
template <class Value>
Value find_word(const char* argument, const std::string& word, std::span<const Value> values) {
    std::string known;
    for (const Value value : values) {
        if (word == name(value)) return value;
        known += (known.empty() ? "" : ", ") + std::string(name(value));
    }
    throw nanobind::value_error((std::string(argument) + ": got " + word + ", wanted one of " + known).c_str());
}

inline DType find_dtype(const std::string& word) { return find_word<DType>("dtype", word, kAllDTypes); }

inline CacheFormat find_format(const std::string& word) {
    return find_word<CacheFormat>("format", word, kAllCacheFormats);
}

inline constexpr Operation kAllOperations[] = {
    Operation::kDecode, Operation::kSparsePrefill, Operation::kDensePrefill, Operation::kDensePrefillBackward,
    Operation::kAppend, Operation::kGather,        Operation::kCopyPages,    Operation::kConvert,
    Operation::kMerge,  Operation::kAbsorb};

inline Operation find_operation(const std::string& word) {
    return find_word<Operation>("operation", word, kAllOperations);
}

// "cpu", "cuda", "cuda:1", or the name of a reference description ("h200") to plan for hardware that is not here.
inline DeviceInfo find_device(const std::string& name) {
    if (name == "cpu") return value_or_raise(query_device({.type = DeviceType::kCpu, .index = 0}));
    if (name == "cuda") return value_or_raise(query_device({.type = DeviceType::kCuda, .index = 0}));
    if (name.starts_with("cuda:") && name.size() > 5 && name.size() < 10 &&
        name.find_first_not_of("0123456789", 5) == std::string::npos) {
        return value_or_raise(query_device({.type = DeviceType::kCuda, .index = std::stoi(name.substr(5))}));
    }
    return value_or_raise(named_device(name));
}

// A tuple (batch_invariant, kernel, num_workers).
inline PlanOptions plan_options(nanobind::tuple options) {
    return {.batch_invariant = nanobind::cast<bool>(options[0]),
            .kernel = nanobind::cast<std::string>(options[1]),
            .num_workers = nanobind::cast<int>(options[2])};
}

}  // namespace flashmla::python
