// Facts about this build.
#include "bind.hpp"
#include "flashmla/build_info.hpp"

namespace nb = nanobind;

namespace flashmla::python {

void bind_info(nb::module_& module) {
    module.def("build_info", [] {
        const BuildInfo info = build_info();
        nb::dict result;
        result["version"] = info.version;
        result["git_revision"] = info.git_revision;
        result["compiler"] = info.compiler;
        result["cuda_toolkit"] = info.cuda_toolkit;
        result["cuda_architectures"] = info.cuda_architectures;
        result["cpu_paths"] = info.cpu_paths;
        return result;
    });
}

}  // namespace flashmla::python
