// Build and device facts, cache sizes, and the words that failures leave behind.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "unit/capi/c_call.hpp"

namespace flashmla::test {
namespace {

TEST(CInfo, BuildFactsAreThoseOfCpp) {
    flashmla_build_info build;
    FLASHMLA_INIT(&build);
    ASSERT_EQ(flashmla_query_build(&build), FLASHMLA_OK);
    const BuildInfo cpp = build_info();
    EXPECT_STREQ(build.version, FLASHMLA_VERSION_STRING);
    EXPECT_STREQ(flashmla_version(), FLASHMLA_VERSION_STRING);
    EXPECT_STREQ(build.git_revision, cpp.git_revision);
    EXPECT_STREQ(build.source_hash, cpp.source_hash);
    EXPECT_STREQ(build.compiler, cpp.compiler);
    EXPECT_STREQ(build.cuda_toolkit, cpp.cuda_toolkit);
    EXPECT_STREQ(build.cuda_architectures, cpp.cuda_architectures);
    EXPECT_STREQ(build.cpu_paths, cpp.cpu_paths);
    EXPECT_EQ(build.struct_size, sizeof build);
}

TEST(CInfo, DeviceFactsAreThoseOfCpp) {
    const flashmla_device_info cpu = CDecodeCall::this_cpu();
    const DeviceInfo cpp = query_device({}).value();
    EXPECT_EQ(cpu.type, FLASHMLA_CPU);
    EXPECT_EQ(cpu.num_processors, cpp.num_processors);
    EXPECT_EQ(cpu.name, cpp.name.substr(0, sizeof cpu.name - 1));
    EXPECT_EQ(cpu.arch, cpp.arch);
    EXPECT_EQ(flashmla_cuda_device_count(), cuda_device_count());

    flashmla_device_info device;
    FLASHMLA_INIT(&device);
    ASSERT_EQ(flashmla_named_device("h200", &device), FLASHMLA_OK);
    EXPECT_EQ(device.type, FLASHMLA_CUDA);
    EXPECT_EQ(device.compute_capability, 90);
    EXPECT_STREQ(device.arch, "sm_90");
}

TEST(CInfo, RefusalsNameTheArgument) {
    flashmla_device_info device;
    FLASHMLA_INIT(&device);
    EXPECT_TRUE(refused(flashmla_named_device("h9000", &device), FLASHMLA_INVALID_ARGUMENT, "h9000"));
    EXPECT_TRUE(
        refused(flashmla_named_device(nullptr, &device), FLASHMLA_INVALID_ARGUMENT, "name: got a null pointer"));
    EXPECT_TRUE(
        refused(flashmla_query_device(FLASHMLA_CPU, 3, &device), FLASHMLA_INVALID_ARGUMENT, "device: got cpu:3"));
    EXPECT_TRUE(refused(flashmla_query_device(-1, 0, &device), FLASHMLA_INVALID_ARGUMENT, "type: got -1"));
    EXPECT_TRUE(refused(flashmla_query_device(FLASHMLA_CPU, 0, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "device: got a null pointer"));
    EXPECT_TRUE(refused(flashmla_query_build(nullptr), FLASHMLA_INVALID_ARGUMENT, "build: got a null pointer"));
    device.struct_size = sizeof device + 1;
    EXPECT_TRUE(refused(flashmla_query_device(FLASHMLA_CPU, 0, &device), FLASHMLA_INVALID_ARGUMENT,
                        "device.struct_size: got "));
}

TEST(CInfo, KernelNamesAreTheCatalogue) {
    int32_t index = 0;
    for (const KernelInfo& kernel : kernel_catalog()) EXPECT_STREQ(flashmla_kernel_name(index++), kernel.name);
    EXPECT_EQ(flashmla_kernel_name(index), nullptr);
    EXPECT_EQ(flashmla_kernel_name(-1), nullptr);
}

TEST(CInfo, CacheSizes) {
    int64_t bytes = 0;
    ASSERT_EQ(flashmla_cache_record_bytes(FLASHMLA_CACHE_FP8_656, 576, &bytes), FLASHMLA_OK);
    EXPECT_EQ(bytes, 656);
    ASSERT_EQ(flashmla_cache_page_bytes(FLASHMLA_CACHE_FP8_584, 512, 64, &bytes), FLASHMLA_OK);
    EXPECT_EQ(bytes, 37440);  // 64 * 584 = 37,376, rounded up to a multiple of 576
    EXPECT_TRUE(refused(flashmla_cache_record_bytes(9, 576, &bytes), FLASHMLA_INVALID_ARGUMENT, "format: got 9"));
    EXPECT_TRUE(refused(flashmla_cache_page_bytes(FLASHMLA_CACHE_BFLOAT16, 576, 0, &bytes), FLASHMLA_INVALID_ARGUMENT,
                        "page_size: got 0"));
    EXPECT_TRUE(refused(flashmla_cache_page_bytes(FLASHMLA_CACHE_BFLOAT16, INT64_MAX, 64, &bytes),
                        FLASHMLA_INVALID_ARGUMENT, "d_qk: got 9223372036854775807"));
    EXPECT_TRUE(refused(flashmla_cache_record_bytes(FLASHMLA_CACHE_BFLOAT16, 576, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "bytes: got a null pointer"));
    EXPECT_EQ(bytes, 37440);

    flashmla_cache_format format = 0;
    const CDecodeCall call;
    ASSERT_EQ(flashmla_cache_format_of(320, &call.k_cache, &format), FLASHMLA_OK) << flashmla_last_error();
    EXPECT_EQ(format, FLASHMLA_CACHE_BFLOAT16);
    EXPECT_TRUE(
        refused(flashmla_cache_format_of(576, &call.k_cache, &format), FLASHMLA_INVALID_ARGUMENT, "got last axis"));
    EXPECT_TRUE(
        refused(flashmla_cache_format_of(576, nullptr, &format), FLASHMLA_INVALID_ARGUMENT, "cache: got rank 0"));
}

TEST(CInfo, LastErrorBelongsToItsThreadAndSurvivesSuccess) {
    flashmla_build_info build;
    FLASHMLA_INIT(&build);
    std::thread([&build] {
        EXPECT_STREQ(flashmla_last_error(), "");
        EXPECT_NE(flashmla_query_build(nullptr), FLASHMLA_OK);
        const std::string text = flashmla_last_error();
        EXPECT_EQ(flashmla_query_build(&build), FLASHMLA_OK);
        flashmla_plan_destroy(nullptr);
        EXPECT_EQ(flashmla_last_error(), text);
        std::thread([] { EXPECT_STREQ(flashmla_last_error(), ""); }).join();
    }).join();
}

TEST(CInfo, LongErrorsEndInDots) {
    flashmla_device_info device;
    FLASHMLA_INIT(&device);
    const std::string name(100'000, 'x');
    EXPECT_EQ(flashmla_named_device(name.c_str(), &device), FLASHMLA_INVALID_ARGUMENT);
    const std::string text = flashmla_last_error();
    EXPECT_LT(text.size(), 5000u);
    EXPECT_EQ(text.substr(text.size() - 3), "...");
}

}  // namespace
}  // namespace flashmla::test
