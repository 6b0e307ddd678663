// flashmla._core: the thin layer between Python and the C++ interface. It converts arrays, words and errors, and
// decides nothing.
#include "bind.hpp"

NB_MODULE(_core, module) {
    module.doc() = "Bindings of libflashmla; use the package flashmla instead.";
    flashmla::python::bind_decode(module);
    flashmla::python::bind_torch_decode(module);
    flashmla::python::bind_plan(module);
    flashmla::python::bind_info(module);
    flashmla::python::bind_host_array(module);
    flashmla::python::bind_cache(module);
    flashmla::python::bind_sparse_prefill(module);
    flashmla::python::bind_dense_prefill(module);
    flashmla::python::bind_merge(module);
    flashmla::python::bind_absorb(module);
    flashmla::python::bind_simulator(module);
}
