#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>

#include "prenorm/tensor_file/file_source.h"

namespace prenorm {

/// The records of a zip archive, through minizip and zlib. PyTorch stores tensors uncompressed, so that they can be
/// read in place.
class ZipReader {
 public:
  /// Reads the directory. Throws Error when it is missing (a truncated file) or lists a name twice.
  explicit ZipReader(const FileSource& source);
  ~ZipReader();

  /// Names and sizes in bytes, uncompressed, as the directory gives them.
  const std::map<std::string, std::uint64_t>& sizes() const { return sizes_; }

  /// Where the bytes of an uncompressed record begin in the file; they lie within the file.
  std::uint64_t offset(const std::string& name) const;

  /// A whole small record, decompressed. Throws Error when it is larger than `limit`.
  std::string read(const std::string& name, std::uint64_t limit) const;

 private:
  struct Handle;
  std::uint64_t begin(const std::string& name) const;

  std::unique_ptr<Handle> handle_;
  std::map<std::string, std::uint64_t> sizes_;
};

/// Writes a zip archive of uncompressed records into a stream that can seek.
class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& stream);
  ~ZipWriter();

  /// Adds a record; its bytes begin at a multiple of 64 in the file, as PyTorch has them.
  void add(const std::string& name, const void* bytes, std::uint64_t size);

  /// Writes the directory.
  void finish();

 private:
  std::ostream& stream_;
  void* zip_ = nullptr;
};

}  // namespace prenorm
