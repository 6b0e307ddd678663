#include "tensor_import.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace nb = nanobind;

namespace flashmla::python {
namespace {

// Caches, whose elements may be the bytes of records.
bool holds_records(std::string_view argument) {
    return argument.ends_with("cache") || argument == "source" || argument == "destination";
}

constexpr int kDlpackCpu = 1, kDlpackCuda = 2, kDlpackCudaHost = 3, kDlpackCudaManaged = 13;

[[noreturn]] void reject(const char* argument, const std::string& got, const char* wanted) {
    throw nb::value_error((std::string(argument) + ": got " + got + ", wanted " + wanted).c_str());
}

std::string class_name(nb::handle object) { return nb::cast<std::string>(nb::str(object.type().attr("__name__"))); }

std::string dtype_text(nb::dlpack::dtype dtype) {
    using Code = nb::dlpack::dtype_code;
    const std::string bits = std::to_string(dtype.bits);
    if (dtype.lanes != 1) return bits + "-bit vectors";
    switch (static_cast<Code>(dtype.code)) {
        case Code::Int: return "int" + bits;
        case Code::UInt: return "uint" + bits;
        case Code::Float: return "float" + bits;
        case Code::Bfloat: return "bfloat" + bits;
        case Code::Complex: return "complex" + bits;
        case Code::Bool: return "bool";
        case Code::Float8_E5M2: return "float8_e5m2";
        case Code::Float8_E8M0FNU: return "float8_e8m0fnu";
        default: return "a " + bits + "-bit type (DLPack code " + std::to_string(dtype.code) + ")";
    }
}

// The element types that arguments of a name have in any operation, for the message about one that the library has no
// name for. Which of them an operation takes is decided in the library.
const char* usual_dtypes(std::string_view argument) {
    constexpr std::string_view kFloat32[] = {"lse",       "lses",      "max_logits", "attn_sink",
                                             "descale_q", "descale_k", "cos_sin",    "dlse"};
    constexpr std::string_view kInt32[] = {"block_table", "cache_seqlens", "indices",
                                           "topk_length", "extra_indices", "extra_topk_length"};
    const auto has = [&](const auto& names) {
        return std::find(std::begin(names), std::end(names), argument) != std::end(names);
    };
    if (has(kInt32) || argument.starts_with("cu_seqlens")) return "int32";
    if (has(kFloat32)) return "float32";
    if (argument == "slot_ids" || argument == "positions" || argument == "page_pairs") return "int32 or int64";
    if (holds_records(argument)) return "bfloat16, float16, float8_e4m3fn or uint8";
    return "bfloat16, float16 or float32";
}

DType to_dtype(const char* argument, const std::string& dtype_name) {
    for (DType dtype : kAllDTypes) {
        if (dtype_name == name(dtype)) return dtype;
    }
    if (dtype_name == "int8" && holds_records(argument)) return DType::kUInt8;  // bytes by another name
    reject(argument, "dtype " + dtype_name, usual_dtypes(argument));
}

DType to_dtype(const char* argument, nb::dlpack::dtype dtype) {
    using Code = nb::dlpack::dtype_code;
    if (dtype.lanes == 1) {
        const Code code = static_cast<Code>(dtype.code);
        if (code == Code::Bfloat && dtype.bits == 16) return DType::kBFloat16;
        if (code == Code::Float && dtype.bits == 16) return DType::kFloat16;
        if (code == Code::Float && dtype.bits == 32) return DType::kFloat32;
        if (code == Code::Int && dtype.bits == 32) return DType::kInt32;
        if (code == Code::Int && dtype.bits == 64) return DType::kInt64;
        if (code == Code::UInt && dtype.bits == 8) return DType::kUInt8;
        if (code == Code::Float8_E4M3FN) return DType::kFloat8E4m3;
    }
    return to_dtype(argument, dtype_text(dtype));
}

Device to_device(const char* argument, nb::dlpack::device device) {
    switch (device.device_type) {
        case kDlpackCpu:
        case kDlpackCudaHost: return {.type = DeviceType::kCpu, .index = 0};
        case kDlpackCuda:
        case kDlpackCudaManaged: return {.type = DeviceType::kCuda, .index = device.device_id};
        default:
            reject(argument, "a tensor on DLPack device type " + std::to_string(device.device_type),
                   "one on cpu or cuda");
    }
}

const DlpackExchange* look_up_exchange(nb::handle type) {
    static PyObject* const attribute = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    nb::object capsule = nb::steal(PyObject_GetAttr(type.ptr(), attribute));
    if (!capsule.is_valid()) {
        PyErr_Clear();
        return nullptr;
    }
    auto* table = static_cast<DlpackExchange*>(PyCapsule_GetPointer(capsule.ptr(), kDlpackExchangeCapsule));
    if (table == nullptr) PyErr_Clear();
    while (table != nullptr && table->version.major != kDlpackExchangeMajor) table = table->previous;
    return table;
}

// A call's tensors are of one type, nearly always: that type's table is remembered, under the GIL.
const DlpackExchange* find_exchange(nb::handle array) {
    static PyObject* known_type = nullptr;
    static const DlpackExchange* known_table = nullptr;
    PyObject* const type = array.type().ptr();
    if (type != known_type) {
        const DlpackExchange* const table = look_up_exchange(type);
        if (table == nullptr) return nullptr;
        Py_INCREF(type);
        Py_XDECREF(known_type);
        known_type = type;
        known_table = table;
    }
    return known_table;
}

// JAX exports its arrays without saying that nothing may write to them.
bool is_immutable(nb::handle array) {
    const std::string module = nb::cast<std::string>(nb::str(array.type().attr("__module__")));
    return module.starts_with("jax");
}

// Casts without converting: an element type or layout that does not fit is an error, never a hidden copy.
template <class Array>
bool try_import(nb::handle array, nb::ndarray<>& owned) {
    Array imported;
    if (!nb::try_cast(array, imported, /*convert=*/false)) return false;
    owned = nb::ndarray<>(imported);
    return true;
}

// Describes an array: in place if its framework has an exchange table, which is returned, or else by way of `owned`.
const DlpackExchange* describe(const char* argument, nb::handle array, Access access, nb::dlpack::dltensor& tensor,
                               nb::ndarray<>& owned) {
    if (const DlpackExchange* exchange = find_exchange(array); exchange != nullptr) {
        if (exchange->describe(array.ptr(), &tensor) != 0) {
            nb::python_error error;
            reject(argument, "a tensor that cannot be described (" + std::string(error.what()) + ")", "a dense tensor");
        }
        return exchange;
    }
    if (access == Access::kWrite && is_immutable(array)) {
        reject(argument, "a JAX array, whose memory is not to be written", "a writable one");
    }
    const bool imported = access == Access::kWrite ? try_import<nb::ndarray<>>(array, owned)
                                                   : try_import<nb::ndarray<nb::ro>>(array, owned);
    if (!imported) {
        const bool read_only = access == Access::kWrite && try_import<nb::ndarray<nb::ro>>(array, owned);
        reject(argument, read_only ? "a read-only array" : "an object of type " + class_name(array),
               read_only ? "a writable one" : "an array that speaks DLPack or the buffer protocol");
    }
    tensor.data = owned.data_handle();
    tensor.device = {owned.device_type(), owned.device_id()};
    tensor.ndim = static_cast<std::int32_t>(owned.ndim());
    tensor.dtype = owned.dtype();
    tensor.shape = const_cast<std::int64_t*>(owned.shape_ptr());
    tensor.strides = const_cast<std::int64_t*>(owned.stride_ptr());
    tensor.byte_offset = owned.byte_offset();
    return nullptr;
}

void* first_element(const nb::dlpack::dltensor& tensor) {
    return tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
}

}  // namespace

ImportedBytes import_bytes(const char* argument, nb::handle array, Access access) {
    ImportedBytes result;
    nb::dlpack::dltensor tensor;
    describe(argument, array, access, tensor, result.owned);
    result.data = first_element(tensor);
    result.device = to_device(argument, tensor.device);
    result.size_bytes = (tensor.dtype.bits + 7) / 8;
    for (int axis = 0; axis < tensor.ndim; ++axis) result.size_bytes *= tensor.shape[axis];
    return result;
}

ImportedTensor import_tensor(const char* argument, nb::handle array, Access access) {
    // Pairs (array, dtype name) carry what NumPy cannot export.
    const bool named = PyTuple_Check(array.ptr()) && PyTuple_Size(array.ptr()) == 2;
    ImportedTensor result;
    nb::dlpack::dltensor tensor;
    result.exchange =
        describe(argument, named ? nb::handle(PyTuple_GetItem(array.ptr(), 0)) : array, access, tensor, result.owned);
    if (tensor.ndim > kMaxRank) reject(argument, "rank " + std::to_string(tensor.ndim), "at most 4");
    result.view.data = first_element(tensor);
    result.view.device = to_device(argument, tensor.device);
    result.view.dtype = named ? to_dtype(argument, nb::cast<std::string>(nb::handle(PyTuple_GetItem(array.ptr(), 1))))
                              : to_dtype(argument, tensor.dtype);
    result.view.rank = tensor.ndim;
    std::int64_t packed = 1;
    for (int axis = tensor.ndim - 1; axis >= 0; --axis) {
        result.view.shape[axis] = tensor.shape[axis];
        result.view.stride[axis] = tensor.strides == nullptr ? packed : tensor.strides[axis];
        packed *= tensor.shape[axis];
    }
    return result;
}

OwnedTensor allocate_bytes(const Home& home, std::size_t size_bytes) {
    if (home.exchange == nullptr) return nullptr;
    std::int64_t shape[] = {static_cast<std::int64_t>(size_bytes)};
    nb::dlpack::dltensor prototype;
    const bool cuda = home.device.type == DeviceType::kCuda;
    prototype.device = {cuda ? kDlpackCuda : kDlpackCpu, home.device.index};
    prototype.ndim = 1;
    prototype.dtype = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), 8, 1};
    prototype.shape = shape;
    std::string reason;
    const auto fail = [](void* context, const char*, const char* message) {
        *static_cast<std::string*>(context) = message;
    };
    DlpackOwnedTensor* tensor = nullptr;
    if (home.exchange->allocate(&prototype, &tensor, &reason, fail) != 0) {
        PyErr_SetString(PyExc_MemoryError, ("workspace: " + reason).c_str());
        throw nb::python_error();
    }
    return OwnedTensor(tensor);
}

StreamHandle current_stream(const Home& home) {
    if (home.exchange == nullptr) {
        throw nb::value_error("stream: got None, wanted an address: q's type cannot tell its own");
    }
    void* stream = nullptr;
    if (home.exchange->current_stream(kDlpackCuda, home.device.index, &stream) != 0) throw nb::python_error();
    return stream;
}

}  // namespace flashmla::python
