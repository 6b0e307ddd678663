// The whole C++ interface in one include.
#pragma once

#include "flashmla/build_info.hpp"
#include "flashmla/catalog.hpp"
#include "flashmla/decode.hpp"
#include "flashmla/device.hpp"
#include "flashmla/explain.hpp"
#include "flashmla/plan.hpp"
#include "flashmla/simulator.hpp"
#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"
#include "flashmla/types.hpp"
#include "flashmla/version.h"
