// `flashmla info`: what this build is, what it can use here, which kernel takes what.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/batch_options.hpp"
#include "cli/command.hpp"
#include "cli/text.hpp"
#include "flashmla/flashmla.hpp"

namespace flashmla::cli {
namespace {

std::vector<DeviceInfo> devices_here() {
    std::vector<DeviceInfo> devices{require(query_device({DeviceType::kCpu, 0}))};
    for (int i = 0; i < cuda_device_count(); ++i) devices.push_back(require(query_device({DeviceType::kCuda, i})));
    return devices;
}

std::string dims_text(const KernelInfo& kernel) {
    std::string text;
    for (const HeadDims& dims : kernel.dims)
        text += fmt::format("{}{}/{}", text.empty() ? "" : ", ", dims.d_qk, dims.d_v);
    return text.empty() ? "any" : text;
}

std::string dtypes_text(const KernelInfo& kernel) {
    std::string text;
    for (const DType dtype : kernel.dtypes) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(dtype));
    return text;
}

std::string formats_text(const KernelInfo& kernel) {
    std::string text;
    for (const CacheFormat format : kernel.formats) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(format));
    return text.empty() ? "-" : text;
}

std::string device_text(const KernelInfo& kernel) {
    if (kernel.device == DeviceType::kCpu) return "CPU";
    return fmt::format("GPU, sm_{}", kernel.compute_capability);
}

std::string page_text(const KernelInfo& kernel) {
    return kernel.page_size == 0 ? "any" : std::to_string(kernel.page_size);
}

void print_markdown() {
    fmt::print(
        "| kernel | operation | device | element types | cache | d_qk/d_v | page | heads, query tokens | what it is "
        "|\n");
    fmt::print("|---|---|---|---|---|---|---|---|---|\n");
    for (const KernelInfo& kernel : kernel_catalog()) {
        fmt::print("| `{}` | {} | {} | {} | {} | {} | {} | any | {} |\n", kernel.name, name(kernel.operation),
                   device_text(kernel), dtypes_text(kernel), formats_text(kernel), dims_text(kernel), page_text(kernel),
                   kernel.summary);
    }
}

void print_text() {
    const BuildInfo build = build_info();
    fmt::print("flashmla {} (revision {})\n", build.version, build.git_revision);
    print_line("compiler", build.compiler);
    print_line("CUDA", *build.cuda_toolkit == '\0'
                           ? std::string("not part of this build")
                           : fmt::format("toolkit {}, architectures {}", build.cuda_toolkit, build.cuda_architectures));
    print_line("CPU paths", fmt::format("{} (FLASHMLA_CPU_ISA picks one)", build.cpu_paths));
    fmt::print("\nDevices\n");
    for (const DeviceInfo& device : devices_here()) {
        const bool cpu = device.device.type == DeviceType::kCpu;
        print_line(cpu ? "cpu" : fmt::format("cuda:{}", device.device.index), cli::device_text(device));
    }
    if (cuda_device_count() == 0) print_line("cuda", query_device({DeviceType::kCuda, 0}).status().message());
    fmt::print("\nKernels\n");
    for (const KernelInfo& kernel : kernel_catalog()) {
        fmt::print("  {} ({}, {}){}\n", kernel.name, name(kernel.operation), device_text(kernel),
                   kernel.built ? "" : " - not part of this build");
        print_line("", kernel.summary);
        print_line("", fmt::format("{}; cache {}; dims {}; page {}; any heads, any query tokens, causal or not",
                                   dtypes_text(kernel), formats_text(kernel), dims_text(kernel), page_text(kernel)));
    }
}

Json to_json() {
    const BuildInfo build = build_info();
    Json document = json_header("info");
    document["build"] = {{"version", build.version},           {"git_revision", build.git_revision},
                         {"source_hash", build.source_hash},   {"compiler", build.compiler},
                         {"cuda_toolkit", build.cuda_toolkit}, {"cuda_architectures", build.cuda_architectures},
                         {"cpu_paths", build.cpu_paths}};
    document["devices"] = Json::array();
    for (const DeviceInfo& device : devices_here()) document["devices"].push_back(device_json(device));
    document["kernels"] = Json::array();
    for (const KernelInfo& kernel : kernel_catalog()) {
        Json dims = Json::array();
        for (const HeadDims& pair : kernel.dims) dims.push_back({{"d_qk", pair.d_qk}, {"d_v", pair.d_v}});
        Json dtypes = Json::array();
        for (const DType dtype : kernel.dtypes) dtypes.push_back(name(dtype));
        Json formats = Json::array();
        for (const CacheFormat format : kernel.formats) formats.push_back(name(format));
        document["kernels"].push_back({{"name", kernel.name},
                                       {"operation", name(kernel.operation)},
                                       {"device", kernel.device == DeviceType::kCpu ? "cpu" : "cuda"},
                                       {"compute_capability", kernel.compute_capability},
                                       {"cache_formats", formats},
                                       {"dtypes", dtypes},
                                       {"dims", dims},
                                       {"page_size", kernel.page_size},
                                       {"built", kernel.built},
                                       {"summary", kernel.summary}});
    }
    return document;
}

}  // namespace

void add_info(CLI::App& app, Selected& selected) {
    CLI::App* command = add_command(app, selected, "info", "Build facts, devices, and which kernel takes what",
                                    {"flashmla info", "flashmla info --json", "flashmla info --markdown"});
    auto markdown = std::make_shared<bool>(false);
    command->add_flag("--markdown", *markdown, "Print the kernels as a Markdown table");
    command->callback([markdown, &selected] {
        selected.action = [markdown, &selected] {
            if (*markdown) {
                print_markdown();
            } else if (selected.json) {
                print_json(to_json());
            } else {
                print_text();
            }
            return kExitOk;
        };
    });
}

}  // namespace flashmla::cli
