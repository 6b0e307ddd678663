// The capability query over operations, dtypes, formats and devices: it says what a plan or call would.
#include "flashmla/capability.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "flashmla/flashmla.hpp"

namespace flashmla::test {
namespace {

constexpr Operation kOperations[] = {
    Operation::kDecode, Operation::kSparsePrefill, Operation::kDensePrefill, Operation::kDensePrefillBackward,
    Operation::kAppend, Operation::kGather,        Operation::kCopyPages,    Operation::kConvert,
    Operation::kMerge,  Operation::kAbsorb};

DeviceInfo ampere() {
    DeviceInfo info = named_device("h100").value();
    info.name = "Made-up A100";
    info.arch = "sm_80";
    info.compute_capability = 80;
    return info;
}

std::vector<DeviceInfo> devices() {
    return {query_device({}).value(), named_device("h200").value(), named_device("h100").value(), ampere()};
}

template <class Items, class T>
bool contains(const Items& items, const T& value) {
    for (const auto& item : items) {
        if (item == value) return true;
    }
    return false;
}

// Whether a row of the catalogue takes the query, spelled out once more.
bool row_takes(const KernelInfo& kernel, const CapabilityQuery& query, const DeviceInfo& device) {
    if (kernel.operation != query.operation || kernel.device != device.device.type || !kernel.built) return false;
    if (kernel.compute_capability != 0 && kernel.compute_capability != device.compute_capability) return false;
    if (query.operation == Operation::kDecode && kernel.sparse != query.sparse) return false;
    return contains(kernel.dtypes, query.dtype) && (kernel.formats.empty() || contains(kernel.formats, query.format)) &&
           (kernel.dims.empty() || contains(kernel.dims, query.dims)) &&
           (kernel.page_size == 0 || kernel.page_size == query.page_size);
}

// Pairs that a decode refuses whatever the kernel: a 16-bit cache of another dtype, e4m3 queries over other formats, a
// packed record of another width.
bool legal_decode(const CapabilityQuery& query) {
    const bool fp8_query = query.dtype == DType::kFloat8E4m3;
    if (!fp8_query && query.dtype != DType::kBFloat16 && query.dtype != DType::kFloat16) return false;
    switch (query.format) {
        case CacheFormat::kBFloat16: return query.dtype == DType::kBFloat16;
        case CacheFormat::kFloat16: return query.dtype == DType::kFloat16;
        case CacheFormat::kFp8Flat: return true;
        case CacheFormat::kFp8_656: return !fp8_query && query.dims.d_qk == 576;
        case CacheFormat::kFp8_584: return !fp8_query && query.dims.d_qk == 512;
    }
    return false;
}

TEST(Capability, AnswersFromTheCatalogueForEveryCombination) {
    int yes = 0;
    for (const Operation operation : kOperations) {
        for (const DType dtype : kAllDTypes) {
            for (const CacheFormat format : kAllCacheFormats) {
                for (const HeadDims dims :
                     {HeadDims{576, 512}, {512, 512}, {320, 256}, {192, 128}, {128, 128}, {64, 64}}) {
                    for (const bool sparse : {false, true}) {
                        for (const DeviceInfo& device : devices()) {
                            const CapabilityQuery query{operation, dtype, format, dims, sparse, 64};
                            bool expected = false;
                            for (const KernelInfo& kernel : kernel_catalog()) {
                                expected = expected || row_takes(kernel, query, device);
                            }
                            if (operation == Operation::kDecode) expected = expected && legal_decode(query);
                            const Status status = check_capability(query, device);
                            ASSERT_EQ(status.ok(), expected)
                                << name(operation) << " " << name(dtype) << " " << name(format) << " " << dims.d_qk
                                << "/" << dims.d_v << (sparse ? " sparse " : " ") << device.arch << ": "
                                << status.message();
                            ASSERT_EQ(status.message().empty(), expected);
                            yes += expected;
                        }
                    }
                }
            }
        }
    }
    EXPECT_GT(yes, 0);
}

TEST(Capability, APlanAgrees) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
        for (const CacheFormat format : {CacheFormat::kBFloat16, CacheFormat::kFloat16, CacheFormat::kFp8_656}) {
            for (const std::int64_t page_size : {1, 64}) {
                for (const DeviceInfo& device : devices()) {
                    DecodeShape shape{.b = 2, .h_q = 16, .page_size = page_size, .max_pages = 4, .dtype = dtype};
                    shape.format = format;
                    const Result<DecodePlan> plan = plan_decode(shape, device);
                    CapabilityQuery query{.dtype = dtype, .format = format, .page_size = page_size};
                    const Status status = check_capability(query, device);
                    if (plan.ok()) {
                        // A plan can be made for a kernel that this build lacks; the query wants it to run.
                        if (!status.ok()) {
                            EXPECT_NE(status.message().find("this build"), std::string::npos);
                        }
                    } else {
                        EXPECT_EQ(status.message(), plan.status().message());
                    }
                }
            }
        }
    }
}

TEST(Capability, ReasonsNameWhatToChange) {
    const auto reason = [](const CapabilityQuery& query, const DeviceInfo& device) {
        return check_capability(query, device).message();
    };
    const DeviceInfo cpu = query_device({}).value();
    EXPECT_NE(reason({}, ampere()).find("wanted compute capability 9.0 exactly"), std::string::npos);
    EXPECT_NE(reason({.page_size = 16}, named_device("h200").value()).find("page_size: got 16, wanted 64"),
              std::string::npos);
    EXPECT_NE(reason({.dims = {160, 128}}, cpu).find("(d_qk, d_v): got (160, 128), wanted (576, 512)"),
              std::string::npos);
    EXPECT_NE(reason({.format = CacheFormat::kFloat16}, cpu).find("cache of fp16 with queries of bfloat16"),
              std::string::npos);
    EXPECT_NE(reason({.page_size = 0}, cpu).find("page_size: got 0"), std::string::npos);
    EXPECT_NE(reason({.operation = Operation::kMerge}, named_device("h200").value())
                  .find("merge: no kernel runs on NVIDIA H200 (sm_90); there is cpu_merge"),
              std::string::npos);
    EXPECT_NE(reason({.operation = Operation::kDensePrefill, .dtype = DType::kFloat32, .dims = {192, 128}}, cpu)
                  .find("cpu_dense_prefill: dtype: got float32, wanted bfloat16 or float16"),
              std::string::npos);
    EXPECT_EQ(check_capability({.page_size = 0}, cpu).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(check_capability({.operation = Operation::kMerge}, ampere()).code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace flashmla::test
