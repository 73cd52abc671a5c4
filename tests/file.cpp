#include "prenorm/file.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "catch.h"
#include "folder.h"
#include "prenorm/error.h"
#include "throws.h"

namespace file_test {
namespace {

int fsync_error = 0;  // that folders give while they are synced; 0: none

}  // namespace

// Takes the place of the C library's in this program.
extern "C" int fsync(int descriptor) {
  struct stat status {};
  if (fsync_error != 0 && ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    errno = fsync_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace fs = std::filesystem;
using prenorm::Error;
using prenorm::read_file;
using prenorm::real_path;
using prenorm::same_file;

namespace {

void write(const fs::path& path, const std::string& bytes) {
  prenorm::write_file_atomically(path, [&](std::ostream& stream) { stream << bytes; });
}

void write_folder(const fs::path& path, const std::string& bytes) {
  prenorm::write_folder_atomically(path, [&](const fs::path& folder) { write(folder / "file", bytes); });
}

}  // namespace

TEST_CASE("a folder that cannot be synced is passed over, one that fails to be is not") {
  const Folder folder;
  for (const int error : {EINVAL, ENOTSUP, ENOSYS, EIO, ENOSPC}) {
    fsync_error = error;
    const bool fails = error == EIO || error == ENOSPC;
    const auto message = message_of<Error>([&] { write(folder.path / "new", "x"); });
    CHECK((message.find("cannot sync") != std::string::npos) == fails);
    const auto of_folder = message_of<Error>([&] { write_folder(folder.path / "folder", "x"); });
    CHECK((of_folder.find("cannot sync") != std::string::npos) == fails);
  }
  fsync_error = 0;
  const fs::path closed = folder.path / "closed";
  fs::create_directory(closed);
  fs::permissions(closed, fs::perms(0333));
  bound_by_permissions(folder, [&] { CHECK(message_of<Error>([&] { write(closed / "new", "x"); }).empty()); });
  fs::permissions(closed, fs::perms::all);
  CHECK(read_file(folder.path / "folder" / "file") == "x");
}

TEST_CASE("a path leads where the system takes it") {
  const Folder folder;
  fs::create_directories(folder.path / "far" / "inside");
  fs::create_directory(folder.path / "here");
  fs::create_directory_symlink(folder.path / "far" / "inside", folder.path / "here" / "link");
  const fs::path across = folder.path / "here" / "link" / ".." / "x";  // in far, not here
  CHECK(real_path(across) == folder.path / "far" / "x");
  CHECK(real_path(folder.path / "new" / "..") == folder.path);
  CHECK(real_path(folder.path / "new" / "") == folder.path / "new");
  CHECK(same_file(across, folder.path / "far" / "x"));
  CHECK_FALSE(same_file(across, folder.path / "here" / "x"));
  CHECK_FALSE(same_file(folder.path, ""));

  write_folder(across, "1");
  CHECK(read_file(folder.path / "far" / "x" / "file") == "1");
  CHECK_FALSE(fs::exists(folder.path / "here" / "x"));
  fs::create_directory_symlink(across, folder.path / "alias");
  write_folder(folder.path / "alias", "2");
  CHECK(fs::is_symlink(folder.path / "alias"));
  CHECK(read_file(folder.path / "far" / "x" / "file") == "2");

  fs::create_hard_link(folder.path / "far" / "x" / "file", folder.path / "hard");
  CHECK(same_file(folder.path / "hard", folder.path / "alias" / "file"));
}

}  // namespace file_test
