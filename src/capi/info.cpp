#include "flashmla/c/info.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "capi/device.hpp"
#include "capi/guard.hpp"
#include "capi/reader.hpp"
#include "flashmla/build_info.hpp"
#include "flashmla/capability.hpp"
#include "flashmla/catalog.hpp"

namespace flashmla::capi {

namespace {

template <std::size_t N>
void copy_text(const std::string& text, char (&out)[N]) {
    const std::size_t length = std::min(text.size(), N - 1);  // the rest of a long name is lost
    std::memcpy(out, text.data(), length);
    out[length] = '\0';
}

template <std::size_t N>
std::string read_text(Reader& read, const char* field, const char (&text)[N]) {
    const void* end = std::memchr(text, 0, N);
    if (end == nullptr) read.complain(field, std::to_string(N) + " characters", "a string that ends within them");
    return end == nullptr ? std::string() : std::string(text);
}

Status write_device(const Result<DeviceInfo>& found, flashmla_device_info* out) {
    if (!found.ok()) return found.status();
    const DeviceInfo& info = found.value();
    flashmla_device_info device{};
    device.type = to_c(kDeviceTypes, info.device.type);
    device.index = info.device.index;
    device.compute_capability = info.compute_capability;
    device.num_processors = info.num_processors;
    device.smem_per_block_bytes = info.smem_per_block_bytes;
    device.l2_bytes = info.l2_bytes;
    device.memory_gbps = info.memory_gbps;
    device.matrix_tflops = info.matrix_tflops;
    copy_text(info.name, device.name);
    copy_text(info.arch, device.arch);
    write_struct(device, out);
    return {};
}

Status query_build(flashmla_build_info* out) {
    Reader read;
    read.output("build", out);
    if (!read.status().ok()) return read.status();
    const BuildInfo info = build_info();
    flashmla_build_info build{};
    build.version = info.version;
    build.git_revision = info.git_revision;
    build.source_hash = info.source_hash;
    build.compiler = info.compiler;
    build.cuda_toolkit = info.cuda_toolkit;
    build.cuda_architectures = info.cuda_architectures;
    build.cpu_paths = info.cpu_paths;
    write_struct(build, out);
    return {};
}

// Widths and page sizes above this are refused, so that a page's bytes fit 63 bits.
constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() / 2;

Status cache_bytes(flashmla_cache_format given, std::int64_t d_qk, std::int64_t page_size, std::int64_t* bytes,
                   bool page) {
    Reader read;
    CacheFormat format{};
    read.format("format", given, DType::kBFloat16, format);
    read.range("d_qk", d_qk, 1, kMaxExtent);
    read.range("page_size", page_size, 1, kMaxExtent);
    read.pointer("bytes", bytes, "somewhere to write to");
    if (!read.status().ok()) return read.status();
    *bytes = page ? cache_page_bytes(format, d_qk, page_size) : cache_record_bytes(format, d_qk);
    return {};
}

Status check_query(const flashmla_capability_query* given, const flashmla_device_info* given_device) {
    Reader outer;
    const auto c = outer.structure("query", given);
    if (!outer.status().ok()) return outer.status();
    Reader read("query.");
    CapabilityQuery query;
    read.operation("operation", c.operation, query.operation);
    read.dtype("dtype", c.dtype, query.dtype);
    read.format("format", c.format, query.dtype, query.format);
    read.flag("sparse", c.sparse, query.sparse);
    read.reserved("reserved", c.reserved);
    if (!read.status().ok()) return read.status();
    query.dims = {.d_qk = c.d_qk, .d_v = c.d_v};
    query.page_size = c.page_size;
    DeviceInfo device;
    if (Status status = read_device_info(given_device, device); !status.ok()) return status;
    return check_capability(query, device);
}

}  // namespace

Status read_device_info(const flashmla_device_info* given, DeviceInfo& info) {
    Reader read("device.");
    Reader outer;
    const auto device = outer.structure("device", given);
    if (!outer.status().ok()) return outer.status();
    read.device("type", device.type, device.index, info.device);
    read.range("index", device.index, 0, kMaxExtent);
    read.reserved("reserved", device.reserved);
    read.range("compute_capability", device.compute_capability, 0, kMaxExtent);
    read.range("num_processors", device.num_processors, 1, kMaxExtent);
    read.range("smem_per_block_bytes", device.smem_per_block_bytes, 0, std::numeric_limits<std::int64_t>::max());
    read.range("l2_bytes", device.l2_bytes, 0, std::numeric_limits<std::int64_t>::max());
    info.compute_capability = device.compute_capability;
    info.num_processors = device.num_processors;
    info.smem_per_block_bytes = device.smem_per_block_bytes;
    info.l2_bytes = device.l2_bytes;
    info.memory_gbps = device.memory_gbps;
    info.matrix_tflops = device.matrix_tflops;
    info.name = read_text(read, "name", device.name);
    info.arch = read_text(read, "arch", device.arch);
    return read.status();
}

extern "C" {

const char* flashmla_version() { return build_info().version; }

flashmla_status flashmla_query_build(flashmla_build_info* build) {
    return guarded([&] { return query_build(build); });
}

flashmla_status flashmla_query_device(flashmla_device_type type, int32_t index, flashmla_device_info* device) {
    return guarded([&] {
        Reader read;
        Device wanted;
        read.device("type", type, index, wanted);
        read.output("device", device);
        return read.status().ok() ? write_device(query_device(wanted), device) : read.status();
    });
}

flashmla_status flashmla_named_device(const char* name, flashmla_device_info* device) {
    return guarded([&] {
        Reader read;
        read.pointer("name", name, "the name of a device");
        read.output("device", device);
        return read.status().ok() ? write_device(named_device(name), device) : read.status();
    });
}

int32_t flashmla_cuda_device_count() {
    int32_t count = 0;
    (void)guarded([&] {
        count = cuda_device_count();
        return Status{};
    });
    return count;
}

const char* flashmla_kernel_name(int32_t index) {
    const auto kernels = kernel_catalog();
    return index >= 0 && static_cast<std::size_t>(index) < kernels.size() ? kernels[index].name : nullptr;
}

flashmla_status flashmla_check_capability(const flashmla_capability_query* query, const flashmla_device_info* device) {
    return guarded([&] { return check_query(query, device); });
}

flashmla_status flashmla_cache_record_bytes(flashmla_cache_format format, int64_t d_qk, int64_t* bytes) {
    return guarded([&] { return cache_bytes(format, d_qk, 1, bytes, false); });
}

flashmla_status flashmla_cache_page_bytes(flashmla_cache_format format, int64_t d_qk, int64_t page_size,
                                          int64_t* bytes) {
    return guarded([&] { return cache_bytes(format, d_qk, page_size, bytes, true); });
}

flashmla_status flashmla_cache_format_of(int64_t d_qk, const flashmla_tensor* cache, flashmla_cache_format* format) {
    return guarded([&] {
        Reader read;
        TensorView view;
        read.tensor("cache", cache, view);
        if (read.status().ok() && (view.rank < 1 || view.rank > kMaxRank)) {
            read.complain("cache", "rank " + std::to_string(view.rank), "rank 4: (num_pages, page_size, 1, record)");
        }
        read.pointer("format", format, "somewhere to write to");
        if (!read.status().ok()) return read.status();
        const Result<CacheFormat> found = cache_format_of(d_qk, view);
        if (found.ok()) *format = to_c(kFormats, found.value());
        return found.status();
    });
}

}  // extern "C"

}  // namespace flashmla::capi
