// Device descriptions: the machine's own CPU, what is known by name, and GPUs that may not be there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/cpu_isa.hpp"
#include "flashmla/device.hpp"

namespace flashmla::test {
namespace {

TEST(Devices, TheCpuDescribesItself) {
    const Result<DeviceInfo> info = query_device(Device{});
    ASSERT_TRUE(info.ok());
    EXPECT_GE(info.value().num_processors, 1);
    EXPECT_EQ(info.value().compute_capability, 0);
    EXPECT_FALSE(info.value().name.empty());
    EXPECT_NE(std::string("avx512_bf16 avx512 avx2 portable").find(info.value().arch), std::string::npos);
}

TEST(Devices, HopperGpusAreKnownByName) {
    for (const char* name : {"h200", "h100"}) {
        const DeviceInfo info = named_device(name).value();
        EXPECT_EQ(info.device.type, DeviceType::kCuda);
        EXPECT_EQ(info.arch, "sm_90");
        EXPECT_EQ(info.num_processors, 132);
        EXPECT_GT(info.memory_gbps, 0);
        EXPECT_GT(info.matrix_tflops, 0);
    }
    EXPECT_EQ(named_device("h200").value().memory_gbps, 4200);
    EXPECT_EQ(named_device("b200").status().message(), "device name: got 'b200', wanted one of h200, h100");
}

TEST(Devices, OrdinalsThatDoNotExistAreRefused) {
    EXPECT_EQ(query_device({DeviceType::kCpu, 1}).status().message(), "device: got cpu:1, wanted cpu:0");
    for (const int index : {-1, 1000}) {
        const Status status = query_device({DeviceType::kCuda, index}).status();
        EXPECT_FALSE(status.ok());
        EXPECT_NE(status.message().find("device: "), std::string::npos) << status.message();
    }
}

TEST(Devices, WithoutAGpuTheReasonIsGiven) {
    if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
    const Status status = query_device({DeviceType::kCuda, 0}).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("device: "), std::string::npos) << status.message();
}

TEST(CpuIsa, TheEnvironmentNarrowsThePathOrIsRefused) {
    const char* former = std::getenv("FLASHMLA_CPU_ISA");
    const std::string kept = former == nullptr ? "" : former;
    setenv("FLASHMLA_CPU_ISA", "portable", 1);
    EXPECT_EQ(core::selected_cpu_isa().value(), core::CpuIsa::kPortable);
    EXPECT_EQ(query_device(Device{}).value().arch, "portable");
    setenv("FLASHMLA_CPU_ISA", "sse9", 1);
    EXPECT_EQ(core::selected_cpu_isa().status().message(),
              "FLASHMLA_CPU_ISA: got 'sse9', wanted avx512_bf16, avx512, avx2 or portable");
    if (core::detect_cpu_isa() < core::CpuIsa::kAvx512Bf16) {
        setenv("FLASHMLA_CPU_ISA", "avx512_bf16", 1);
        EXPECT_EQ(core::selected_cpu_isa().status().code(), StatusCode::kUnsupported);
    }
    setenv("FLASHMLA_CPU_ISA", kept.c_str(), 1);
    EXPECT_EQ(former == nullptr, kept.empty());
}

}  // namespace
}  // namespace flashmla::test
