#include "prenorm/tensor_file/zip.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "prenorm/error.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {

namespace {
constexpr std::uint64_t kNotGiven = UINT64_MAX;
}

struct ZipReader::Handle {
  explicit Handle(const FileSource& file) : source(file) {}
  ~Handle() {
    if (zip != nullptr) unzClose(zip);
  }

  const FileSource& source;
  std::uint64_t position = 0;
  unzFile zip = nullptr;
  struct Entry {
    unz64_file_pos place;              // in the directory
    std::uint64_t header = kNotGiven;  // where the record begins, if the directory gives it in 64 bits
    std::uint64_t compressed_size = 0;
    uLong method = 0;
  };
  std::map<std::string, Entry> entries = {};
};

namespace {

template <typename Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Size and place of a record, where they take 64 bits. Debian 12's minizip leaves these numbers as they stand in their
/// 32 bits, all ones, when a long has 64; others have read them already.
void widen(const std::string& extra, unz_file_info64& info, std::uint64_t& header) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::size_t id = number_at<std::uint16_t>(extra, at);
    const std::size_t end = at + 4 + number_at<std::uint16_t>(extra, at + 2);
    at += 4;
    const auto take = [&](auto& value) {
      if (at + 8 > std::min(end, extra.size())) return;
      const auto wide = number_at<std::uint64_t>(extra, at);
      if (value < UINT32_MAX && value != wide) return;
      value = wide;
      at += 8;
    };
    if (id == 1) {
      take(info.uncompressed_size);
      take(info.compressed_size);
      take(header);
    }
    at = end;
  }
}

/// What a deflated record holds, at most one piece more than `size` bytes. Room grows with what comes out: a few bytes
/// may claim any size.
std::string inflated(const std::string& deflated, std::uint64_t size) {
  z_stream stream{};
  require(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "cannot begin to decompress");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(deflated.data()));
  stream.avail_in = static_cast<uInt>(deflated.size());
  std::string bytes, piece(1 << 16, '\0');
  int status = Z_OK;
  while (status == Z_OK && bytes.size() <= size) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    bytes.append(piece, 0, piece.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  return bytes;
}

constexpr int kStored = 0;
constexpr std::uint64_t kAlignment = 64;

// What minizip calls to read and write. No exception may pass through it.

void* open_stream(void* stream, const void*, int) {
  return stream;
}
int close_stream(void*, void*) {
  return 0;
}

template <typename Handle>
uLong read_source(void*, void* stream, void* bytes, uLong count) {
  auto& handle = *static_cast<Handle*>(stream);
  const std::uint64_t left = handle.source.size() - std::min(handle.position, handle.source.size());
  const auto possible = static_cast<uLong>(std::min<std::uint64_t>(count, left));
  try {
    handle.source.read(handle.position, bytes, possible);
  } catch (const std::exception&) {
    return 0;
  }
  handle.position += possible;
  return possible;
}

template <typename Handle>
ZPOS64_T tell_source(void*, void* stream) {
  return static_cast<Handle*>(stream)->position;
}

template <typename Handle>
long seek_source(void*, void* stream, ZPOS64_T offset, int origin) {
  auto& handle = *static_cast<Handle*>(stream);
  if (origin == ZLIB_FILEFUNC_SEEK_CUR) offset += handle.position;
  if (origin == ZLIB_FILEFUNC_SEEK_END) offset += handle.source.size();
  if (offset > handle.source.size()) return -1;
  handle.position = offset;
  return 0;
}

uLong read_nothing(void*, void*, void*, uLong) {
  return 0;
}
uLong write_nothing(void*, void*, const void*, uLong) {
  return 0;
}
int no_error(void*, void*) {
  return 0;
}

uLong write_stream(void*, void* stream, const void* bytes, uLong count) {
  auto& out = *static_cast<std::ostream*>(stream);
  out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  return out.good() ? count : 0;
}

ZPOS64_T tell_stream(void*, void* stream) {
  return static_cast<ZPOS64_T>(static_cast<std::ostream*>(stream)->tellp());
}

long seek_stream(void*, void* stream, ZPOS64_T offset, int origin) {
  constexpr std::ios::seekdir kDirections[] = {std::ios::beg, std::ios::cur, std::ios::end};
  return static_cast<std::ostream*>(stream)->seekp(static_cast<std::streamoff>(offset), kDirections[origin]) ? 0 : -1;
}

int stream_error(void*, void* stream) {
  return static_cast<std::ostream*>(stream)->good() ? 0 : 1;
}

}  // namespace

ZipReader::ZipReader(const FileSource& source) : handle_(std::make_unique<Handle>(source)) {
  zlib_filefunc64_def functions{open_stream,         read_source<Handle>, write_nothing, tell_source<Handle>,
                                seek_source<Handle>, close_stream,        no_error,      handle_.get()};
  handle_->zip = unzOpen2_64("", &functions);
  require(handle_->zip != nullptr, "truncated: the directory at the end of the zip is missing; the file has ",
          source.size(), " bytes");
  std::string name(UINT16_MAX, '\0'), extra(UINT16_MAX, '\0');
  int status = unzGoToFirstFile(handle_->zip);
  for (; status == UNZ_OK; status = unzGoToNextFile(handle_->zip)) {
    unz_file_info64 info{};
    Handle::Entry entry{};
    status =
        unzGetCurrentFileInfo64(handle_->zip, &info, name.data(), name.size(), extra.data(), extra.size(), nullptr, 0);
    if (status == UNZ_OK) status = unzGetFilePos64(handle_->zip, &entry.place);
    require(status == UNZ_OK, "the directory of the zip is damaged");
    widen(extra.substr(0, info.size_file_extra), info, entry.header);
    entry.compressed_size = info.compressed_size;
    entry.method = info.compression_method;
    const std::string key = name.substr(0, info.size_filename);
    require((info.flag & 1) == 0, "record ", InQuotes(key), " is encrypted");
    require(sizes_.emplace(key, info.uncompressed_size).second, "the zip has two records ", InQuotes(key));
    handle_->entries[key] = entry;
  }
  require(status == UNZ_END_OF_LIST_OF_FILE, "the directory of the zip is damaged");
}

