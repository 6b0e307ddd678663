// copy_pages and convert: whole pages from one cache to another.
#include <string>
#include <vector>

#include "api/cache_check.hpp"
#include "device/cpu.hpp"
#include "dispatch/cache.hpp"
#include "flashmla/kv_cache.hpp"

namespace flashmla {
namespace {

struct Caches {
    core::CacheView source;
    core::CacheView destination;
};

struct Scales {
    double source = 1;
    double destination = 1;
};

Result<Caches> check_caches(const TensorView& source, const TensorView& destination, std::int64_t d_qk,
                            const Scales& scales) {
    Result<core::CacheView> from =
        api::check_cache(source, d_qk, {.name = "source", .scale_name = "source_scale", .scale = scales.source});
    if (!from.ok()) return from.status();
    Result<core::CacheView> to = api::check_cache(destination, d_qk,
                                                  {.name = "destination",
                                                   .overlap = api::Overlap::kForbidden,
                                                   .scale_name = "destination_scale",
                                                   .scale = scales.destination});
    if (!to.ok()) return to.status();
    if (from.value().page_size != to.value().page_size) {
        return invalid_argument("destination: got page_size " + std::to_string(to.value().page_size) + ", wanted " +
                                std::to_string(from.value().page_size) + ", source's");
    }
    if (Status status = api::check_device("destination", destination, source.device, "source"); !status.ok()) {
        return status;
    }
    return Caches{from.value(), to.value()};
}

Status check_page(const char* which, std::int64_t got, std::int64_t pair, std::int64_t num_pages) {
    if (got >= 0 && got < num_pages) return {};
    return invalid_argument("page_pairs: got " + std::string(which) + " page " + std::to_string(got) + " at " +
                            std::to_string(pair) + ", wanted 0 to " + std::to_string(num_pages - 1));
}

// Every page id in range, no destination twice, and no page both read and written when source and destination are one.
Status check_pairs(const core::CopyPagesCall& call) {
    std::vector<bool> written(static_cast<std::size_t>(call.destination.num_pages));
    for (std::int64_t i = 0; i < call.count; ++i) {
        const std::int64_t from = call.pairs[i * call.pair_stride];
        const std::int64_t to = call.pairs[i * call.pair_stride + 1];
        if (Status status = check_page("source", from, i, call.source.num_pages); !status.ok()) return status;
        if (Status status = check_page("destination", to, i, call.destination.num_pages); !status.ok()) return status;
        if (written[static_cast<std::size_t>(to)]) {
            return invalid_argument("page_pairs: got destination page " + std::to_string(to) +
                                    " twice, wanted every destination once");
        }
        written[static_cast<std::size_t>(to)] = true;
    }
    if (call.source.data != call.destination.data) return {};
    for (std::int64_t i = 0; i < call.count; ++i) {
        const std::int64_t from = call.pairs[i * call.pair_stride];
        if (!written[static_cast<std::size_t>(from)]) continue;
        return invalid_argument("page_pairs: got page " + std::to_string(from) +
                                " of one cache both as source and as destination, wanted each page in one role");
    }
    return {};
}

}  // namespace

Status copy_pages(const CopyPagesArgs& args, StreamHandle) {
    Result<Caches> caches = check_caches(args.source, args.destination, args.d_qk, {});
    if (!caches.ok()) return caches.status();
    core::CopyPagesCall call;
    call.source = caches.value().source;
    call.destination = caches.value().destination;
    if (call.source.format != call.destination.format) {
        return invalid_argument(std::string("destination: got format ") + name(call.destination.format) + ", wanted " +
                                name(call.source.format) + ", source's (convert changes formats)");
    }
    TensorView pairs = args.page_pairs;
    if (Status status = api::check_rank("page_pairs", pairs, "(n, 2)", 2); !status.ok()) return status;
    if (Status status = api::check_shape("page_pairs", pairs, {{"n"}, {"source, destination", 2}}); !status.ok()) {
        return status;
    }
    if (Status status = api::check_index_dtype("page_pairs", pairs); !status.ok()) return status;
    if (Status status = api::check_memory("page_pairs", pairs, {}); !status.ok()) return status;
    if (Status status = api::check_device("page_pairs", pairs, args.source.device, "source"); !status.ok()) {
        return status;
    }
    if (Status status = api::check_cache_device("copy_pages", args.source.device); !status.ok()) return status;
    call.pairs = {.data = pairs.data, .wide = pairs.dtype == DType::kInt64};
    call.pair_stride = pairs.stride[0];
    call.count = pairs.shape[0];
    if (Status status = check_pairs(call); !status.ok()) return status;
    if (call.count == 0) return {};
    call.max_threads = device::usable_threads();
    return dispatch::copy_pages(call);
}

Status convert(const ConvertArgs& args, StreamHandle) {
    Result<Caches> caches =
        check_caches(args.source, args.destination, args.d_qk, {args.source_scale, args.destination_scale});
    if (!caches.ok()) return caches.status();
    core::ConvertCall call;
    call.source = caches.value().source;
    call.destination = caches.value().destination;
    call.power_of_two = args.power_of_two_scales;
    if (call.source.num_pages != call.destination.num_pages) {
        return invalid_argument("destination: got " + std::to_string(call.destination.num_pages) + " pages, wanted " +
                                std::to_string(call.source.num_pages) + ", source's");
    }
    if (call.source.num_pages > 0 && call.source.data == call.destination.data) {
        return invalid_argument("destination: got the memory of source, wanted memory of its own");
    }
    if (Status status = api::check_cache_device("convert", args.source.device); !status.ok()) return status;
    if (call.source.num_pages == 0) return {};
    call.max_threads = device::usable_threads();
    return dispatch::convert(call);
}

}  // namespace flashmla
