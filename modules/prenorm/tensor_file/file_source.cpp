#include "prenorm/tensor_file/file_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "prenorm/error.h"

namespace prenorm {
namespace fs = std::filesystem;

FileSource::FileSource(const fs::path& path) {
  // A pipe without a writer would block here for ever.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0 && errno == ENOENT) fail("no such file");
  require(descriptor_ >= 0, "cannot be opened: ", std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(S_ISDIR(status.st_mode) ? "is a folder, not a file" : "is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

FileSource::~FileSource() {
  ::close(descriptor_);
}

void FileSource::read(std::uint64_t offset, void* destination, std::size_t count) const {
  require(offset <= size_ && count <= size_ - offset, "truncated: ", count, " bytes from byte ", offset,
          " are needed, the file has ", size_);
  auto* bytes = static_cast<char*>(destination);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, bytes, std::min<std::size_t>(count, 1 << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, "cannot be read: ", std::strerror(errno));
    require(got > 0, "was cut to ", offset, " bytes while it was read; it had ", size_);
    bytes += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
}

TextRange::int_type TextRange::underflow() {
  if (position_ == end_) return traits_type::eof();
  piece_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(end_ - position_, 1 << 16)));
  source_.read(position_, piece_.data(), piece_.size());
  // The JSON parser takes a zero byte for the end of its input.
  require(std::find(piece_.begin(), piece_.end(), '\0') == piece_.end(), "holds a zero byte in its JSON text");
  position_ += piece_.size();
  setg(piece_.data(), piece_.data(), piece_.data() + piece_.size());
  return traits_type::to_int_type(piece_.front());
}

}  // namespace prenorm
