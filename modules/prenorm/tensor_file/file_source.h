#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <streambuf>
#include <vector>

namespace prenorm {

/// A regular file opened for reading at any position. It stays the same file when its name is given to another one.
class FileSource {
 public:
  /// Throws Error when the file is missing, a folder, no regular file or unreadable.
  explicit FileSource(const std::filesystem::path& path);
  ~FileSource();
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  /// Bytes, when it was opened.
  std::uint64_t size() const { return size_; }

  /// Copies bytes `offset` to `offset + count`; throws Error when the file ends before.
  void read(std::uint64_t offset, void* destination, std::size_t count) const;

 private:
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The text in bytes `begin` to `end` of a file, read in small pieces. Throws Error when it holds a zero byte.
class TextRange : public std::streambuf {
 public:
  TextRange(const FileSource& source, std::uint64_t begin, std::uint64_t end)
      : source_(source), position_(begin), end_(end) {}

 protected:
  int_type underflow() override;

 private:
  const FileSource& source_;
  std::uint64_t position_;
  std::uint64_t end_;
  std::vector<char> piece_ = {};
};

}  // namespace prenorm
