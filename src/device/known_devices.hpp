// GPUs that can be planned for without having one.
#pragma once

#include "flashmla/device.hpp"

namespace flashmla::device {

// Fills in what no driver query tells, when the device's name is one we have figures for.
void add_measured_ceilings(DeviceInfo& info);

}  // namespace flashmla::device
