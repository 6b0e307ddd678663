#include "api/served.hpp"

#include <string>

#include "api/tensor_check.hpp"
#include "flashmla/catalog.hpp"

namespace flashmla::api {

Status check_served(Operation operation, Device device) {
    std::string existing;
    for (const KernelInfo& kernel : kernel_catalog()) {
        if (kernel.operation != operation) continue;
        if (kernel.device == device.type) return {};
        existing += (existing.empty() ? "; there is " : ", ") + std::string(kernel.name);
    }
    return unsupported(std::string(name(operation)) + ": no kernel runs on " + text(device) + existing);
}

}  // namespace flashmla::api
