// merge of partial results.
#include <vector>

#include "bind.hpp"
#include "call.hpp"
#include "flashmla/merge.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

std::vector<TensorView> read_all(Arguments& kept, const char* name, nb::sequence arrays) {
    std::vector<TensorView> views;
    for (nb::handle array : arrays) views.push_back(kept.read(name, array));
    return views;
}

void merge(nb::sequence outs, nb::sequence lses, nb::handle out, nb::handle lse, nb::handle stream) {
    Arguments kept;
    const std::vector<TensorView> out_views = read_all(kept, "outs", outs);
    const std::vector<TensorView> lse_views = read_all(kept, "lses", lses);
    const MergeArgs args{
        .outs = out_views, .lses = lse_views, .out = kept.write("out", out), .lse = kept.write("lse", lse)};
    run_on_stream(kept.home(), stream, [&](StreamHandle handle) { return flashmla::merge(args, handle); });
}

}  // namespace

void bind_merge(nb::module_& module) {
    module.def("merge", &merge, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none());
}

}  // namespace flashmla::python
