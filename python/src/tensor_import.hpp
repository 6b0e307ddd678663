// From a Python array of any framework to a TensorView.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "dlpack_exchange.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla::python {

enum class Access { kRead, kWrite };

// A read array. `owned` keeps it alive while the call runs, and is empty when the array was only described in place:
// then the caller's own reference does.
struct ImportedTensor {
    TensorView view;
    nanobind::ndarray<> owned;
    const DlpackExchange* exchange = nullptr;  // the framework's table, when it has one
};

// The same as raw memory.
struct ImportedBytes {
    void* data = nullptr;
    std::int64_t size_bytes = 0;
    Device device{};
    nanobind::ndarray<> owned;
};

// Both accept whatever speaks the DLPack exchange table, `__dlpack__` or the buffer protocol, and DLPack capsules, and
// raise ValueError naming `argument` for everything else. A tensor may also be a pair (array, dtype name), for element
// types that NumPy can hold but not export (ml_dtypes): the array is then an unsigned view of the same width.
ImportedTensor import_tensor(const char* argument, nanobind::handle array, Access access);
ImportedBytes import_bytes(const char* argument, nanobind::handle array, Access access);

// Where a call runs: the device of its first tensor, and the table of that one's framework (null when it has none),
// which knows stream and allocator.
struct Home {
    Device device{};
    const DlpackExchange* exchange = nullptr;
};

struct FreeOwnedTensor {
    void operator()(DlpackOwnedTensor* tensor) const { tensor->free(tensor); }
};
using OwnedTensor = std::unique_ptr<DlpackOwnedTensor, FreeOwnedTensor>;

// Memory from the framework's allocator, so that stream order and graph pools are the framework's business. Raises
// MemoryError; null without an exchange table.
OwnedTensor allocate_bytes(const Home& home, std::size_t size_bytes);

// The stream the framework is working on right now, on home's device. ValueError without an exchange table.
StreamHandle current_stream(const Home& home);

}  // namespace flashmla::python
