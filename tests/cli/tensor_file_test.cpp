// The readers of .npy and .safetensors: good files, then every way found to make a bad one.
#include "cli/tensor_file/tensor_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace flashmla::cli {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string little_endian(std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
}

std::string npy(const std::string& header, std::size_t data, int major = 1) {
    return "\x93NUMPY" + std::string{static_cast<char>(major), 0} + little_endian(header.size(), major == 1 ? 2 : 4) +
           header + std::string(data, '\x5a');
}

std::string safetensors(const std::string& header, std::size_t data) {
    return little_endian(header.size(), 8) + header + std::string(data, '\x5a');
}

// The message of a file that must be refused.
std::string refusal(const std::string& file) {
    const Result<TensorFile> parsed = parse_tensor_file(bytes_of(file));
    EXPECT_FALSE(parsed.ok()) << printable(file, 200);
    return parsed.status().message();
}

TEST(Npy, ReadsWhatNumpyWrites) {
    const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 64, 1, 656), }   \n";
    for (const int major : {1, 2, 3}) {
        const std::string file = npy(header, 2 * 64 * 656, major);
        const Result<TensorFile> parsed = parse_tensor_file(bytes_of(file));
        ASSERT_TRUE(parsed.ok()) << parsed.status().message();
        ASSERT_EQ(parsed.value().tensors.size(), 1U);
        const FileTensor& tensor = parsed.value().tensors[0];
        EXPECT_EQ(tensor.describe(), "uint8 (2, 64, 1, 656)");
        EXPECT_EQ(tensor.begin + tensor.bytes, file.size());
        EXPECT_EQ(tensor.bytes, 2U * 64 * 656);
    }
}

TEST(Npy, TypesScalarsAndEmptyArrays) {
    const std::tuple<const char*, const char*, std::size_t, const char*> files[] = {
        {"<f2", "(3,)", 6, "float16 (3,)"},
        {"<V2", "(3, 1)", 6, "raw 2-byte values (3, 1)"},
        {"<V1", "(3,)", 3, "raw 1-byte values (3,)"},
        {"|V1", "(3,)", 3, "raw 1-byte values (3,)"},
        {"<i8", "()", 8, "int64 ()"},
        {"<f4", "(0, 9223372036854775807, 9223372036854775807)", 0,
         "float32 (0, 9223372036854775807, 9223372036854775807)"},
        {">u1", "(2L, 2L)", 4, "uint8 (2, 2)"},
    };
    for (const auto& [descr, shape, data, described] : files) {
        const std::string file =
            npy(std::string("{\"descr\":\"") + descr + "\",'shape':" + shape + ",'fortran_order':False}", data);
        const Result<TensorFile> parsed = parse_npy(bytes_of(file));
        ASSERT_TRUE(parsed.ok()) << parsed.status().message();
        EXPECT_EQ(parsed.value().tensors[0].describe(), described);
    }
    const std::string column = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 5, 1)}", 20);
    EXPECT_TRUE(parse_npy(bytes_of(column)).ok());
}

