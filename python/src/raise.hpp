// Library errors as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "flashmla/status.hpp"

namespace flashmla::python {

// Raises ValueError, NotImplementedError, MemoryError or RuntimeError with the library's own words; returns on success.
inline void raise_if_failed(const Status& status) {
    PyObject* type = nullptr;
    switch (status.code()) {
        case StatusCode::kOk: return;
        case StatusCode::kInvalidArgument: type = PyExc_ValueError; break;
        case StatusCode::kUnsupported: type = PyExc_NotImplementedError; break;
        case StatusCode::kOutOfMemory: type = PyExc_MemoryError; break;
        case StatusCode::kRuntimeError: type = PyExc_RuntimeError; break;
    }
    PyErr_SetString(type, status.message().c_str());
    throw nanobind::python_error();
}

template <class T>
T value_or_raise(Result<T> result) {
    raise_if_failed(result.status());
    return std::move(result).value();
}

}  // namespace flashmla::python
