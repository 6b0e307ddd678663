// Description of the machine's own CPU.
#pragma once

#include "flashmla/device.hpp"

namespace flashmla::device {

DeviceInfo query_cpu();

// Hardware threads that this process may use: a container or taskset often leaves fewer than the machine has.
int usable_threads();

}  // namespace flashmla::device
