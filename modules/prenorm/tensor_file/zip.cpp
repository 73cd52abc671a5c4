#include "prenorm/tensor_file/zip.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "prenorm/error.h"
#include "prenorm/tensor_file/text.h"

namespace prenorm {

struct ZipReader::Handle {
  explicit Handle(const FileSource& file) : source(file) {}
  ~Handle() {
    if (zip != nullptr) unzClose(zip);
  }

  const FileSource& source;
  std::uint64_t position = 0;
  unzFile zip = nullptr;
  std::map<std::string, unz64_file_pos> places = {};
};

namespace {

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
  std::string name(UINT16_MAX, '\0');
  int status = unzGoToFirstFile(handle_->zip);
  for (; status == UNZ_OK; status = unzGoToNextFile(handle_->zip)) {
    unz_file_info64 info{};
    status = unzGetCurrentFileInfo64(handle_->zip, &info, name.data(), name.size(), nullptr, 0, nullptr, 0);
    unz64_file_pos place{};
    if (status == UNZ_OK) status = unzGetFilePos64(handle_->zip, &place);
    require(status == UNZ_OK, "the directory of the zip is damaged");
    const std::string key = name.substr(0, info.size_filename);
    require((info.flag & 1) == 0, "record ", in_quotes(key), " is encrypted");
    require(sizes_.emplace(key, info.uncompressed_size).second, "the zip has two records ", in_quotes(key));
    handle_->places[key] = place;
  }
  require(status == UNZ_END_OF_LIST_OF_FILE, "the directory of the zip is damaged");
}

ZipReader::~ZipReader() = default;

void ZipReader::open_record(const std::string& name) const {
  const auto entry = handle_->places.find(name);
  require(entry != handle_->places.end(), "the zip has no record ", in_quotes(name));
  const bool opened =
      unzGoToFilePos64(handle_->zip, &entry->second) == UNZ_OK && unzOpenCurrentFile(handle_->zip) == UNZ_OK;
  require(opened, "record ", in_quotes(name), " of the zip is damaged");
}

std::uint64_t ZipReader::offset(const std::string& name) const {
  open_record(name);
  const std::uint64_t begin = unzGetCurrentFileZStreamPos64(handle_->zip);
  unzCloseCurrentFile(handle_->zip);
  unz_file_info64 info{};
  unzGetCurrentFileInfo64(handle_->zip, &info, nullptr, 0, nullptr, 0, nullptr, 0);
  require(info.compression_method == kStored, "record ", in_quotes(name),
          " is compressed; PyTorch stores tensors uncompressed");
  const std::uint64_t size = sizes_.at(name);
  const std::uint64_t total = handle_->source.size();
  require(begin <= total && size <= total - begin, "truncated: record ", in_quotes(name), " has ", size,
          " bytes from byte ", begin, ", the file has ", total);
  return begin;
}

std::string ZipReader::read(const std::string& name, std::uint64_t limit) const {
  open_record(name);
  std::string bytes;
  // A small compressed record may claim any size: room grows with what comes out.
  std::string piece(1 << 16, '\0');
  int got = 0;
  while (bytes.size() <= limit && (got = unzReadCurrentFile(handle_->zip, piece.data(), 1 << 16)) > 0) {
    bytes.append(piece, 0, static_cast<std::size_t>(got));
  }
  // The checksum is not looked at: torch.serialization.set_crc32_options lets people save without one.
  unzCloseCurrentFile(handle_->zip);
  require(bytes.size() <= limit, "record ", in_quotes(name), " has more than ", limit, " bytes");
  require(got == 0 && bytes.size() == sizes_.at(name), "record ", in_quotes(name), " of the zip is damaged");
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
  require(status == ZIP_OK && stream_.good(), "cannot write record ", in_quotes(name));
}

void ZipWriter::finish() {
  const int status = zipClose(std::exchange(zip_, nullptr), nullptr);
  require(status == ZIP_OK && stream_.good(), "cannot write the directory of the zip");
}

}  // namespace prenorm
