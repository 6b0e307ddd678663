// DeviceBuffers on a GPU, through the CUDA runtime. Part of builds with CUDA only.
#if defined(FLASHMLA_WITH_CUDA)

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/sampling.hpp"
#include "cli/device_buffers.hpp"
#include "cli/exit_codes.hpp"

namespace flashmla::cli {
namespace {

constexpr std::size_t kCacheEmptyingBytes = std::size_t{512} << 20;
constexpr std::size_t kCopyBytes = std::size_t{1} << 30;
constexpr int kCopies = 7;

void check(cudaError_t error, const char* call) {
    if (error == cudaSuccess) return;
    (void)cudaGetLastError();  // not left behind for the next call to find
    throw Failure{kExitRuntimeError, std::string(call) + ": " + cudaGetErrorString(error)};
}

#define FLASHMLA_CLI_CUDA(call) check((call), #call)

class CudaBuffers final : public DeviceBuffers {
public:
    explicit CudaBuffers(int index) : index_(index) {
        FLASHMLA_CLI_CUDA(cudaSetDevice(index));
        FLASHMLA_CLI_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        FLASHMLA_CLI_CUDA(cudaEventCreate(&begin_));
        FLASHMLA_CLI_CUDA(cudaEventCreate(&end_));
    }

    ~CudaBuffers() override {
        (void)cudaStreamSynchronize(stream_);
        for (void* buffer : buffers_) (void)cudaFree(buffer);
        (void)cudaEventDestroy(begin_);
        (void)cudaEventDestroy(end_);
        (void)cudaStreamDestroy(stream_);
    }

    void* allocate(std::size_t bytes) override {
        void* memory = nullptr;
        FLASHMLA_CLI_CUDA(cudaMalloc(&memory, std::max(bytes, std::size_t{1})));
        buffers_.push_back(memory);
        return memory;
    }

    void copy_to(void* device, const void* host, std::size_t bytes) override {
        if (bytes == 0) return;
        FLASHMLA_CLI_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
        FLASHMLA_CLI_CUDA(cudaStreamSynchronize(stream_));
    }

    void copy_back(void* host, const void* device, std::size_t bytes) override {
        if (bytes == 0) return;
        FLASHMLA_CLI_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
        FLASHMLA_CLI_CUDA(cudaStreamSynchronize(stream_));
    }

    StreamHandle stream() const override { return stream_; }

    void finish() override { FLASHMLA_CLI_CUDA(cudaStreamSynchronize(stream_)); }

    void empty_cache() override {
        if (emptying_ == nullptr) emptying_ = allocate(kCacheEmptyingBytes);
        FLASHMLA_CLI_CUDA(cudaMemsetAsync(emptying_, 0, kCacheEmptyingBytes, stream_));
    }

    double time_ms(const std::function<Status()>& call) override {
        FLASHMLA_CLI_CUDA(cudaEventRecord(begin_, stream_));
        require(call());
        FLASHMLA_CLI_CUDA(cudaEventRecord(end_, stream_));
        FLASHMLA_CLI_CUDA(cudaEventSynchronize(end_));
        float milliseconds = 0;
        FLASHMLA_CLI_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return milliseconds;
    }

    double copy_gbps() override {
        void* from = nullptr;
        void* to = nullptr;
        FLASHMLA_CLI_CUDA(cudaMalloc(&from, kCopyBytes));
        const cudaError_t second = cudaMalloc(&to, kCopyBytes);
        std::vector<double> times;
        if (second == cudaSuccess) {
            for (int i = 0; i < kCopies; ++i) {
                times.push_back(time_ms([&]() -> Status {
                    const cudaError_t error = cudaMemcpyAsync(to, from, kCopyBytes, cudaMemcpyDeviceToDevice, stream_);
                    return error == cudaSuccess ? Status{} : runtime_error(cudaGetErrorString(error));
                }));
            }
        }
        (void)cudaFree(to);
        (void)cudaFree(from);
        check(second, "cudaMalloc(&to, kCopyBytes)");
        return 2.0 * static_cast<double>(kCopyBytes) / (bench::smallest(times) * 1e6);
    }

    // The driver's own tool knows the clocks of this moment; the runtime knows only the highest ones.
    std::string clocks() const override {
        std::array<char, 64> bus{};
        if (cudaDeviceGetPCIBusId(bus.data(), bus.size(), index_) != cudaSuccess) return {};
        const std::string command =
            std::string("nvidia-smi --id=") + bus.data() +
            " --query-gpu=clocks.sm,clocks.mem,driver_version --format=csv,noheader 2>/dev/null";
        FILE* pipe = popen(command.c_str(), "r");
        if (pipe == nullptr) return {};
        std::array<char, 256> line{};
        const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
        const bool good = pclose(pipe) == 0 && read;
        std::string text = good ? line.data() : "";
        while (!text.empty() && text.back() == '\n') text.pop_back();
        return text.empty() ? text : "SM, memory, driver: " + text;
    }

private:
    int index_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
    std::vector<void*> buffers_;
    void* emptying_ = nullptr;
};

#undef FLASHMLA_CLI_CUDA

}  // namespace

std::unique_ptr<DeviceBuffers> open_cuda(int index) { return std::make_unique<CudaBuffers>(index); }

}  // namespace flashmla::cli

#endif  // FLASHMLA_WITH_CUDA
