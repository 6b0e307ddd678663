// Memory, copies and timing on the device that a command works on: one interface, so that run, verify and bench read
// the same for a CPU and a GPU. Failures are thrown (exit_codes.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "flashmla/device.hpp"
#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla::cli {

class DeviceBuffers {
public:
    virtual ~DeviceBuffers() = default;

    // Aligned to 256 bytes, released with this object; never null.
    virtual void* allocate(std::size_t bytes) = 0;
    virtual void copy_to(void* device, const void* host, std::size_t bytes) = 0;
    virtual void copy_back(void* host, const void* device, std::size_t bytes) = 0;

    // Where work is enqueued; null on the CPU.
    virtual StreamHandle stream() const { return nullptr; }
    // Waits for the work and reports what went wrong in it.
    virtual void finish() {}

    // Puts the inputs of the next call out of the caches, by writing a large buffer.
    virtual void empty_cache() = 0;
    // How long one call takes, in ms, on the device's own clock. The call must enqueue on stream().
    virtual double time_ms(const std::function<Status()>& call) = 0;

    // Measured now: bytes read plus bytes written per second of a large copy, in GB/s.
    virtual double copy_gbps() = 0;
    // Clock rates as the system reports them; empty when it does not.
    virtual std::string clocks() const = 0;
};

// kCuda throws kExitUnsupported in a build without CUDA.
std::unique_ptr<DeviceBuffers> open_device(const DeviceInfo& device, int threads);

// One of the two behind open_device each.
std::unique_ptr<DeviceBuffers> open_cpu(int threads);
std::unique_ptr<DeviceBuffers> open_cuda(int index);

// "auto" (the first GPU, or else the CPU), "cpu", "cuda" or "cuda:N".
DeviceInfo choose_device(const std::string& text);

}  // namespace flashmla::cli
