// Memory of this library as an array that exports itself by DLPack: for frameworks whose own arrays cannot be written
// to.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "bind.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

constexpr std::align_val_t kAlignment{256};

nb::object host_array(const std::vector<std::int64_t>& shape, const std::string& dtype_name) {
    using Code = nb::dlpack::dtype_code;
    nb::dlpack::dtype dtype{static_cast<std::uint8_t>(Code::Float), 32, 1};
    if (dtype_name == "bfloat16") dtype = {static_cast<std::uint8_t>(Code::Bfloat), 16, 1};
    if (dtype_name == "float16") dtype.bits = 16;
    if (dtype_name == "uint8") dtype = {static_cast<std::uint8_t>(Code::UInt), 8, 1};
    if (dtype_name == "float8_e4m3fn") dtype = {static_cast<std::uint8_t>(Code::Float8_E4M3FN), 8, 1};
    std::vector<std::size_t> extents(shape.begin(), shape.end());
    std::size_t bytes = dtype.bits / 8;
    for (std::size_t extent : extents) bytes *= extent;
    void* memory = ::operator new(bytes, kAlignment);
    nb::capsule owner(memory, [](void* held) noexcept { ::operator delete(held, kAlignment); });
    return nb::cast(nb::ndarray<nb::array_api>(memory, extents.size(), extents.data(), owner, nullptr, dtype,
                                               nb::device::cpu::value));
}

}  // namespace

void bind_host_array(nb::module_& module) {
    module.def("host_array", &host_array, nb::arg("shape"), nb::arg("dtype"));
    module.attr("HostArray") = host_array({}, "float32").type();
}

}  // namespace flashmla::python
