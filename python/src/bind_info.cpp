// Facts about this build.
#include "bind.hpp"
#include "flashmla/build_info.hpp"
#include "flashmla/capability.hpp"
#include "flashmla/catalog.hpp"
#include "raise.hpp"
#include "words.hpp"

namespace nb = nanobind;

namespace flashmla::python {

void bind_info(nb::module_& module) {
    module.def("build_info", [] {
        const BuildInfo info = build_info();
        nb::dict result;
        result["version"] = info.version;
        result["git_revision"] = info.git_revision;
        result["source_hash"] = info.source_hash;
        result["compiler"] = info.compiler;
        result["cuda_toolkit"] = info.cuda_toolkit;
        result["cuda_architectures"] = info.cuda_architectures;
        result["cpu_paths"] = info.cpu_paths;
        return result;
    });
    module.def("kernels", [] {
        nb::list result;
        for (const KernelInfo& kernel : kernel_catalog()) {
            nb::dict row;
            row["name"] = kernel.name;
            row["operation"] = name(kernel.operation);
            nb::list formats;
            for (const CacheFormat format : kernel.formats) formats.append(name(format));
            row["cache_formats"] = formats;
            row["sparse"] = kernel.sparse;
            row["attn_sink"] = kernel.attn_sink;
            nb::list dtypes;
            for (const DType dtype : kernel.dtypes) dtypes.append(name(dtype));
            row["dtypes"] = dtypes;
            nb::list dims;
            for (const HeadDims& pair : kernel.dims) dims.append(nb::make_tuple(pair.d_qk, pair.d_v));
            row["dims"] = dims;
            row["page_size"] = kernel.page_size;
            row["device"] = kernel.device == DeviceType::kCuda ? "cuda" : "cpu";
            row["compute_capability"] = kernel.compute_capability;
            row["summary"] = kernel.summary;
            row["built"] = kernel.built;
            result.append(row);
        }
        return result;
    });
    module.def(
        "check_capability",
        [](const std::string& operation, const std::string& device, const std::string& dtype,
           const std::string& format) {
            const CapabilityQuery query{
                .operation = find_operation(operation), .dtype = find_dtype(dtype), .format = find_format(format)};
            raise_if_failed(check_capability(query, find_device(device)));
        },
        nb::arg("operation"), nb::arg("device"), nb::arg("dtype"), nb::arg("format"));
}

}  // namespace flashmla::python
