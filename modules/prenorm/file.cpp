#include "prenorm/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "prenorm/error.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

void sync_to_disk(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  require(descriptor >= 0, "cannot open ", path, " to sync it: ", std::strerror(errno));
  const bool synced = ::fsync(descriptor) == 0;
  const int error = errno;
  ::close(descriptor);
  require(synced, "cannot sync ", path, " to disk: ", std::strerror(error));
}

}  // namespace

std::string read_file(const fs::path& path) {
  require(fs::exists(path), "no such file: ", path);
  require(!fs::is_directory(path), path, " is a folder, not a file");
  std::ifstream stream(path, std::ios::binary);
  require(stream.is_open(), "cannot read ", path, ": ", std::strerror(errno));
  std::string bytes(std::istreambuf_iterator<char>(stream), {});
  require(!stream.bad(), "cannot read ", path, ": ", std::strerror(errno));
  return bytes;
}

void write_file_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  fs::path temporary = path;
  temporary += ".tmp" + std::to_string(::getpid());
  try {
    std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
    require(stream.is_open(), "cannot write ", path, ": ", std::strerror(errno));
    write(stream);
    stream.close();
    require(!stream.fail(), "cannot write ", path, ": ", std::strerror(errno));
    sync_to_disk(temporary, O_RDONLY);
    std::error_code renamed;
    fs::rename(temporary, path, renamed);
    require(!renamed, "cannot replace ", path, ": ", renamed.message());
    sync_to_disk(path.parent_path().empty() ? fs::path(".") : path.parent_path(), O_RDONLY | O_DIRECTORY);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace prenorm