ZipReader::~ZipReader() = default;

std::uint64_t ZipReader::begin(const std::string& name) const {
  const auto found = handle_->entries.find(name);
  require(found != handle_->entries.end(), "the zip has no record ", InQuotes(name));
  Handle::Entry& entry = found->second;
  std::uint64_t begin = 0;
  if (entry.header == kNotGiven) {
    const bool opened =
        unzGoToFilePos64(handle_->zip, &entry.place) == UNZ_OK && unzOpenCurrentFile(handle_->zip) == UNZ_OK;
    require(opened, "record ", InQuotes(name), " of the zip is damaged");
    begin = unzGetCurrentFileZStreamPos64(handle_->zip);
    unzCloseCurrentFile(handle_->zip);
  } else {
    std::string header(30, '\0');
    handle_->source.read(entry.header, header.data(), header.size());
    require(header.starts_with("PK\3\4"), "record ", InQuotes(name), " of the zip is damaged");
    begin = entry.header + header.size() + number_at<std::uint16_t>(header, 26) + number_at<std::uint16_t>(header, 28);
  }
  const std::uint64_t total = handle_->source.size();
  require(begin <= total && entry.compressed_size <= total - begin, "truncated: record ", InQuotes(name), " has ",
          entry.compressed_size, " bytes from byte ", begin, ", the file has ", total);
  return begin;
}

std::uint64_t ZipReader::offset(const std::string& name) const {
  const std::uint64_t offset = begin(name);
  const Handle::Entry& entry = handle_->entries.at(name);
  require(entry.method == kStored, "record ", InQuotes(name), " is compressed; PyTorch stores tensors uncompressed");
  require(entry.compressed_size == sizes_.at(name), "record ", InQuotes(name), " of the zip is damaged");
  return offset;
}

std::string ZipReader::read(const std::string& name, std::uint64_t limit) const {
  const std::uint64_t offset = begin(name);
  const Handle::Entry& entry = handle_->entries.at(name);
  const std::uint64_t size = sizes_.at(name);
  require(size <= limit && entry.compressed_size <= limit, "record ", InQuotes(name), " has ", size, " bytes; at most ",
          limit, " are read");
  // Checksums are not looked at: torch.serialization.set_crc32_options lets people save without them.
  std::string bytes(static_cast<std::size_t>(entry.compressed_size), '\0');
  handle_->source.read(offset, bytes.data(), bytes.size());
  if (entry.method != kStored) bytes = inflated(bytes, size);
  require(bytes.size() == size, "record ", InQuotes(name), " of the zip is damaged");
  return bytes;
}

ZipWriter::ZipWriter(std::ostream& stream) : stream_(stream) {
  zlib_filefunc64_def functions{open_stream, read_nothing, write_stream, tell_stream,
                                seek_stream, close_stream, stream_error, &stream};
  zip_ = zipOpen2_64("", APPEND_STATUS_CREATE, nullptr, &functions);
  require(zip_ != nullptr, "cannot begin the zip");
}

ZipWriter::~ZipWriter() {
  if (zip_ != nullptr) zipClose(zip_, nullptr);
}

void ZipWriter::add(const std::string& name, const void* bytes, std::uint64_t size) {
  const bool zip64 = size >= UINT32_MAX;
  constexpr std::uint64_t kHeader = 30, kFieldHeader = 4, kZip64Field = 20;
  const std::uint64_t before =
      static_cast<std::uint64_t>(stream_.tellp()) + kHeader + name.size() + kFieldHeader + (zip64 ? kZip64Field : 0);
  const std::uint64_t padding = (kAlignment - before % kAlignment) % kAlignment;
  std::string field{'F', 'B', static_cast<char>(padding), '\0'};
  field.append(padding, '\0');
  zip_fileinfo info{};
  info.tmz_date.tm_year = 1980;  // the first that a zip can hold: equal tensors give equal bytes
  info.tmz_date.tm_mday = 1;
  int status = zipOpenNewFileInZip2_64(zip_, name.c_str(), &info, field.data(), static_cast<uInt>(field.size()),
                                       nullptr, 0, nullptr, kStored, 0, 0, zip64);
  const auto* next = static_cast<const char*>(bytes);
  while (status == ZIP_OK && size > 0) {
    const auto count = static_cast<unsigned>(std::min<std::uint64_t>(size, 1 << 30));
    status = zipWriteInFileInZip(zip_, next, count);
    next += count;
    size -= count;
  }
  if (status == ZIP_OK) status = zipCloseFileInZip(zip_);
  require(status == ZIP_OK && stream_.good(), "cannot write record ", InQuotes(name));
}

void ZipWriter::finish() {
  const int status = zipClose(std::exchange(zip_, nullptr), nullptr);
  require(status == ZIP_OK && stream_.good(), "cannot write the directory of the zip");
}

}  // namespace prenorm
