#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <set>
#include <string>

namespace prenorm {

/// A file's bytes as a stream; a pipe is waited for. Throws Error naming the path when it is missing, a folder or
/// unreadable.
std::ifstream open_file(const std::filesystem::path& path);

/// The whole of a small file as bytes. Throws Error naming the path when it is missing, a folder or unreadable.
std::string read_file(const std::filesystem::path& path);

/// Where `path` leads, be there something or not yet: with links and ".." followed as the system follows them.
std::filesystem::path real_path(const std::filesystem::path& path);

/// Whether two paths lead to one file or folder, be it there or not yet; hard links do.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Replaces the file at `path` by what `write` puts into the stream it is given, atomically and durably: a temporary
/// file in the same folder, fsync, rename, fsync of the folder. When anything fails, an exception of `write` included,
/// the temporary file is removed and the old file stays as it was; throws Error naming the path. Where the file system
/// has no fsync, or a folder may not be read, it is left out.
void write_file_atomically(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

/// Replaces the folder that `path` leads to by the one that `fill` fills: it is given an empty folder beside it, which
/// takes its place once everything in it is on the disk. As with a file, when anything fails before that, the old folder
/// stays as it was.
void write_folder_atomically(const std::filesystem::path& path,
                             const std::function<void(const std::filesystem::path&)>& fill);

/// Removes a folder so that no kill leaves a part of it under its name.
void remove_folder_atomically(const std::filesystem::path& path);

/// Removes what the functions above left behind in `folder` when they were killed: of the files and folders with these
/// names, or of all.
void remove_unfinished(const std::filesystem::path& folder, const std::set<std::string>& names = {});

}  // namespace prenorm
