#include <cstdint>
#include <string>

#include "api/check.hpp"
#include "api/tensor_check.hpp"
#include "plan/catalog.hpp"
#include "plan/workspace.hpp"

namespace flashmla::api {
namespace {

Status shape_mismatch(const DecodeShape& planned, const DecodeShape& got) {
    const struct {
        const char* what;
        std::int64_t planned, got;
    } fields[] = {
        {"b", planned.b, got.b},
        {"s_q", planned.s_q, got.s_q},
        {"h_q", planned.h_q, got.h_q},
        {"h_kv", planned.h_kv, got.h_kv},
        {"d_qk", planned.d_qk, got.d_qk},
        {"d_v", planned.d_v, got.d_v},
        {"page_size", planned.page_size, got.page_size},
        {"max_pages", planned.max_pages, got.max_pages},
        {"causal", planned.causal, got.causal},
        {"topk", planned.topk, got.topk},
        {"extra_topk", planned.extra_topk, got.extra_topk},
        {"extra_page_size", planned.extra_page_size, got.extra_page_size},
        {"attn_sink", planned.attn_sink, got.attn_sink},
    };
    for (const auto& field : fields) {
        if (field.planned == field.got) continue;
        return invalid_argument(std::string("plan: made for ") + field.what + " = " + std::to_string(field.planned) +
                                ", the arguments have " + field.what + " = " + std::to_string(field.got));
    }
    if (planned.dtype != got.dtype) {
        return invalid_argument(std::string("plan: made for dtype ") + name(planned.dtype) + ", the tensors have " +
                                name(got.dtype));
    }
    return invalid_argument(std::string("plan: made for a cache of ") + name(planned.format) +
                            ", the arguments have one of " + name(got.format));
}

// Addresses and strides in multiples of what the kernel loads and stores at once.
Status check_alignment(const KernelInfo& kernel, const CheckedDecode& checked) {
    const core::DecodeCall& call = checked.call;
    const core::DecodeStrides& strides = call.strides;
    const DecodeShape& shape = checked.shape;
    const std::int64_t of_q = static_cast<std::int64_t>(size_bytes(shape.dtype));
    const std::int64_t of_cache = is_16bit(shape.format) ? 2 : 1;
    const std::int64_t step = kernel.io_alignment_bytes;
    const struct {
        const char* tensor;
        const void* data;
        std::int64_t element;  // bytes
        std::int64_t strides[3];
    } tensors[] = {
        {"q", call.q, of_q, {strides.q_b, strides.q_token, strides.q_head}},
        {"k_cache", call.k_cache, of_cache, {strides.k_page, strides.k_token, strides.k_head}},
        {"out", call.out, 2, {strides.out_b, strides.out_token, strides.out_head}},
    };
    for (const auto& tensor : tensors) {
        if (reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<std::uintptr_t>(step) != 0) {
            return invalid_argument(std::string(tensor.tensor) + ": got an address that is no multiple of " +
                                    std::to_string(step) + " bytes, wanted one for kernel " + kernel.name);
        }
        for (std::int64_t stride : tensor.strides) {
            if (stride * tensor.element % step == 0) continue;
            return invalid_argument(std::string(tensor.tensor) + ": got a stride of " + std::to_string(stride) +
                                    " elements, wanted multiples of " + std::to_string(step / tensor.element) +
                                    " for kernel " + kernel.name);
        }
    }
    return {};
}

}  // namespace

Status check_plan(const DecodePlan& plan, const CheckedDecode& checked) {
    if (plan.kernel.empty()) return invalid_argument("plan: got an empty one, wanted what plan_decode returned");
    if (plan.shape != checked.shape) return shape_mismatch(plan.shape, checked.shape);
    if (plan.device.device != checked.device) {
        return invalid_argument("plan: made for device " + text(plan.device.device) + ", the tensors are on " +
                                text(checked.device));
    }
    return check_alignment(plan::kernel_info(plan.kernel_id), checked);
}

Status check_workspace(std::size_t wanted, const void* workspace, std::size_t workspace_bytes) {
    if (wanted == 0) return {};
    if (workspace_bytes < wanted) {
        return invalid_argument("workspace_bytes: got " + std::to_string(workspace_bytes) + ", wanted at least " +
                                std::to_string(wanted));
    }
    if (workspace == nullptr) {
        return invalid_argument("workspace: got a null pointer, wanted " + std::to_string(wanted) + " bytes");
    }
    if (reinterpret_cast<std::uintptr_t>(workspace) % plan::kWorkspaceAlignment != 0) {
        return invalid_argument("workspace: got an address that is no multiple of " +
                                std::to_string(plan::kWorkspaceAlignment) + ", wanted one");
    }
    return {};
}

}  // namespace flashmla::api
