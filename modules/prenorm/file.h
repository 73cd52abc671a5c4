#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace prenorm {

/// The whole of a small file as bytes. Throws Error naming the path when it is missing, a folder or unreadable.
std::string read_file(const std::filesystem::path& path);

/// Replaces the file at `path` by what `write` puts into the stream it is given, atomically and durably: a temporary
/// file in the same folder, fsync, rename, fsync of the folder. When anything fails, an exception of `write` included,
/// the temporary file is removed and the old file stays as it was; throws Error naming the path.
void write_file_atomically(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

}  // namespace prenorm
