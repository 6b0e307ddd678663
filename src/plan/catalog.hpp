// Rows of the kernel catalogue by id.
#pragma once

#include <string_view>

#include "flashmla/catalog.hpp"

namespace flashmla::plan {

const KernelInfo& kernel_info(KernelId id);
const KernelInfo* kernel_named(std::string_view name);  // null when there is none

}  // namespace flashmla::plan
