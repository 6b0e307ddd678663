// append, gather, copy_pages and convert: the pages of a latent cache.
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

#include "bind.hpp"
#include "call.hpp"
#include "flashmla/cache_format.hpp"
#include "flashmla/kv_cache.hpp"
#include "words.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

// The values a record holds, which its size tells: packed records have one width each.
std::int64_t values_of_record(const TensorView& cache) {
    if (cache.rank == 0) return 0;  // the library says what is wrong
    const std::int64_t record = cache.shape[cache.rank - 1];
    if (size_bytes(cache.dtype) != 1) return record;
    for (const std::int64_t d_qk : {std::int64_t{576}, std::int64_t{512}}) {
        const Result<CacheFormat> format = cache_format_of(d_qk, cache);
        if (format.ok() && format.value() != CacheFormat::kFp8Flat) return d_qk;
    }
    return record;
}

void append(nb::tuple tensors, bool rotary_halves, double cache_scale, bool power_of_two_scales, nb::handle stream) {
    Arguments kept;
    const AppendArgs args{.latent = kept.read("latent", tensors[0]),
                          .rope = kept.read_if_given("rope", tensors[1]),
                          .cache = kept.write("cache", tensors[2]),
                          .slot_ids = kept.read("slot_ids", tensors[3]),
                          .positions = kept.read_if_given("positions", tensors[4]),
                          .cos_sin = kept.read_if_given("cos_sin", tensors[5]),
                          .rotary_style = rotary_halves ? RotaryStyle::kHalves : RotaryStyle::kInterleaved,
                          .cache_scale = cache_scale,
                          .power_of_two_scales = power_of_two_scales};
    run_on_stream(kept.home(), stream, [&](StreamHandle handle) { return flashmla::append(args, handle); });
}

// Rows that gather writes: what a caller has to allocate.
std::int64_t gather_rows(nb::handle cache, nb::handle slot_ids, nb::handle block_table, nb::handle cu_seqlens) {
    Arguments kept;
    const TensorView slots = kept.read_if_given("slot_ids", slot_ids);
    if (slots.rank != 0) return slots.shape[0];
    if (cu_seqlens.is_none()) throw nb::value_error("slot_ids, cu_seqlens: got neither, wanted exactly one");
    const TensorView lengths = kept.read("cu_seqlens", cu_seqlens);
    if (lengths.device.type != DeviceType::kCpu)
        throw nb::value_error("out: got None, wanted an array: how many rows there are is known on the device only");
    if (lengths.rank != 1 || lengths.shape[0] < 1 || lengths.dtype != DType::kInt32)
        throw nb::value_error((std::string("cu_seqlens: got ") + name(lengths.dtype) + " of rank " +
                               std::to_string(lengths.rank) + ", wanted int32 (b + 1,)")
                                  .c_str());
    const std::int64_t rows =
        static_cast<const std::int32_t*>(lengths.data)[(lengths.shape[0] - 1) * lengths.stride[0]];
    const TensorView table = kept.read("block_table", block_table);
    const std::int64_t most = kept.read("cache", cache).shape[1] * table.shape[0] * table.shape[1];
    if (rows < 0 || rows > most)
        throw nb::value_error(("cu_seqlens: got " + std::to_string(rows) + " rows, wanted 0 to " +
                               std::to_string(most) + ", what block_table has room for")
                                  .c_str());
    return rows;
}

void gather(nb::handle cache, std::int64_t d_qk, nb::handle slot_ids, nb::handle block_table, nb::handle cu_seqlens,
            nb::handle out, double cache_scale, nb::handle stream) {
    Arguments kept;
    const GatherArgs args{.cache = kept.read("cache", cache),
                          .d_qk = d_qk,
                          .slot_ids = kept.read_if_given("slot_ids", slot_ids),
                          .block_table = kept.read_if_given("block_table", block_table),
                          .cu_seqlens = kept.read_if_given("cu_seqlens", cu_seqlens),
                          .out = kept.write("out", out),
                          .cache_scale = cache_scale};
    run_on_stream(kept.home(), stream, [&](StreamHandle handle) { return flashmla::gather(args, handle); });
}

void copy_pages(nb::handle source, nb::handle destination, nb::handle page_pairs, std::int64_t d_qk,
                nb::handle stream) {
    Arguments kept;
    const CopyPagesArgs args{.source = kept.read("source", source),
                             .destination = kept.write("destination", destination),
                             .d_qk = d_qk,
                             .page_pairs = kept.read("page_pairs", page_pairs)};
    run_on_stream(kept.home(), stream, [&](StreamHandle handle) { return flashmla::copy_pages(args, handle); });
}

void convert(nb::handle source, nb::handle destination, std::int64_t d_qk, double source_scale,
             double destination_scale, bool power_of_two_scales, nb::handle stream) {
    Arguments kept;
    const ConvertArgs args{.source = kept.read("source", source),
                           .destination = kept.write("destination", destination),
                           .d_qk = d_qk,
                           .source_scale = source_scale,
                           .destination_scale = destination_scale,
                           .power_of_two_scales = power_of_two_scales};
    run_on_stream(kept.home(), stream, [&](StreamHandle handle) { return flashmla::convert(args, handle); });
}

}  // namespace

void bind_cache(nb::module_& module) {
    module.def("cache_record_bytes", [](const std::string& format, std::int64_t d_qk) {
        return cache_record_bytes(find_format(format), d_qk);
    });
    module.def("cache_page_bytes", [](const std::string& format, std::int64_t d_qk, std::int64_t page_size) {
        return cache_page_bytes(find_format(format), d_qk, page_size);
    });
    module.def(
        "values_of_record",
        [](const char* argument, nb::handle cache) {
            return values_of_record(import_tensor(argument, cache, Access::kRead).view);
        },
        nb::arg(), nb::arg().none());
    module.def("append", &append, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
    module.def("gather_rows", &gather_rows, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none());
    module.def("gather", &gather, nb::arg().none(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
               nb::arg().none(), nb::arg(), nb::arg().none());
    module.def("copy_pages", &copy_pages, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(),
               nb::arg().none());
    module.def("convert", &convert, nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
               nb::arg().none());
}

}  // namespace flashmla::python
