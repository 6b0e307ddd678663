// Rows of the kernel catalogue by id.
#pragma once

#include "flashmla/catalog.hpp"

namespace flashmla::plan {

const KernelInfo& kernel_info(KernelId id);

}  // namespace flashmla::plan
