#include "capi/reader.hpp"

#include <algorithm>

namespace flashmla::capi {

void Reader::complain(const char* field, const std::string& got, const std::string& wanted) {
    if (status_.ok()) status_ = invalid_argument(std::string(prefix_) + field + ": got " + got + ", wanted " + wanted);
}

void Reader::pointer(const char* argument, const void* given, const char* wanted) {
    if (given == nullptr) complain(argument, "a null pointer", wanted);
}

void Reader::flag(const char* field, std::int32_t given, bool& value) {
    if (given != 0 && given != 1) return complain(field, std::to_string(given), "0 or 1");
    value = given == 1;
}

void Reader::reserved(const char* field, std::int64_t given) {
    if (given != 0) complain(field, std::to_string(given), "0");
}

void Reader::range(const char* field, std::int64_t given, std::int64_t low, std::int64_t high) {
    if (given >= low && given <= high) return;
    complain(field, std::to_string(given), std::to_string(low) + " to " + std::to_string(high));
}

void Reader::device(const char* field, flashmla_device_type type, std::int32_t index, Device& value) {
    enumeration(kDeviceTypes, field, type, value.type);
    value.index = index;
}

void Reader::format(const char* field, flashmla_cache_format given, DType dtype, CacheFormat& value) {
    if (given != FLASHMLA_CACHE_OF_DTYPE) return enumeration(kFormats, field, given, value);
    value = cache_format_16bit(dtype);
}

void Reader::tensor(const char* field, const flashmla_tensor* given, TensorView& view) {
    view = {};
    if (given == nullptr || !status_.ok()) return;
    const auto tensor = structure(field, given);
    if (!status_.ok() || tensor.rank == 0) return;
    Reader fields(field);
    fields.reserved(".reserved", tensor.reserved);
    fields.dtype(".dtype", tensor.dtype, view.dtype);
    fields.device(".device_type", tensor.device_type, tensor.device_index, view.device);
    status_ = fields.status();
    view.data = tensor.data;
    view.rank = tensor.rank;  // whether it is the right one is for the operation to say
    std::copy_n(tensor.shape, kMaxRank, view.shape.begin());
    std::copy_n(tensor.stride, kMaxRank, view.stride.begin());
}

}  // namespace flashmla::capi
