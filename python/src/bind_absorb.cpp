// The two projections around absorbed attention.
#include <cstdint>
#include <string>

#include "bind.hpp"
#include "call.hpp"
#include "flashmla/absorb.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

// (..., h, d) as (n, h, d): leading axes become one when their strides allow it, for nothing is copied here.
TensorView as_rows(const char* argument, TensorView view) {
    if (view.rank == 2) {
        return {.data = view.data,
                .dtype = view.dtype,
                .device = view.device,
                .rank = 3,
                .shape = {1, view.shape[0], view.shape[1]},
                .stride = {view.shape[0] * view.stride[0], view.stride[0], view.stride[1]}};
    }
    if (view.rank != 4) return view;
    const bool outer_is_one = view.shape[0] <= 1;
    const bool inner_is_one = view.shape[1] == 1;
    if (!outer_is_one && !inner_is_one && view.stride[0] != view.shape[1] * view.stride[1]) {
        throw nb::value_error((std::string(argument) + ": got strides " + std::to_string(view.stride[0]) + " and " +
                               std::to_string(view.stride[1]) +
                               " in the leading axes, wanted axes that can be seen as one")
                                  .c_str());
    }
    return {.data = view.data,
            .dtype = view.dtype,
            .device = view.device,
            .rank = 3,
            .shape = {view.shape[0] * view.shape[1], view.shape[2], view.shape[3]},
            .stride = {inner_is_one ? view.stride[0] : view.stride[1], view.stride[2], view.stride[3]}};
}

using Projection = Status (*)(const AbsorbArgs&, StreamHandle);

void project(Projection projection, nb::handle x, nb::handle weight, nb::handle out, nb::handle stream) {
    Arguments kept;
    AbsorbArgs args;
    args.x = as_rows("x", kept.read("x", x));
    args.weight = kept.read("weight", weight);
    args.out = as_rows("out", kept.write("out", out));
    run_on_stream(kept.home(), stream, [&](StreamHandle handle) { return projection(args, handle); });
}

}  // namespace

void bind_absorb(nb::module_& module) {
    module.def(
        "absorb_query",
        [](nb::handle x, nb::handle weight, nb::handle out, nb::handle stream) {
            project(&absorb_query, x, weight, out, stream);
        },
        nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none());
    module.def(
        "project_output",
        [](nb::handle x, nb::handle weight, nb::handle out, nb::handle stream) {
            project(&project_output, x, weight, out, stream);
        },
        nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none());
}

}  // namespace flashmla::python
