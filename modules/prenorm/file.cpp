#include "prenorm/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include "prenorm/error.h"

namespace prenorm {
namespace fs = std::filesystem;
namespace {

/// Whether an error says that the file system lacks the operation, not that it failed.
bool is_unsupported(int error) {
  return error == EINVAL || error == ENOSYS || error == ENOTSUP;
}

void sync_to_disk(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  // A folder that one may write to but not read.
  if (descriptor < 0 && errno == EACCES && (flags & O_DIRECTORY) != 0) return;
  require(descriptor >= 0, "cannot open ", path, " to sync it: ", std::strerror(errno));
  const bool synced = ::fsync(descriptor) == 0 || is_unsupported(errno);
  const int error = errno;
  ::close(descriptor);
  require(synced, "cannot sync ", path, " to disk: ", std::strerror(error));
}

void sync_folder(const fs::path& path) {
  sync_to_disk(path.empty() ? fs::path(".") : path, O_RDONLY | O_DIRECTORY);
}

constexpr const char* kUnfinished = ".tmp";

fs::path unfinished(fs::path path) {
  path += kUnfinished + std::to_string(::getpid());
  return path;
}

/// The name of the file or folder that `path` was to become; empty when it is not unfinished.
std::string finished_name(const fs::path& path) {
  const std::string name = path.filename().string();
  const auto at = name.rfind(kUnfinished), digits = at + std::strlen(kUnfinished);
  const bool ours = at != std::string::npos && digits < name.size() &&
                    name.find_first_not_of("0123456789", digits) == std::string::npos;
  return ours ? name.substr(0, at) : "";
}

/// Puts `temporary` in the place of `target`; an old folder there ends under the name `temporary`.
void exchange(const fs::path& temporary, const fs::path& target) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  // A file system that cannot exchange, such as NFS: a kill between the renames leaves the old folder under that name.
  const bool in_two = is_unsupported(errno);
  std::error_code error;
  fs::path old = target;
  old += ".old";
  if (in_two) fs::rename(target, old, error);
  require(!in_two || !error, "cannot replace ", target, ": ", error.message());
  fs::rename(temporary, target, error);
  if (!in_two) {
    require(!error, "cannot write ", target, ": ", error.message());
    return;
  }
  std::error_code ignored;
  fs::rename(old, error ? target : temporary, ignored);
  require(!error, "cannot replace ", target, ": ", error.message());
}

}  // namespace

std::ifstream open_file(const fs::path& path) {
  std::error_code ignored;  // of a folder one may not look into, which opening tells
  require(fs::status(path, ignored).type() != fs::file_type::not_found, "no such file: ", path);
  require(!fs::is_directory(path, ignored), path, " is a folder, not a file");
  std::ifstream stream(path, std::ios::binary);
  require(stream.is_open(), "cannot read ", path, ": ", std::strerror(errno));
  return stream;
}

std::string read_file(const fs::path& path) {
  std::ifstream stream = open_file(path);
  std::string bytes(std::istreambuf_iterator<char>(stream), {});
  require(!stream.bad(), "cannot read ", path, ": ", std::strerror(errno));
  return bytes;
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) return path;
  return real.has_filename() ? real : real.parent_path();  // "folder/"
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code missing;
  return fs::equivalent(a, b, missing) || real_path(a) == real_path(b);
}

void write_file_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  const fs::path temporary = unfinished(path);
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
    sync_folder(path.parent_path());
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

void write_folder_atomically(const fs::path& path, const std::function<void(const fs::path&)>& fill) {
  const fs::path target = real_path(path), temporary = unfinished(target);
  std::error_code error;
  try {
    fs::remove_all(temporary, error);
    fs::create_directory(temporary, error);
    require(!error, "cannot write ", path, ": ", error.message());
    fill(temporary);
    sync_folder(temporary);
    exchange(temporary, target);
    sync_folder(target.parent_path());
    fs::remove_all(temporary, error);
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
}

void remove_folder_atomically(const fs::path& path) {
  std::error_code error;
  const fs::path temporary = unfinished(path);
  fs::rename(path, temporary, error);
  require(!error, "cannot remove ", path, ": ", error.message());
  fs::remove_all(temporary, error);
}

void remove_unfinished(const fs::path& folder, const std::set<std::string>& names) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = finished_name(entry.path());
    if (!name.empty() && (names.empty() || names.contains(name))) found.push_back(entry.path());
  }
  for (const auto& path : found) fs::remove_all(path, ignored);
}

}  // namespace prenorm
