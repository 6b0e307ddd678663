// A small legal decode call through the C interface, on memory of the case.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "flashmla/flashmla.h"
#include "unit/api/api_case.hpp"

namespace flashmla::test {

inline flashmla_tensor c_tensor(const TensorView& view) {
    flashmla_tensor tensor;
    FLASHMLA_INIT(&tensor);
    tensor.dtype = view.dtype == DType::kInt32     ? FLASHMLA_INT32
                   : view.dtype == DType::kFloat32 ? FLASHMLA_FLOAT32
                   : view.dtype == DType::kFloat16 ? FLASHMLA_FLOAT16
                                                   : FLASHMLA_BFLOAT16;
    tensor.rank = view.rank;
    tensor.data = view.data;
    for (int axis = 0; axis < kMaxRank; ++axis) {
        tensor.shape[axis] = view.shape[axis];
        tensor.stride[axis] = view.stride[axis];
    }
    return tensor;
}

class PlanHandle {
public:
    PlanHandle() = default;
    ~PlanHandle() { flashmla_plan_destroy(plan); }
    PlanHandle(const PlanHandle&) = delete;
    PlanHandle& operator=(const PlanHandle&) = delete;

    flashmla_plan* plan = nullptr;
};

struct CDecodeCall {
    ApiCase api;
    flashmla_tensor q = c_tensor(api.args().q), k_cache = c_tensor(api.args().k_cache),
                    block_table = c_tensor(api.args().block_table), cache_seqlens = c_tensor(api.args().cache_seqlens),
                    out = c_tensor(api.args().out), lse = c_tensor(api.args().lse);
    flashmla_decode_args args = c_args();
    flashmla_device_info device = this_cpu();

    flashmla_decode_args c_args() const {
        flashmla_decode_args c;
        FLASHMLA_INIT(&c);
        const DecodeArgs cpp = api.args();
        c.causal = cpp.causal ? 1 : 0;
        c.has_softmax_scale = cpp.has_softmax_scale ? 1 : 0;
        c.softmax_scale = cpp.softmax_scale;
        c.q = &q;
        c.k_cache = &k_cache;
        c.block_table = &block_table;
        c.cache_seqlens = &cache_seqlens;
        c.out = &out;
        c.lse = &lse;
        return c;
    }

    static flashmla_device_info this_cpu() {
        flashmla_device_info info;
        FLASHMLA_INIT(&info);
        EXPECT_EQ(flashmla_query_device(FLASHMLA_CPU, 0, &info), FLASHMLA_OK) << flashmla_last_error();
        return info;
    }

    flashmla_decode_shape shape() const {
        flashmla_decode_shape found;
        FLASHMLA_INIT(&found);
        EXPECT_EQ(flashmla_decode_shape_of(&args, &found), FLASHMLA_OK) << flashmla_last_error();
        return found;
    }

    void make_plan(PlanHandle& handle, const flashmla_plan_options* options = nullptr) const {
        const flashmla_decode_shape wanted = shape();
        ASSERT_EQ(flashmla_plan_decode(&wanted, &device, options, &handle.plan), FLASHMLA_OK) << flashmla_last_error();
    }
};

// The last call failed with this code and words that hold `part`.
inline testing::AssertionResult refused(flashmla_status status, flashmla_status wanted, const std::string& part) {
    const std::string text = flashmla_last_error();
    if (status != wanted) return testing::AssertionFailure() << "status " << status << ": " << text;
    if (text.find(part) == std::string::npos) return testing::AssertionFailure() << "'" << part << "' not in: " << text;
    return testing::AssertionSuccess();
}

}  // namespace flashmla::test
