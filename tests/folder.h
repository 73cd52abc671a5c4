#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

/// An empty folder of a test's own, gone with it.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "prenorm_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }

  std::filesystem::path path;
};

/// Calls `action` bound by permissions, which root is not; not at all where they keep it from the folder.
void bound_by_permissions(const Folder& folder, auto&& action) {
  std::filesystem::permissions(folder.path, std::filesystem::perms::all);
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) return;
  std::error_code error;
  if (std::filesystem::exists(folder.path / ".", error)) action();
  if (root && ::seteuid(0) != 0) std::abort();
}
