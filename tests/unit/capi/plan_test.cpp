// Plan handles: what they say, what they keep of the caller's memory, what they refuse.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "unit/capi/c_call.hpp"

namespace flashmla::test {
namespace {

TEST(CPlan, SaysWhatTheCppPlanSays) {
    const CDecodeCall call;
    PlanHandle handle;
    call.make_plan(handle);
    flashmla_plan_info info;
    FLASHMLA_INIT(&info);
    ASSERT_EQ(flashmla_query_plan(handle.plan, &info), FLASHMLA_OK);
    const DecodePlan cpp = cpu_plan(call.api.args());
    EXPECT_EQ(info.operation, FLASHMLA_DECODE);
    EXPECT_EQ(info.num_workers, cpp.num_workers);
    EXPECT_EQ(info.workspace_bytes, cpp.workspace_bytes);
    EXPECT_EQ(info.kernel, cpp.kernel);
    EXPECT_EQ(info.reason, cpp.reason);
}

TEST(CPlan, OutlivesEverythingItWasMadeOf) {
    CDecodeCall call;
    PlanHandle handle;
    {
        std::string kernel = "cpu_decode_dense";
        flashmla_decode_shape shape = call.shape();
        flashmla_device_info device = call.device;
        flashmla_plan_options options;
        FLASHMLA_INIT(&options);
        options.kernel = kernel.c_str();
        options.batch_invariant = 1;
        ASSERT_EQ(flashmla_plan_decode(&shape, &device, &options, &handle.plan), FLASHMLA_OK) << flashmla_last_error();
        std::memset(&shape, 0xff, sizeof shape);
        std::memset(&device, 0xff, sizeof device);
        std::memset(&options, 0xff, sizeof options);
        kernel.assign(kernel.size(), 'x');
    }
    flashmla_plan_info info;
    FLASHMLA_INIT(&info);
    ASSERT_EQ(flashmla_query_plan(handle.plan, &info), FLASHMLA_OK);
    EXPECT_STREQ(info.kernel, "cpu_decode_dense");
    const Workspace workspace(info.workspace_bytes);
    EXPECT_EQ(flashmla_run_decode(handle.plan, &call.args, workspace.data(), info.workspace_bytes, nullptr),
              FLASHMLA_OK)
        << flashmla_last_error();
}

TEST(CPlan, ServesADeviceThatIsNotThere) {
    const CDecodeCall call;
    flashmla_decode_shape shape = call.shape();
    shape.d_qk = 576;
    shape.d_v = 512;
    shape.page_size = 64;
    flashmla_device_info h200;
    FLASHMLA_INIT(&h200);
    ASSERT_EQ(flashmla_named_device("h200", &h200), FLASHMLA_OK) << flashmla_last_error();
    PlanHandle handle;
    ASSERT_EQ(flashmla_plan_decode(&shape, &h200, nullptr, &handle.plan), FLASHMLA_OK) << flashmla_last_error();
    flashmla_plan_info info;
    FLASHMLA_INIT(&info);
    ASSERT_EQ(flashmla_query_plan(handle.plan, &info), FLASHMLA_OK);
    EXPECT_STREQ(info.kernel, "sm90_decode_dense");
}

TEST(CPlan, BadOptionsAreNamed) {
    const CDecodeCall call;
    const flashmla_decode_shape shape = call.shape();
    using Spoil = void (*)(flashmla_plan_options&);
    const struct {
        const char* part;
        Spoil spoil;
    } cases[] = {
        {"options.struct_size: got 1", [](flashmla_plan_options& o) { o.struct_size = 1; }},
        {"options.batch_invariant: got 2, wanted 0 or 1", [](flashmla_plan_options& o) { o.batch_invariant = 2; }},
        {"options.reserved: got -1, wanted 0", [](flashmla_plan_options& o) { o.reserved = -1; }},
        {"num_workers: got -3", [](flashmla_plan_options& o) { o.num_workers = -3; }},
        {"kernel: got 'no_such'", [](flashmla_plan_options& o) { o.kernel = "no_such"; }},
    };
    for (const auto& bad : cases) {
        flashmla_plan_options options;
        FLASHMLA_INIT(&options);
        bad.spoil(options);
        // Anything but null: a failed call must say that there is no plan.
        auto* plan = reinterpret_cast<flashmla_plan*>(&options);
        EXPECT_TRUE(
            refused(flashmla_plan_decode(&shape, &call.device, &options, &plan), FLASHMLA_INVALID_ARGUMENT, bad.part));
        EXPECT_EQ(plan, nullptr);
    }
}

TEST(CPlan, BadDevicesAreNamed) {
    const CDecodeCall call;
    const flashmla_decode_shape shape = call.shape();
    using Spoil = void (*)(flashmla_device_info&);
    const struct {
        const char* part;
        Spoil spoil;
    } cases[] = {
        {"device.struct_size: got 12", [](flashmla_device_info& d) { d.struct_size = 12; }},
        {"device.type: got 2, wanted 0 (cpu), 1 (cuda)", [](flashmla_device_info& d) { d.type = 2; }},
        {"device.num_processors: got 0", [](flashmla_device_info& d) { d.num_processors = 0; }},
        {"device.l2_bytes: got -1", [](flashmla_device_info& d) { d.l2_bytes = -1; }},
        {"device.name: got 128 characters", [](flashmla_device_info& d) { std::memset(d.name, 'x', sizeof d.name); }},
        {"device.arch: got 32 characters", [](flashmla_device_info& d) { std::memset(d.arch, 'x', sizeof d.arch); }},
    };
    for (const auto& bad : cases) {
        flashmla_device_info device = call.device;
        bad.spoil(device);
        PlanHandle handle;
        EXPECT_TRUE(
            refused(flashmla_plan_decode(&shape, &device, nullptr, &handle.plan), FLASHMLA_INVALID_ARGUMENT, bad.part));
    }
}

TEST(CPlan, QueriesRefuseNullAndUnknownSizes) {
    const CDecodeCall call;
    PlanHandle handle;
    call.make_plan(handle);
    flashmla_plan_info info;
    FLASHMLA_INIT(&info);
    size_t bytes = 0;
    EXPECT_TRUE(refused(flashmla_query_plan(nullptr, &info), FLASHMLA_INVALID_ARGUMENT, "plan: got a null pointer"));
    EXPECT_TRUE(
        refused(flashmla_query_plan(handle.plan, nullptr), FLASHMLA_INVALID_ARGUMENT, "info: got a null pointer"));
    EXPECT_TRUE(
        refused(flashmla_plan_workspace_bytes(nullptr, &bytes), FLASHMLA_INVALID_ARGUMENT, "plan: got a null pointer"));
    EXPECT_TRUE(refused(flashmla_plan_workspace_bytes(handle.plan, nullptr), FLASHMLA_INVALID_ARGUMENT,
                        "bytes: got a null pointer"));
    info.struct_size = 4;
    EXPECT_TRUE(refused(flashmla_query_plan(handle.plan, &info), FLASHMLA_INVALID_ARGUMENT, "info.struct_size: got 4"));
    flashmla_plan_destroy(nullptr);
}

}  // namespace
}  // namespace flashmla::test
