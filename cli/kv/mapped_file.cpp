#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cli/exit_codes.hpp"
#include "cli/kv/cache_file.hpp"

namespace flashmla::cli {

namespace {

struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) close(number);
    }
};

[[noreturn]] void cannot_read(const std::string& path, const char* reason) {
    throw Failure{kExitBadInput, path + ": cannot be read: " + reason};
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
    const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat facts {};
    if (file.number < 0 || fstat(file.number, &facts) != 0) cannot_read(path, std::strerror(errno));
    if (!S_ISREG(facts.st_mode)) cannot_read(path, "it is no plain file");
    size_ = static_cast<std::size_t>(facts.st_size);
    if (size_ == 0) return;
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number, 0);
    if (memory == MAP_FAILED) cannot_read(path, std::strerror(errno));
    data_ = static_cast<std::byte*>(memory);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace flashmla::cli
