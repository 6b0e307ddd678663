// Which kernel a plan takes, why, and why not the others; workers and row tiles on a GPU that need not be there.
#include <gtest/gtest.h>

#include <string>

#include "backends/cpu/config.hpp"
#include "backends/sm90/decode_dense/config.hpp"
#include "flashmla/flashmla.hpp"
#include "plan/shape.hpp"

namespace flashmla::test {
namespace {

DeviceInfo h200() { return named_device("h200").value(); }

DeviceInfo cpu(int threads = 4) {
    DeviceInfo info;
    info.arch = "portable";
    info.num_processors = threads;
    return info;
}

DecodeShape deepseek(std::int64_t b = 128, std::int64_t h_q = 128, std::int64_t s_q = 1) {
    return {.b = b, .s_q = s_q, .h_q = h_q, .max_pages = 512};
}

DecodePlan planned(const DecodeShape& shape, const DeviceInfo& device, const PlanOptions& options = {}) {
    const Result<DecodePlan> plan = plan_decode(shape, device, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? plan.value() : DecodePlan{};
}

TEST(Select, AnH200IsPlannedOnAnyMachine) {
    const DecodePlan plan = planned(deepseek(), h200());
    EXPECT_EQ(plan.kernel, "sm90_decode_dense");
    EXPECT_EQ(plan.kernel_id, KernelId::kSm90DecodeDense);
    EXPECT_EQ(plan.num_workers, 66);
    EXPECT_EQ(plan.row_tiles_per_worker, 2);
    EXPECT_EQ(
        plan.reason,
        "128 rows a KV head make 2 row tiles of 64 on NVIDIA H200 (sm_90): 66 workers of 2 CTAs that share every KV "
        "tile");
}

TEST(Select, TheReasonSaysWhatCtasShare) {
    const auto ends_with = [](std::int64_t h_q, std::int64_t s_q, const std::string& end) {
        const std::string reason = planned(deepseek(128, h_q, s_q), h200()).reason;
        EXPECT_TRUE(reason.ends_with(end)) << reason;
    };
    ends_with(64, 1, " workers of one CTA");
    ends_with(64, 3, " workers of 3 single CTAs that find each other's KV tiles in L2");
    ends_with(128, 2, " workers of 4 CTAs, in clusters of two that share every KV tile");
}

TEST(Select, EveryKernelOfTheOperationGetsAVerdictWithAReason) {
    const DecodePlan plan = planned(deepseek(), h200());
    std::size_t i = 0;
    int chosen = 0;
    for (const KernelInfo& kernel : kernel_catalog()) {
        if (kernel.operation != Operation::kDecode) continue;
        ASSERT_LT(i, plan.verdicts.size());
        const KernelVerdict& verdict = plan.verdicts[i++];
        EXPECT_EQ(verdict.kernel, kernel.name);
        EXPECT_FALSE(verdict.reason.empty());
        chosen += verdict.chosen;
        if (verdict.kernel == "cpu_decode_dense") {
            EXPECT_EQ(verdict.reason, "runs on CPU tensors only, the device is NVIDIA H200 (sm_90)");
        }
    }
    EXPECT_EQ(i, plan.verdicts.size());
    EXPECT_EQ(chosen, 1);
}

TEST(Select, RowTilesDecideTheClusterSize) {
    const struct {
        std::int64_t h_q, s_q;
        int row_tiles_per_worker, workers;
    } cases[] = {
        {16, 1, 1, 132}, {64, 1, 1, 132}, {65, 1, 2, 66}, {128, 1, 2, 66}, {128, 2, 4, 33},   {64, 3, 3, 44},
        {64, 7, 7, 18},  {64, 9, 2, 66},  {64, 8, 8, 16}, {16, 4, 1, 132}, {16, 5, 2, 66},    {20, 3, 1, 132},
        {20, 4, 2, 66},  {1, 64, 1, 132}, {1, 65, 2, 66}, {192, 1, 3, 44}, {128, 128, 8, 16}, {128, 3, 6, 22},
    };
    for (const auto& c : cases) {
        const DecodePlan plan = planned(deepseek(8, c.h_q, c.s_q), h200());
        EXPECT_EQ(plan.row_tiles_per_worker, c.row_tiles_per_worker) << c.h_q << " heads, s_q " << c.s_q;
        EXPECT_EQ(plan.num_workers, c.workers) << c.h_q << " heads, s_q " << c.s_q;
    }
}

TEST(Select, WorkersCanBeLoweredNotRaisedOnAGpu) {
    PlanOptions options;
    options.num_workers = 1;
    EXPECT_EQ(planned(deepseek(), h200(), options).num_workers, 1);
    options.num_workers = 40;
    EXPECT_EQ(planned(deepseek(), h200(), options).num_workers, 40);
    options.num_workers = 4096;
    EXPECT_EQ(planned(deepseek(), h200(), options).num_workers, 66);
}

TEST(Select, WorkersStayWithinWhatTheMergeHolds) {
    DeviceInfo device = h200();
    device.num_processors = 400;
    EXPECT_EQ(planned(deepseek(8, 16), device).num_workers, 132);
    EXPECT_EQ(planned(deepseek(8, 128), device).num_workers, 132);
}

TEST(Select, BatchSizeNeverChangesTheKernelOrItsWorkers) {
    PlanOptions options;
    options.batch_invariant = true;
    const DecodePlan one = planned(deepseek(1), h200(), options);
    for (const std::int64_t b : {0, 2, 321, 100'000}) {
        const DecodePlan plan = planned(deepseek(b), h200(), options);
        EXPECT_EQ(plan.kernel, one.kernel);
        EXPECT_EQ(plan.num_workers, one.num_workers);
        EXPECT_EQ(plan.row_tiles_per_worker, one.row_tiles_per_worker);
    }
}

TEST(Select, ACacheFormatASinkAndIndicesDecideTheKernel) {
    DecodeShape shape = deepseek();
    shape.attn_sink = true;
    EXPECT_EQ(plan_decode(shape, h200()).status().message(), "sm90_decode_dense: attn_sink: got one, wanted none");
    EXPECT_EQ(planned(shape, cpu()).kernel, "cpu_decode_dense");
    shape = deepseek();
    shape.format = CacheFormat::kFp8_656;
    EXPECT_EQ(plan_decode(shape, h200()).status().message(),
              "sm90_decode_dense: cache format: got fp8_656, wanted bf16 or fp16");
    EXPECT_EQ(planned(shape, cpu()).kernel, "cpu_decode_dense");
    shape.max_pages = 0;
    shape.topk = 2048;
    EXPECT_EQ(plan_decode(shape, h200()).status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(planned(shape, cpu()).kernel, "cpu_decode_sparse");
    shape.dtype = DType::kFloat8E4m3;
    EXPECT_EQ(plan_decode(shape, cpu()).status().code(), StatusCode::kInvalidArgument);
    shape.format = CacheFormat::kFp8Flat;
    EXPECT_EQ(planned(shape, cpu()).kernel, "cpu_decode_sparse");
    shape.causal = true;
    EXPECT_EQ(plan_decode(shape, cpu()).status().code(), StatusCode::kInvalidArgument);
}

TEST(Select, TheCpuTakesEveryShapeOfTheContract) {
    for (const HeadDims dims : {HeadDims{576, 512}, HeadDims{512, 512}, HeadDims{320, 256}}) {
        for (const std::int64_t page_size : {1, 2, 61, 64, 576}) {
            DecodeShape shape = deepseek(3, 20, 5);
            shape.d_qk = dims.d_qk;
            shape.d_v = dims.d_v;
            shape.page_size = page_size;
            shape.dtype = page_size == 2 ? DType::kFloat16 : DType::kBFloat16;
            shape.format = cache_format_16bit(shape.dtype);
            const DecodePlan plan = planned(shape, cpu());
            EXPECT_EQ(plan.kernel, "cpu_decode_dense");
            EXPECT_EQ(plan.num_workers, 4);
        }
    }
    EXPECT_EQ(planned(deepseek(), cpu(1000)).num_workers, backends::cpu::kMaxThreads);
}

struct Refusal {
    const char* what;
    DecodeShape shape;
    DeviceInfo device;
    PlanOptions options;
    StatusCode code;
    const char* message;  // a part of it
};

DeviceInfo with_capability(int capability) {
    DeviceInfo info = h200();
    info.name = "Some GPU";
    info.compute_capability = capability;
    info.arch = "sm_" + std::to_string(capability);
    return info;
}

template <class Change>
DecodeShape changed(Change change) {
    DecodeShape shape = deepseek();
    change(shape);
    return shape;
}

PlanOptions forced(const char* kernel) {
    PlanOptions options;
    options.kernel = kernel;
    return options;
}

PlanOptions workers(int num_workers) {
    PlanOptions options;
    options.num_workers = num_workers;
    return options;
}

TEST(Select, RefusalsNameWhatWasGotAndWhatIsWanted) {
    const Refusal refusals[] = {
        {"Ada",
         deepseek(),
         with_capability(89),
         {},
         StatusCode::kUnsupported,
         "sm90_decode_dense: device: got Some GPU (sm_89), wanted compute capability 9.0 exactly"},
        {"Blackwell", deepseek(), with_capability(100), {}, StatusCode::kUnsupported, "got Some GPU (sm_100)"},
        {"dims on a GPU",
         changed([](DecodeShape& s) { s.d_qk = 320, s.d_v = 256; }),
         h200(),
         {},
         StatusCode::kUnsupported,
         "sm90_decode_dense: (d_qk, d_v): got (320, 256), wanted (576, 512)"},
        {"page on a GPU",
         changed([](DecodeShape& s) { s.page_size = 16; }),
         h200(),
         {},
         StatusCode::kUnsupported,
         "sm90_decode_dense: page_size: got 16, wanted 64"},
        {"dims on the CPU",
         changed([](DecodeShape& s) { s.d_qk = 160, s.d_v = 128; }),
         cpu(),
         {},
         StatusCode::kUnsupported,
         "cpu_decode_dense: (d_qk, d_v): got (160, 128), wanted (576, 512), (512, 512), (320, 256)"},
        {"forced kernel on the wrong device", deepseek(), cpu(), forced("sm90_decode_dense"), StatusCode::kUnsupported,
         "sm90_decode_dense: runs on a CUDA device only, the device is the CPU"},
        {"unknown kernel", deepseek(), cpu(), forced("nope"), StatusCode::kInvalidArgument,
         "kernel: got 'nope', wanted one of sm90_decode_dense, cpu_decode_dense, cpu_decode_sparse"},
        {"negative workers", deepseek(), cpu(), workers(-1), StatusCode::kInvalidArgument, "num_workers: got -1"},
        {"too many workers", deepseek(), cpu(), workers(1 << 30), StatusCode::kInvalidArgument,
         "num_workers: got 1073741824"},
        {"no processors", deepseek(), cpu(0), {}, StatusCode::kInvalidArgument, "device.num_processors: got 0"},
        {"b",
         changed([](DecodeShape& s) { s.b = -1; }),
         cpu(),
         {},
         StatusCode::kInvalidArgument,
         "b: got -1, wanted 0 to "},
        {"h_q",
         changed([](DecodeShape& s) { s.h_q = 5, s.h_kv = 2; }),
         cpu(),
         {},
         StatusCode::kInvalidArgument,
         "h_q: got 5, wanted a multiple of h_kv = 2"},
        {"d_v",
         changed([](DecodeShape& s) { s.d_v = 577; }),
         cpu(),
         {},
         StatusCode::kInvalidArgument,
         "d_v: got 577, wanted at most d_qk = 576"},
        {"dtype",
         changed([](DecodeShape& s) { s.dtype = DType::kInt32; }),
         cpu(),
         {},
         StatusCode::kInvalidArgument,
         "dtype: got int32, wanted bfloat16 or float16"},
        {"page_size",
         changed([](DecodeShape& s) { s.page_size = std::int64_t{1} << 31; }),
         cpu(),
         {},
         StatusCode::kInvalidArgument,
         "page_size: got 2147483648"},
        {"rows of a request",
         changed([](DecodeShape& s) { s.s_q = 1 << 24; }),
         cpu(),
         {},
         StatusCode::kInvalidArgument,
         "s_q * h_q: got 2147483648"},
        {"rows",
         changed([](DecodeShape& s) { s.b = 1 << 30; }),
         cpu(),
         {},
         StatusCode::kInvalidArgument,
         "b * s_q * h_q: got 137438953472"},
    };
    for (const Refusal& refusal : refusals) {
        const Result<DecodePlan> plan = plan_decode(refusal.shape, refusal.device, refusal.options);
        EXPECT_EQ(plan.status().code(), refusal.code) << refusal.what;
        EXPECT_NE(plan.status().message().find(refusal.message), std::string::npos)
            << refusal.what << ": " << plan.status().message();
    }
}

TEST(Select, AForcedKernelThatFitsIsTaken) {
    EXPECT_EQ(planned(deepseek(), cpu(), forced("cpu_decode_dense")).kernel, "cpu_decode_dense");
    EXPECT_EQ(planned(deepseek(), h200(), forced("sm90_decode_dense")).kernel, "sm90_decode_dense");
}

TEST(Catalog, NamesAreUniqueAndFactsAreSet) {
    for (const KernelInfo& kernel : kernel_catalog()) {
        EXPECT_FALSE(kernel.dtypes.empty());
        EXPECT_EQ(kernel.formats.empty() && kernel.operation == Operation::kDecode, false) << kernel.name;
        for (const KernelInfo& other : kernel_catalog()) {
            EXPECT_EQ(std::string(kernel.name) == other.name, kernel.id == other.id);
        }
    }
}

}  // namespace
}  // namespace flashmla::test
