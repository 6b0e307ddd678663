// What each file of this module adds to flashmla._core.
#pragma once

#include <nanobind/nanobind.h>

namespace flashmla::python {

void bind_decode(nanobind::module_& module);
void bind_torch_decode(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_info(nanobind::module_& module);
void bind_host_array(nanobind::module_& module);
void bind_cache(nanobind::module_& module);
void bind_sparse_prefill(nanobind::module_& module);
void bind_dense_prefill(nanobind::module_& module);
void bind_merge(nanobind::module_& module);
void bind_absorb(nanobind::module_& module);
void bind_simulator(nanobind::module_& module);

}  // namespace flashmla::python
