// Description of the machine's own CPU.
#pragma once

#include "flashmla/device.hpp"

namespace flashmla::device {

DeviceInfo query_cpu();

}  // namespace flashmla::device
