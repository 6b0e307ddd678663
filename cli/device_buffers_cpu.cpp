// DeviceBuffers on the CPU: plain memory and a steady clock.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <vector>

#include "bench/sampling.hpp"
#include "cli/device_buffers.hpp"
#include "cli/exit_codes.hpp"

namespace flashmla::cli {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kCacheEmptyingBytes = std::size_t{256} << 20;  // past the last-level caches of most machines
constexpr std::size_t kCopyBytes = std::size_t{256} << 20;
constexpr int kCopies = 5;

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

class CpuBuffers final : public DeviceBuffers {
public:
    explicit CpuBuffers(int threads) : threads_(threads) {}

    void* allocate(std::size_t bytes) override {
        void* memory = std::aligned_alloc(kAlignment,
                                          (std::max(bytes, std::size_t{1}) + kAlignment - 1) / kAlignment * kAlignment);
        if (memory == nullptr) throw std::bad_alloc();
        buffers_.emplace_back(memory);
        return memory;
    }

    void copy_to(void* device, const void* host, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(device, host, bytes);
    }
    void copy_back(void* host, const void* device, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(host, device, bytes);
    }

    void empty_cache() override {
        if (emptying_.empty()) emptying_.resize(kCacheEmptyingBytes);
        std::memset(emptying_.data(), ++pattern_, emptying_.size());
    }

    double time_ms(const std::function<Status()>& call) override {
        const auto started = std::chrono::steady_clock::now();
        const Status status = call();
        const auto ended = std::chrono::steady_clock::now();
        require(status);
        return std::chrono::duration<double, std::milli>(ended - started).count();
    }

    double copy_gbps() override {
        std::vector<char> from(kCopyBytes, 1);
        std::vector<char> to(kCopyBytes, 2);
        const std::size_t share = kCopyBytes / threads_;
        std::vector<double> times;
        times.reserve(kCopies);
        for (int i = 0; i < kCopies; ++i) {
            times.push_back(time_ms([&] {
                std::vector<std::jthread> helpers;
                helpers.reserve(static_cast<std::size_t>(threads_));
                for (int t = 0; t < threads_; ++t) {
                    helpers.emplace_back(
                        [&, t] { std::memcpy(to.data() + t * share, from.data() + t * share, share); });
                }
                helpers.clear();
                return Status{};
            }));
        }
        return 2.0 * static_cast<double>(share * threads_) / (bench::smallest(times) * 1e6);
    }

    std::string clocks() const override {
        std::ifstream info("/proc/cpuinfo");
        for (std::string line; std::getline(info, line);) {
            const std::size_t colon = line.find(": ");
            if (line.rfind("cpu MHz", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2) + " MHz";
        }
        return {};
    }

private:
    int threads_;
    std::vector<std::unique_ptr<void, Free>> buffers_;
    std::vector<char> emptying_;
    int pattern_ = 0;
};

}  // namespace

std::unique_ptr<DeviceBuffers> open_cpu(int threads) { return std::make_unique<CpuBuffers>(std::max(1, threads)); }

}  // namespace flashmla::cli
