// The capability query: a call without tensors, asked of the same rows that plans are made from.
#include "flashmla/capability.hpp"

#include <string>

#include "plan/choose.hpp"
#include "plan/shape.hpp"

namespace flashmla {
namespace {

// What no kernel of the operation could ever accept.
Status check_query(const CapabilityQuery& query) {
    if (query.operation != Operation::kDecode) return {};
    return plan::check_shape(DecodeShape{.b = 1,
                                         .d_qk = query.dims.d_qk,
                                         .d_v = query.dims.d_v,
                                         .page_size = query.page_size,
                                         .dtype = query.dtype,
                                         .format = query.format,
                                         .topk = query.sparse ? 1 : 0});
}

}  // namespace

Status check_capability(const CapabilityQuery& query, const DeviceInfo& device) {
    if (Status status = check_query(query); !status.ok()) return status;
    const plan::Demand demand{.operation = query.operation,
                              .dtype = query.dtype,
                              .d_qk = query.dims.d_qk,
                              .d_v = query.dims.d_v,
                              .format = query.format,
                              .sparse = query.operation == Operation::kDecode && query.sparse,
                              .page_size = query.page_size};
    const Result<plan::Choice> choice = plan::choose_kernel(demand, device, {});
    if (!choice.ok()) return choice.status();
    const KernelInfo& kernel = *choice.value().kernel;
    if (kernel.built) return {};
    return unsupported(std::string(kernel.name) + ": fits, but this build of flashmla was made without it (" +
                       (kernel.device == DeviceType::kCuda ? "no CUDA toolkit when it was built" : "left out") + ")");
}

}  // namespace flashmla
