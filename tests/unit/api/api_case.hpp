// A small legal call for argument tests, and what must hold after a refused one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "flashmla/flashmla.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::test {

inline reference::DecodeSpec small_spec() {
    return {.name = "api", .lengths = {5, 0, 70}, .s_q = 2, .h_q = 3, .d_qk = 320, .d_v = 256, .page_size = 16};
}

// Aligned as run_decode asks for.
class Workspace {
public:
    explicit Workspace(std::size_t bytes) : data_(::operator new(bytes + 1, kAlignment)) {}
    ~Workspace() { ::operator delete(data_, kAlignment); }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    std::byte* data() const { return static_cast<std::byte*>(data_); }

private:
    static constexpr std::align_val_t kAlignment{256};
    void* data_;
};

class ApiCase {
public:
    explicit ApiCase(const reference::DecodeSpec& spec = small_spec()) : case_(spec) {}

    DecodeArgs args() const { return case_.args(); }
    reference::DecodeCase& decode_case() { return case_; }

    bool outputs_untouched() {
        const std::vector<std::uint16_t> out = case_.out();
        const std::vector<float> lse = case_.lse();
        case_.reset_outputs();
        return out == case_.out() && std::equal(lse.begin(), lse.end(), case_.lse().begin(), [](float a, float b) {
                   return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
               });
    }

private:
    reference::DecodeCase case_;
};

inline DecodePlan cpu_plan(const DecodeArgs& args, const PlanOptions& options = {}) {
    const Result<DecodeShape> shape = decode_shape(args);
    EXPECT_TRUE(shape.ok()) << shape.status().message();
    const Result<DecodePlan> plan = plan_decode(shape.value(), query_device(Device{}).value(), options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.value();
}

}  // namespace flashmla::test
