// From a Python array of any framework to a TensorView.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "dlpack_exchange.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla::python {

enum class Access { kRead, kWrite };

// An array as raw memory, and what keeps that alive while the call runs (nothing when the array was only described in
// place: then the caller's own reference does).
struct ImportedBytes {
    void* data = nullptr;
    std::int64_t size_bytes = 0;
    Device device{};
    nanobind::dlpack::dltensor tensor;
    nanobind::ndarray<> owned;
    const DlpackExchange* exchange = nullptr;  // the framework's table, when it has one
};

struct ImportedTensor {
    TensorView view;
    ImportedBytes bytes;
};

// Both accept whatever speaks the DLPack exchange table, `__dlpack__` or the buffer protocol, and DLPack capsules, and
// raise ValueError naming `argument` for everything else. A tensor may also be a pair (array, dtype name), for element
// types that NumPy can hold but not export (ml_dtypes): the array is then an unsigned view of the same width.
ImportedBytes import_bytes(const char* argument, nanobind::handle array, Access access);
ImportedTensor import_tensor(const char* argument, nanobind::handle array, Access access);

struct FreeOwnedTensor {
    void operator()(DlpackOwnedTensor* tensor) const { tensor->free(tensor); }
};
using OwnedTensor = std::unique_ptr<DlpackOwnedTensor, FreeOwnedTensor>;

// Memory on like's device from its framework's allocator, so that stream order and graph pools are the framework's
// business. Raises MemoryError; null when the framework has no exchange table.
OwnedTensor allocate_bytes(const ImportedBytes& like, std::size_t size_bytes);

// The stream a tensor's framework is working on right now, on the tensor's device. ValueError without an exchange
// table.
StreamHandle current_stream(const ImportedTensor& tensor);

}  // namespace flashmla::python