TEST(Npy, RefusesBadHeaders) {
    const std::pair<std::string, const char*> files[] = {
        {npy("{'descr': '<u2', 'fortran_order': False, 'shape': (-2, -3)}", 12), "dimension of -2"},
        {npy("{'descr': '<u2', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 12), "63 bits"},
        {npy("{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,)}", 12), "fits 64 bits"},
        {npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}", 5), "needs 6 bytes"},
        {npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}", 7), "needs 6 bytes"},
        {npy("{'descr': '<u2', 'fortran_order': False, 'shape': (4000000000000,)}", 6), "needs 8000000000000 bytes"},
        {npy("{'descr': '<u2', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", 2), "16 dim"},
        {npy("{'descr': '<u2', 'fortran_order': True, 'shape': (3, 2)}", 12), "ascontiguousarray"},
        {npy("{'descr': '>f2', 'fortran_order': False, 'shape': (3,)}", 6), "big-endian"},
        {npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", 24), "'|O'"},
        {npy("{'descr': '', 'fortran_order': False, 'shape': (3,)}", 24), "descr"},
        {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", 12), "no structure"},
        {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", 12), "True or False"},
        {npy("{'descr': '<f4', 'fortran_order': False}", 12), "keys descr"},
        {npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 12), "twice"},
        {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", 12), "unknown"},
        {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} ()", 12), "more follows"},
        {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3", 12), "shape"},
        {npy("{'descr': '<f4', 'fortran_order': False, 'shape': 3}", 12), "tuple"},
        {npy("{'descr: '<f4'", 12), "key"},
        {npy("", 12), "'{'"},
        {npy("{}", 0, 4), "version 4"},
        {"\x93NUMPY", "begin"},
        {std::string("\x93NUMPY\x01\x00\x76", 9), "within its header"},
        {std::string("\x93NUMPY\x01\x00\xff\xff{}", 12), "claims 65535"},
        {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14), "claims 4294967295"},
    };
    for (const auto& [file, message] : files) {
        const std::string got = refusal(file);
        EXPECT_NE(got.find(message), std::string::npos) << got << "\nwanted: " << message;
    }
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
    const std::string header =
        R"({"__metadata__":{"format":"pt"},"lengths":{"dtype":"I32","shape":[3],"data_offsets":[12,24]},)"
        R"("k_cache":{"dtype":"BF16","shape":[1,2,3],"data_offsets":[0,12]},)"
        R"("nothing":{"dtype":"F8_E4M3","shape":[0,7],"data_offsets":[12,12]}}   )";
    const std::string file = safetensors(header, 24);
    const Result<TensorFile> parsed = parse_tensor_file(bytes_of(file));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    const std::vector<FileTensor>& tensors = parsed.value().tensors;
    ASSERT_EQ(tensors.size(), 3U);
    EXPECT_EQ(tensors[0].name, "k_cache");
    EXPECT_EQ(tensors[0].describe(), "bfloat16 (1, 2, 3)");
    EXPECT_EQ(tensors[0].begin, 8 + header.size());
    EXPECT_EQ(tensors[1].describe(), "float8_e4m3fn (0, 7)");
    EXPECT_EQ(tensors[2].name, "lengths");
    EXPECT_EQ(tensors[2].begin + tensors[2].bytes, file.size());
    EXPECT_EQ(parsed.value().metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
    const std::string none = safetensors("{}", 0);
    EXPECT_TRUE(parse_safetensors(bytes_of(none)).ok());
}

TEST(Safetensors, RefusesBadHeaders) {
    const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets,
                        std::size_t data) {
        return safetensors(
            R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data);
    };
    const std::pair<std::string, const char*> files[] = {
        {one("U8", "[4]", "[0,5]", 4), "do not lie in the 4 bytes"},
        {one("U8", "[4]", "[4,0]", 4), "do not lie"},
        {one("U8", "[4]", "[-4,0]", 4), "negative number -4"},
        {one("U8", "[4]", "[18446744073709551612,18446744073709551615]", 4), "18446744073709551612"},
        {one("U8", "[4]", "[99999999999999999999999,1]", 4), "the number 9999"},
        {one("U8", "[4]", "[9223372036854775800,9223372036854775804]", 4), "do not lie"},
        {one("U8", "[5]", "[0,4]", 4), "needs 5 bytes"},
        {one("U8", "[-1]", "[0,4]", 4), "negative"},
        {one("U8", "[4294967296,4294967296]", "[0,4]", 4), "63 bits"},
        {one("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", "[0,4]", 4), "more than 16"},
        {one("U8", "[4.0]", "[0,4]", 4), "4.0"},
        {one("U8", "[[4]]", "[0,4]", 4), "an array"},
        {one("U8", "4", "[0,4]", 4), "a number"},
        {one("U8", "[4]", "[0,4,4]", 4), "more than 2"},
        {one("U8", "[4]", "[0]", 4), "two data_offsets"},
        {one("U8", "[4]", "[0,4]", 6), "from byte 4 on belong to no tensor"},
        {one("U8", "[4]", "[2,6]", 6), "from byte 0 on belong to no tensor"},
        {one("Q4", "[4]", "[0,4]", 4), "'Q4'"},
        {one("U8", "null", "[0,4]", 4), "null"},
        {one("U8", "{}", "[0,4]", 4), "an object"},
        {safetensors(R"({"a":{"dtype":"U8","shape":[4]}})", 4), "data_offsets"},
        {safetensors(R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4), "twice"},
        {safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", 4), "unknown key 'x'"},
        {safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                     6),
         "'b' overlaps 'a'"},
        {safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                     R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                     8),
         "twice"},
        {safetensors(R"({"__metadata__":{"x":1}})", 0), "a number"},
        {safetensors(R"({"__metadata__":{"x":{}}})", 0), "an object"},
        {safetensors(R"({"a":"b"})", 0), "the text 'b'"},
        {safetensors("[1]", 0), "an array"},
        {safetensors("7", 0), "wanted an object"},
        {safetensors("{", 0), "no JSON at byte"},
        {safetensors("{} {}", 0), "no JSON at byte"},
        {safetensors("", 0), "no JSON"},
        {safetensors("\"\xff\xfe\"", 0), "no JSON"},
        {safetensors(std::string(1000000, '['), 0), "an array"},
        {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "18446744073709551615"},
        {std::string("\x03\0\0\0\0\0\0\0{}", 10), "3 bytes; the file has 2"},
        {std::string("\x02\0\0", 3), "3 bytes"},
        {"", "0 bytes"},
    };
    for (const auto& [file, message] : files) {
        const std::string got = refusal(file);
        EXPECT_NE(got.find(message), std::string::npos) << got << "\nwanted: " << message;
    }
}

// Whatever is changed, what is accepted must lie inside the file. Address sanitizer builds see reads outside.
TEST(TensorFile, MutatedFilesStayInBounds) {
    const std::string seeds[] = {
        npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3, 4)}", 24),
        safetensors(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                    R"("b":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}})",
                    16)};
    std::mt19937 random(7);
    std::int64_t accepted = 0;
    for (int i = 0; i < 20000; ++i) {
        std::string file = seeds[i % 2];
        const std::size_t changes = 1 + random() % 3;
        for (std::size_t change = 0; change < changes; ++change) {
            const std::size_t at = random() % (file.empty() ? 1 : file.size());
            switch (random() % 4) {
                case 0: file[at] = static_cast<char>(random()); break;
                case 1: file[at] = "0123456789[]{},:-\"'()"[random() % 21]; break;
                case 2: file.resize(at + 1); break;
                default: file.insert(at, 1, static_cast<char>('0' + random() % 10));
            }
        }
        // Exactly the bytes, so that a read past them is one past an allocation.
        const std::vector<char> exact(file.begin(), file.end());
        const Result<TensorFile> parsed = parse_tensor_file(std::as_bytes(std::span(exact)));
        if (!parsed.ok()) {
            EXPECT_FALSE(parsed.status().message().empty());
            continue;
        }
        ++accepted;
        for (const FileTensor& tensor : parsed.value().tensors) {
            EXPECT_LE(tensor.begin, exact.size());
            EXPECT_LE(tensor.bytes, exact.size() - tensor.begin);
            EXPECT_EQ(tensor_bytes(tensor.element, tensor.shape).value(), tensor.bytes);
        }
    }
    EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace flashmla::cli
