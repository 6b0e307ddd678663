// The C exchange protocol of DLPack 1.3: a table of functions that an array type publishes as
// `__dlpack_c_exchange_api__`. It describes a tensor in place, without a capsule, a reference or a stream wait, in
// about 30 ns where `__dlpack__` takes microseconds. nanobind does not know it yet; only the two entries used here are
// spelled out with their types.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>

namespace flashmla::python {

struct DlpackVersion {
    std::uint32_t major;
    std::uint32_t minor;
};

struct DlpackOwnedTensor {
    DlpackVersion version;
    void* owner;
    void (*free)(DlpackOwnedTensor*);
    std::uint64_t flags;
    nanobind::dlpack::dltensor tensor;
};

struct DlpackExchange {
    DlpackVersion version;
    DlpackExchange* previous;  // an older table of the same framework, or null
    // Memory from the framework's own allocator, of the prototype's shape, element type and device. 0 on success;
    // otherwise `fail` has been called with a kind and a message.
    int (*allocate)(nanobind::dlpack::dltensor* prototype, DlpackOwnedTensor** out, void* context,
                    void (*fail)(void* context, const char* kind, const char* message));
    void* export_owned;
    void* import_owned;
    // Fills a borrowed description, valid while the array lives. 0 on success, -1 with a Python error set.
    int (*describe)(void* array, nanobind::dlpack::dltensor* out);
    // The framework's current stream of a device.
    int (*current_stream)(int device_type, std::int32_t device_index, void** out);
};

inline constexpr const char* kDlpackExchangeCapsule = "dlpack_exchange_api";
inline constexpr std::uint32_t kDlpackExchangeMajor = 1;

}  // namespace flashmla::python
