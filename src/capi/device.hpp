// A caller's description of a device.
#pragma once

#include "flashmla/c/info.h"
#include "flashmla/device.hpp"
#include "flashmla/status.hpp"

namespace flashmla::capi {

Status read_device_info(const flashmla_device_info* given, DeviceInfo& info);

}  // namespace flashmla::capi
