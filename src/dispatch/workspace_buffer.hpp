// The workspace of a call that brought none.
#pragma once

#include <cstddef>

#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla::dispatch {

// Host memory, or stream-ordered memory on a device. kOutOfMemory when there is not enough.
class WorkspaceBuffer {
public:
    WorkspaceBuffer(Device device, std::size_t bytes, StreamHandle stream);
    ~WorkspaceBuffer() { (void)release(); }
    WorkspaceBuffer(const WorkspaceBuffer&) = delete;
    WorkspaceBuffer& operator=(const WorkspaceBuffer&) = delete;

    const Status& status() const { return status_; }
    void* data() const { return data_; }

    // Frees early, for callers who want to know whether that worked.
    Status release();

private:
    Device device_;
    StreamHandle stream_ = nullptr;
    void* data_ = nullptr;
    Status status_;
};

}  // namespace flashmla::dispatch
