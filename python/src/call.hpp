// What surrounds a call of the library: imported arguments kept alive, scratch memory, stream, the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "flashmla/status.hpp"
#include "raise.hpp"
#include "tensor_import.hpp"

namespace flashmla::python {

// The arrays of one call, alive until it returns. "given" ones may be None, which leaves a view of rank 0.
class Arguments {
public:
    TensorView read(const char* name, nanobind::handle array) { return import(name, array, Access::kRead); }
    TensorView write(const char* name, nanobind::handle array) { return import(name, array, Access::kWrite); }
    TensorView read_if_given(const char* name, nanobind::handle array) {
        return array.is_none() ? TensorView{} : read(name, array);
    }
    TensorView write_if_given(const char* name, nanobind::handle array) {
        return array.is_none() ? TensorView{} : write(name, array);
    }
    // Of the first one imported.
    const Home& home() const { return home_; }

private:
    TensorView import(const char* name, nanobind::handle array, Access access) {
        ImportedTensor tensor = import_tensor(name, array, access);
        if (!home_known_) home_ = {tensor.view.device, tensor.exchange};
        home_known_ = true;
        if (tensor.owned.is_valid()) kept_.push_back(std::move(tensor.owned));
        return tensor.view;
    }

    Home home_;
    bool home_known_ = false;
    std::vector<nanobind::ndarray<>> kept_;
};

// d_v and the width of a caller's out say the same thing twice. An out of another rank is the library's to refuse.
inline void check_width(const TensorView& out, int rank, std::int64_t d_v) {
    if (out.rank != rank || out.shape[rank - 1] == d_v) return;
    throw nanobind::value_error(
        ("out: got a last axis of " + std::to_string(out.shape[rank - 1]) + ", wanted d_v = " + std::to_string(d_v))
            .c_str());
}

// A softmax_scale, or None for the operation's default.
inline void set_scale(nanobind::handle softmax_scale, double& value, bool& given) {
    given = !softmax_scale.is_none();
    if (given) value = nanobind::cast<double>(softmax_scale);
}

// Scratch memory of a run: the caller's, or fresh memory, which on a GPU comes from the framework's allocator (null
// when that has no exchange table: run_* then says what is missing).
class Workspace {
public:
    Workspace(nanobind::handle given, const Home& home, std::size_t size_bytes) {
        if (!given.is_none()) {
            given_ = import_bytes("workspace", given, Access::kWrite);
            if (given_.device != home.device) throw nanobind::value_error("workspace: on another device than q");
            data_ = given_.data;
            size_bytes_ = static_cast<std::size_t>(given_.size_bytes);
        } else if (home.device.type == DeviceType::kCpu) {
            own_.reset(::operator new(size_bytes, kAlignment));
            data_ = own_.get();
            size_bytes_ = size_bytes;
        } else if ((framework_memory_ = allocate_bytes(home, size_bytes)) != nullptr) {
            data_ = framework_memory_->tensor.data;
            size_bytes_ = size_bytes;
        }
    }

    void* data() const { return data_; }
    std::size_t size_bytes() const { return size_bytes_; }

private:
    static constexpr std::align_val_t kAlignment{256};
    struct FreeAligned {
        void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
    };

    void* data_ = nullptr;
    std::size_t size_bytes_ = 0;
    ImportedBytes given_;
    std::unique_ptr<void, FreeAligned> own_;
    OwnedTensor framework_memory_;
};

// Calls run(stream) and raises what it says. `stream`: an address, or None for the framework's current one; on the CPU
// it means nothing.
template <class Run>
void run_on_stream(const Home& home, nanobind::handle stream, const Run& run) {
    Status status;
    if (home.device.type == DeviceType::kCpu) {
        const nanobind::gil_scoped_release released;  // other Python threads go on meanwhile
        status = run(nullptr);
    } else {
        // Enqueueing takes a few microseconds: giving the GIL away could cost a whole switch interval to get it back.
        status = run(stream.is_none() ? current_stream(home)
                                      : reinterpret_cast<StreamHandle>(nanobind::cast<std::uintptr_t>(stream)));
    }
    raise_if_failed(status);
}

}  // namespace flashmla::python
