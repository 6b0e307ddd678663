// The readers of .npy and .safetensors files on damaged bytes: every input is read or refused in words, nothing outside
// the file is touched, and what a header claims lies within the file.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cli/tensor_file/tensor_file.hpp"
#include "fuzz/input.hpp"

namespace flashmla::fuzz {
namespace {

using Bytes = std::vector<std::uint8_t>;

void append(Bytes& file, const std::string& text) { file.insert(file.end(), text.begin(), text.end()); }

template <class T>
void append_integer(Bytes& file, T value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    file.insert(file.end(), bytes, bytes + sizeof value);
}

Bytes npy(std::uint8_t version, const std::string& dictionary, std::size_t payload) {
    Bytes file = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0};
    const std::string header = dictionary + "   \n";
    if (version == 1)
        append_integer(file, static_cast<std::uint16_t>(header.size()));
    else
        append_integer(file, static_cast<std::uint32_t>(header.size()));
    append(file, header);
    file.resize(file.size() + payload, 0x7f);
    return file;
}

Bytes safetensors(const std::string& header, std::size_t payload) {
    Bytes file;
    append_integer(file, static_cast<std::uint64_t>(header.size()));
    append(file, header);
    file.resize(file.size() + payload, 0x7f);
    return file;
}

// Files that are read as they are, to start from.
Bytes valid_file(std::size_t which) {
    switch (which % 6) {
        case 0: return npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24);
        case 1: return npy(2, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4, 1, 656), }", 5248);
        case 2: return npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", 8);
        case 3: return safetensors(R"({"a":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,16]}})", 16);
        case 4:
            return safetensors(R"({"__metadata__":{"format":"fp8_656","scale":"0.5"},)"
                               R"("pages":{"dtype":"U8","shape":[1,4,1,656],"data_offsets":[0,2624]},)"
                               R"("table":{"dtype":"I32","shape":[3],"data_offsets":[2624,2636]}})",
                               2636);
        default: return safetensors("{}", 0);
    }
}

// Words that mean something to a reader, to be thrown in anywhere.
constexpr const char* kWords[] = {"-1",
                                  "18446744073709551616",
                                  "9223372036854775807",
                                  "[",
                                  "]",
                                  "{",
                                  "}",
                                  "\"",
                                  "'",
                                  "(",
                                  ")",
                                  ",",
                                  ":",
                                  "1e400",
                                  "\\ud800",
                                  "null",
                                  "True",
                                  "<V2",
                                  "|V1",
                                  ">f4",
                                  "\"data_offsets\"",
                                  "\"shape\"",
                                  "'shape'",
                                  "__metadata__",
                                  "F8_E4M3",
                                  "\0x"};

void damage(Bytes& file, Input& input) {
    const std::size_t at = file.empty() ? 0 : input.below(std::min<std::size_t>(file.size(), 400));
    switch (input.below(8)) {
        case 0:
            if (!file.empty()) file[at] = input.take<std::uint8_t>();
            break;
        case 1:
            if (!file.empty()) file[at] ^= static_cast<std::uint8_t>(1u << input.below(8));
            break;
        case 2: file.resize(at); break;
        case 3:
            file.erase(file.begin() + static_cast<std::ptrdiff_t>(at),
                       file.begin() + static_cast<std::ptrdiff_t>(std::min(file.size(), at + 1 + input.below(8))));
            break;
        case 4: {
            const std::string word = input.pick(kWords);
            file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), word.begin(), word.end());
            break;
        }
        case 5:
            file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), input.below(64), input.take<std::uint8_t>());
            break;
        case 6: {  // a stretch again: duplicate keys, nested brackets
            const Bytes piece(file.begin() + static_cast<std::ptrdiff_t>(at),
                              file.begin() + static_cast<std::ptrdiff_t>(std::min(file.size(), at + 60)));
            file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
            break;
        }
        default: {  // the length field of either format
            const auto length = input.take<std::uint64_t>() >> input.below(64);
            if (file.size() >= 16) std::memcpy(file.data() + (file[0] == 0x93 ? 8 : 0), &length, sizeof length);
        }
    }
}

void check(const Result<cli::TensorFile>& read, std::size_t file_bytes) {
    if (!read.ok()) {
        require(!read.status().message().empty(), "a file refused without words");
        return;
    }
    for (const cli::FileTensor& tensor : read.value().tensors) {
        require(tensor.begin <= file_bytes && tensor.bytes <= file_bytes - tensor.begin,
                tensor.describe() + " reaches past the file");
        const Result<std::size_t> bytes = cli::tensor_bytes(tensor.element, tensor.shape);
        require(bytes.ok() && bytes.value() == tensor.bytes, tensor.describe() + " is not as large as its shape");
    }
}

// A copy of its own size on the heap, so that the address sanitizer sees a read past its end.
void read_all_ways(const Bytes& bytes) {
    const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(bytes.data()),
                                      reinterpret_cast<const std::byte*>(bytes.data() + bytes.size()));
    check(cli::parse_tensor_file(file), file.size());
    check(cli::parse_npy(file), file.size());
    check(cli::parse_safetensors(file), file.size());
}

}  // namespace
}  // namespace flashmla::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace flashmla::fuzz;
    Input input({data, size});
    const auto start = input.take<std::uint8_t>();
    if (start >= 0xf0) {  // the input is the file
        read_all_ways({input.rest().begin(), input.rest().end()});
        return 0;
    }
    Bytes file = valid_file(start);
    if (start < 6)
        require(flashmla::cli::parse_tensor_file(std::as_bytes(std::span(file))).ok(), "a valid file refused");
    for (int i = 0; i < 12 && !input.empty(); ++i) damage(file, input);
    read_all_ways(file);
    return 0;
}
