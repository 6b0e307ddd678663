// Whether the catalogue has anything for an operation on a device, for operations without a plan.
#pragma once

#include "flashmla/status.hpp"
#include "flashmla/types.hpp"

namespace flashmla::api {

// kUnsupported names the operation, the device and what there is.
Status check_served(Operation operation, Device device);

}  // namespace flashmla::api
