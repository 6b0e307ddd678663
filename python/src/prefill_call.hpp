// What the bindings of the prefill operations share.
//
// Each is one function, called twice: without `execute` it checks, plans and says how much workspace a run needs, so
// that the caller's framework can allocate; with it, it runs.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "call.hpp"
#include "flashmla/prefill.hpp"
#include "words.hpp"

namespace flashmla::python {

// A view of an output: the caller's array, or, before there is one, a stand-in that is right but for its address.
inline TensorView output(Arguments& kept, const char* name, nanobind::handle array, const TensorView& stand_in) {
    return array.is_none() ? stand_in : kept.write(name, array);
}

inline TensorView stand_in_for(const TensorView& like, DType dtype, std::initializer_list<std::int64_t> shape) {
    return contiguous_view(like.data, dtype, shape, like.device);
}

inline PrefillPlan make_plan(PrefillShape shape, const Device& device, nanobind::tuple options) {
    return value_or_raise(plan_prefill(shape, value_or_raise(query_device(device)), plan_options(options)));
}

}  // namespace flashmla::python
