#include "prenorm/tensor_file/tensor_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <random>

#include "catch.h"
#include "folder.h"
#include "prenorm/error.h"
#include "prenorm/file.h"
#include "prenorm/tensor_file/zip.h"
#include "throws.h"

namespace tensor_file_test {

namespace fs = std::filesystem;
using namespace prenorm;
using namespace std::string_literals;

namespace {

/// A folder of its own for each test case, removed at its end.
template <typename Number>
std::string bytes_of(std::initializer_list<Number> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(Number)};
}

std::string safetensors(const std::string& header, std::size_t data_bytes) {
  return bytes_of<std::uint64_t>({header.size()}) + header + std::string(data_bytes, '\0');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

/// A zip as torch.save writes it, around this pickle.
fs::path pt_file(const Folder& folder, const std::string& pickle, const std::string& storage = {}) {
  std::ofstream stream(folder.path / "a.pt", std::ios::binary);
  ZipWriter zip(stream);
  zip.add("a/data.pkl", pickle.data(), pickle.size());
  zip.add("a/data/0", storage.data(), storage.size());
  zip.finish();
  return folder.path / "a.pt";
}

/// The pickle of torch.FloatStorage "0" and of `_rebuild_tensor_v2` around it.
std::string float_tensor(const std::string& offset_shape_strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
         "0X\x03\0\0\0cpuK\x06tQ"s +
         offset_shape_strides + "\x89}tR";
}

/// The message without the path at its start.
std::string error_of(const fs::path& path) {
  const std::string message = message_of<Error>([&] { TensorFile::open(path); });
  const std::string start = path.string() + ": ";
  CHECK(message.substr(0, start.size()) == start);
  CHECK(message.find('\n') == std::string::npos);
  return message.size() < start.size() ? message : message.substr(start.size());
}

template <typename Number>
std::vector<Number> read(const TensorFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  REQUIRE(info != nullptr);
  std::vector<Number> values(static_cast<std::size_t>(numel(info->shape)));
  file.read(*info, values.data(), values.size() * sizeof(Number));
  return values;
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.substr(0, start.size()) == start;
}

}  // namespace

TEST_CASE("element types are those of the safetensors reference") {
  const std::vector<std::pair<std::string, int>> reference{
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto dtype = find_dtype(reference[i].first);
    REQUIRE(dtype.has_value());
    CHECK(static_cast<std::size_t>(*dtype) == i);
    CHECK(dtype_name(*dtype) == reference[i].first);
    CHECK(dtype_bits(*dtype) == reference[i].second);
  }
  CHECK_FALSE(find_dtype("F128").has_value());
  CHECK(numel({}) == 1);
  CHECK(numel({0, 768}) == 0);
  CHECK(nbytes(Dtype::F4, {3, 2}) == 3);
  CHECK(message_of<Error>([] { nbytes(Dtype::F4, {3}); }) == "F4 of shape [3] does not end at a whole byte");
  CHECK(message_of<Error>([] { numel({2, -1}); }) == "shape [2, -1] has a negative size");
  CHECK(message_of<Error>([] { numel({1LL << 32, 1LL << 31}); }) == "shape [4294967296, 2147483648] overflows 64 bits");
}

TEST_CASE("a safetensors file is read") {
  const Folder folder;
  // In the file "b" stands first, though the header names it last; the field "extra" is passed over.
  const std::string header = R"({"__metadata__":{"format":"pt"},)" + tensor("a\\u00e9", "F32", "[2,1]", "[8,16]") +
                             "," + R"("b":{"dtype":"I64","extra":[{"x":1}],"shape":[],"data_offsets":[0,8]},)" +
                             tensor("empty", "F16", "[0,768]", "[8,8]") + "}   ";
  const auto path = folder.write("x", bytes_of<std::uint64_t>({header.size()}) + header + bytes_of<std::int64_t>({-5}) +
                                          bytes_of<float>({1.5F, -2.0F}));
  const auto file = TensorFile::open(path);
  CHECK(file.kind() == TensorFile::Kind::safetensors);
  CHECK(file.files() == std::vector{path});
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name == "b");
  CHECK(file.tensors()[0].begin == 8 + header.size());
  CHECK(file.tensors()[1].name == "empty");
  CHECK(file.tensors()[1].shape == std::vector<std::int64_t>{0, 768});
  CHECK(read<std::int64_t>(file, "b") == std::vector<std::int64_t>{-5});
  CHECK(read<float>(file, "a\u00e9") == std::vector{1.5F, -2.0F});
  CHECK(file.find("c") == nullptr);
  char room[4];
  CHECK(message_of<Error>([&] { file.read(file.tensors()[0], room, 4); }) ==
        path.string() + ": tensor \"b\" has 8 bytes, room is given for 4");
  CHECK(TensorFile::open(folder.write("y", safetensors("{}", 0))).tensors().empty());
}

TEST_CASE("a safetensors file that breaks a rule is refused") {
  const Folder folder;
  const auto error = [&](const std::string& header, std::size_t data_bytes) {
    return error_of(folder.write("x.safetensors", safetensors(header, data_bytes)));
  };
  const std::string a = tensor("a", "F32", "[2]", "[0,8]");
  const std::string bad = "bad safetensors header: ";
  CHECK(error("{" + a + "," + a + "}", 8) == bad + "duplicate key \"a\" in the header");
  CHECK(error(R"({"__metadata__":{"x":"1","x":"2"}})", 0) == bad + "duplicate key \"x\" in __metadata__");
  CHECK(error(R"({"__metadata__":{},"__metadata__":{}})", 0) == bad + "duplicate key \"__metadata__\" in the header");
  CHECK(error(R"({"__metadata__":{"x":1}})", 0) == bad + "__metadata__: \"x\" is 1, not a string");
  CHECK(error(R"({"a":3})", 0) == bad + "\"a\" is 3, not an object");
  CHECK(error(R"({"a":{"dtype":"F32","shape":[2]}})", 8) == bad + "tensor \"a\" has no data_offsets");
  CHECK(error("{" + tensor("a", "F128", "[2]", "[0,8]") + "}", 8) ==
        bad + "tensor \"a\" has the unknown dtype \"F128\"");
  CHECK(error("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8) ==
        bad + "tensor \"a\": shape holds -2, not numbers from 0 to 2^63");
  CHECK(error("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8) ==
        bad + "tensor \"a\": shape holds 2.0, not numbers from 0 to 2^63");
  CHECK(error("{" + tensor("a", "F32", "[9223372036854775808]", "[0,8]") + "}", 8) ==
        bad + "tensor \"a\": shape holds 9223372036854775808, not numbers from 0 to 2^63");
  CHECK(error("{" + tensor("a", "F32", "[2]", "[0]") + "}", 8) ==
        bad + "tensor \"a\": data_offsets has 1 numbers, not 2");
  CHECK(error("{" + a, 8) == bad + "not valid JSON at byte " + std::to_string(a.size() + 2));
  CHECK(starts_with(error("{" + a + "} x", 8), bad + "not valid JSON at byte "));
  CHECK(starts_with(error("{\"\xff\":1}", 8), bad + "not valid JSON at byte "));
  CHECK(error("{" + a + "}\0"s, 8) == bad + "holds a zero byte in its JSON text");
  CHECK(error(" {" + a + "}", 8) ==
        "is no weights file: not a zip, and as safetensors its header would not start with {");

  CHECK(error("{" + tensor("a", "F32", "[2]", "[4,12]") + "}", 12) ==
        "tensor \"a\" begins at 4, after a hole; 0 is expected");
  CHECK(error("{" + a + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12) ==
        "tensor \"b\" begins at 4, inside another tensor; 8 is expected");
  CHECK(error("{" + tensor("a", "F32", "[2]", "[8,0]") + "}", 8) == "tensor \"a\" ends at 0, before it begins at 8");
  CHECK(error("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8) ==
        "tensor \"a\" of dtype F32 and shape [3] needs 12 bytes, data_offsets give it 8");
  CHECK(error("{" + tensor("a", "F4", "[3]", "[0,1]") + "}", 1) ==
        "tensor \"a\": F4 of shape [3] does not end at a whole byte");
  CHECK(error("{" + tensor("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}", 8) ==
        "tensor \"a\": shape [4294967296, 4294967296] overflows 64 bits");
  CHECK(error("{" + tensor("a", "F32", "[4611686018427387904]", "[0,0]") + "}", 0) ==
        "tensor \"a\": F32 of shape [4611686018427387904] overflows 64 bits");
  CHECK(error("{" + a + "}", 9) == "1 bytes follow the last tensor");
  const std::size_t begin = 8 + a.size() + 2;
  CHECK(error("{" + a + "}", 5) == "truncated: " + std::to_string(begin + 8) + " bytes are expected, the file has " +
                                       std::to_string(begin + 5) + "; tensor \"a\" ends beyond it");
}

TEST_CASE("what is no weights file is called by its name") {
  const Folder folder;
  const auto error = [&](const std::string& bytes) { return error_of(folder.write("x.safetensors", bytes)); };
  CHECK(error("") == "is empty (0 bytes)");
  CHECK(error("1234") == "has 4 bytes, too few for a weights file");
  CHECK(error("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 548105171\n") ==
        "is a Git LFS pointer, not the weights themselves (git lfs pull fetches them)");
  CHECK(error("\n <!DOCTYPE html><html>") == "is an HTML page, not weights (a download that went wrong?)");
  CHECK(error("<HTML lang=en>") == "is an HTML page, not weights (a download that went wrong?)");
  CHECK(error("GGUF\3\0\0\0and more"s) == "is a GGUF file; safetensors and PyTorch files are read");
  CHECK(error("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.") ==
        "is a legacy (non-zip) PyTorch pickle; load it in Python and torch.save it again");
  CHECK(error("\x80\x04\x95\x05\0\0\0\0\0\0\0]."s) ==
        "is a Python pickle, not a file of torch.save; load it in Python and torch.save its state dict");
  CHECK(error("\xff\xff\xff\xff\xff\xff\xff\x7f{}") ==
        "is no weights file: not a zip, and as safetensors its header length would be 9223372036854775807 (at most "
        "100000000)");
  CHECK(error("\x01\xe1\xf5\x05\0\0\0\0{}"s) ==
        "is no weights file: not a zip, and as safetensors its header length would be 100000001 (at most 100000000)");
  CHECK(error(bytes_of<std::uint64_t>({1000}) + "{" + std::string(99, ' ')) ==
        "truncated: the header ends at byte 1008, the file has 108");
  CHECK(error("{\"model_type\": \"gpt2\"}") == "is a JSON file without a weight_map, no index of a sharded checkpoint");
  std::string garbage;
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) garbage += static_cast<char>(random());
  CHECK(starts_with(error(garbage), "is no weights file: "));
  CHECK(starts_with(error_of(folder.path / "missing.safetensors"), "no such file"));
  CHECK(starts_with(error_of(folder.path), "the folder holds no model.safetensors"));
  REQUIRE(::mkfifo((folder.path / "pipe").c_str(), 0600) == 0);
  CHECK(error_of(folder.path / "pipe") == "is not a regular file");
}

TEST_CASE("a sharded checkpoint is one file to its reader") {
  const Folder folder;
  const std::string first = "model_00001-of-00002.safetensors", second = "model_00002-of-00002.safetensors";
  const auto index = [&](const std::string& weight_map) {
    return folder.write("model.safetensors.index.json",
                        "\xEF\xBB\xBF\n{\"metadata\":{\"total_size\":20},\"weight_map\":{" + weight_map + "}}");
  };
  const std::string map = "\"b\":\"" + second + "\",\"a\":\"" + first + "\"";
  folder.write(first, safetensors("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 8));
  index(map);
  CHECK(error_of(folder.path / "model.safetensors.index.json") ==
        "names the shard \"" + second + "\", which is missing");
  const std::string too_long(300, 's');
  index("\"a\":\"" + too_long + "\"");
  CHECK(error_of(folder.path / "model.safetensors.index.json").find("which is missing") != std::string::npos);
  index(map);

  const std::string replica = tensor("a", "F32", "[2]", "[4,12]") + "," + tensor("c", "U8", "[1]", "[12,13]");
  folder.write(second, safetensors("{" + tensor("b", "F32", "[1]", "[0,4]") + "," + replica + "}", 13));
  const auto message = message_of<Error>([&] { TensorFile::open(folder.path); });
  CHECK(message.empty());
  const auto file = TensorFile::open(folder.path);
  CHECK(file.files() == std::vector{folder.path / first, folder.path / second});
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.find("a")->file == 0);
  CHECK(file.find("b")->file == 1);
  CHECK(read<float>(file, "b") == std::vector{0.0F});
  CHECK(file.metadata().at("total_size") == "20");
  CHECK(file.skipped() == std::vector<std::string>{"a in " + second, "c in " + second});

  const auto error = [&](const std::string& weight_map) { return error_of(index(weight_map)); };
  CHECK(error(map + ",\"d\":\"" + first + "\"") == "the shard \"" + first + "\" does not hold the tensor \"d\"");
  CHECK(error("},\"weight_map\":{" + map) == "duplicate key \"weight_map\"");
  CHECK(error(map + "," + map) == "weight_map has \"b\" twice");
  CHECK(error("\"a\":\"../x\"") == "weight_map gives \"a\" the shard \"../x\", not a file beside the index");
  CHECK(error("\"a\":\"/x\"") == "weight_map gives \"a\" the shard \"/x\", not a file beside the index");
  CHECK(error("\"a\":7") == "weight_map gives \"a\" the value 7, not a file name");
  CHECK(error("\"a\":\"\"") == "weight_map gives \"a\" the shard \"\", not a file beside the index");
  CHECK(starts_with(error("\"a\""), "not valid JSON at byte "));
  folder.write(first, safetensors("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 7));
  CHECK(starts_with(error(map), "shard \"" + first + "\": truncated: "));
}

TEST_CASE("the bytes of a written safetensors file are those of the reference") {
  const Folder folder;
  const float one[] = {1, 2, 3};
  const std::int64_t count = 7;
  const std::uint8_t byte = 9;
  const auto path = folder.path / "x.safetensors";
  write_safetensors(path,
                    {{"z", Dtype::U8, {1}, &byte},
                     {"head", Dtype::F32, {3}, one},
                     {"n", Dtype::I64, {}, &count},
                     {"embed", Dtype::F32, {3}, one},
                     {"e", Dtype::F32, {0, 2}, nullptr}},
                    {{"format", "pt"}});
  // What Python's safetensors 0.8 writes for these, "head" being tied to "embed".
  std::string header = R"({"__metadata__":{"format":"pt","head":"embed"},)" + tensor("n", "I64", "[]", "[0,8]") + "," +
                       tensor("e", "F32", "[0,2]", "[8,8]") + "," + tensor("embed", "F32", "[3]", "[8,20]") + "," +
                       tensor("z", "U8", "[1]", "[20,21]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(read_file(path) == bytes_of<std::uint64_t>({header.size()}) + header + bytes_of<std::int64_t>({7}) +
                               bytes_of<float>({1, 2, 3}) + "\x09");
  CHECK(TensorFile::open(path).metadata().at("head") == "embed");
}

TEST_CASE("a write that fails leaves the old file") {
  const Folder folder;
  const float value = 1;
  const auto path = folder.write("x", "old");
  using Write = void (*)(const fs::path&, const std::vector<TensorView>&, const FetchElements&);
  const Write writers[] = {write_pt, [](const auto& file, const auto& tensors, const auto& fetch) {
                             write_safetensors(file, tensors, {}, fetch);
                           }};
  for (const Write write : writers) {
    const auto error = [&](const std::vector<TensorView>& tensors) {
      const std::string start = "cannot write " + path.string() + ": ";
      const std::string message = message_of<Error>([&] { write(path, tensors, {}); });
      CHECK(starts_with(message, start));
      CHECK(read_file(path) == "old");
      return message.substr(std::min(start.size(), message.size()));
    };
    const TensorView a{"a", Dtype::F32, {}, &value};
    CHECK(error({a, a}) == "two tensors are named \"a\"");
    CHECK(error({{"__metadata__", Dtype::F32, {}, &value}}) == "a tensor cannot be named \"__metadata__\"");
    CHECK(error({{"a", Dtype::F32, {1}, nullptr}}) == "tensor \"a\": has no data");
    CHECK(error({{"a", Dtype::F32, {-1}, &value}}) == "tensor \"a\": shape [-1] has a negative size");
    CHECK(starts_with(error({{"\xff", Dtype::F32, {}, &value}}), "the name "));

    const auto interrupted = [](const TensorView&) -> const void* { throw std::runtime_error("no more"); };
    CHECK(message_of<std::runtime_error>([&] { write(path, {a}, interrupted); }) == "no more");
    CHECK(read_file(path) == "old");
    CHECK_THROWS_AS(write(folder.path / "missing" / "x", {a}, {}), Error);
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);

    // Another copy of the elements may be given than the one that identifies them.
    const float other = 2;
    write(folder.path / "y", {a}, [&](const TensorView&) { return &other; });
    CHECK(read<float>(TensorFile::open(folder.path / "y"), "a") == std::vector{2.0F});
    fs::remove(folder.path / "y");
  }
  CHECK(message_of<Error>([&] {
          write_pt(path, {{"a", Dtype::F4, {2}, &value}});
        }) == "cannot write " + path.string() + ": tensor \"a\": PyTorch has no F4");
}

TEST_CASE("a .pt file is written and read") {
  const Folder folder;
  const float values[] = {1, 2, 3, 4, 5, 6};
  const std::uint16_t odd[] = {65535};
  const auto path = folder.path / "x.pt";
  write_pt(path, {{"head", Dtype::F32, {2, 3}, values},
                  {"empty", Dtype::F64, {0, 5}, nullptr},
                  {"u", Dtype::U16, {}, odd},
                  {"embed", Dtype::F32, {2, 3}, values}});
  const auto file = TensorFile::open(path);
  CHECK(file.kind() == TensorFile::Kind::state_dict);
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.tensors()[0].name == "head");
  CHECK(file.tensors()[0].begin % 64 == 0);
  CHECK(file.find("head")->same_elements(*file.find("embed")));
  CHECK_FALSE(file.find("head")->same_elements(*file.find("empty")));
  CHECK(file.find("empty")->shape == std::vector<std::int64_t>{0, 5});
  CHECK(read<float>(file, "embed") == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(read<std::uint16_t>(file, "u") == std::vector<std::uint16_t>{65535});

  const std::vector<float> large(1 << 16, 1.0F);
  write_pt(path, {{"large", Dtype::F32, {1 << 16}, large.data()}});
  fs::resize_file(path, fs::file_size(path) / 2);
  CHECK(error_of(path).find("truncated: at least 262") == 0);
}

TEST_CASE("tensors of a .pt file may be views") {
  const Folder folder;
  const std::string storage = bytes_of<float>({0, 1, 2, 3, 4, 5});
  const auto open = [&](const std::string& view) {
    return TensorFile::open(pt_file(folder, "\x80\x02}X\x01\0\0\0a"s + float_tensor(view) + "s.", storage));
  };
  CHECK(read<float>(open("K\0K\x02K\x03\x86K\x03K\x01\x86"s), "a") == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(read<float>(open("K\0K\x03K\x02\x86K\x01K\x03\x86"s), "a") == std::vector<float>{0, 3, 1, 4, 2, 5});  // .t()
  CHECK(read<float>(open("K\x01K\x03\x85K\x02\x85"s), "a") == std::vector<float>{1, 3, 5});                   // [1::2]
  CHECK(read<float>(open("K\x02K\x02K\x02\x86K\0K\x01\x86"s), "a") == std::vector<float>{2, 3, 2, 3});        // expand
  CHECK(read<float>(open("K\x05))"s), "a") == std::vector<float>{5});                                         // scalar
  const auto error = [&](const std::string& view) { return message_of<Error>([&] { open(view); }); };
  CHECK(error("K\x01K\x02K\x03\x86K\x03K\x01\x86")
            .find("tensor \"a\": its elements of shape [2, 3], offset 1 and strides "
                  "[3, 1] go beyond its storage of 24 bytes") != std::string::npos);
  CHECK(error("J\xff\xff\xff\xffK\x01\x85K\x01\x85").find("go beyond its storage") != std::string::npos);
  CHECK(error("K\0J\xff\xff\xff\xff\x85K\x01\x85"s).find("size -1 is negative") != std::string::npos);
  CHECK(error("K\0J\xff\xff\xff\x7f\x85K\0\x85"s).find("repeats a storage of 24 bytes") != std::string::npos);
  CHECK(error("K\0K\x02\x85)"s).find("1 sizes and 0 strides") != std::string::npos);
}

TEST_CASE("a pickle is not executed, and what it asks for is named") {
  const Folder folder;
  const auto error = [&](const std::string& pickle) { return error_of(pt_file(folder, pickle)); };
  CHECK(error("\x80\x02"
              "cos\nsystem\nX\x04\0\0\0true\x85R."s) ==
        "refuses \"os.system\": only tensors and plain Python values are read, nothing is executed");
  CHECK(error("\x80\x04\x8c\x05posix\x8c\x06system\x93X\x04\0\0\0true\x85R."s).find("refuses \"posix.system\"") == 0);
  CHECK(error("\x80\x02"
              "cbuiltins\neval\n.")
            .find("refuses \"builtins.eval\"") == 0);
  CHECK(error("\x80\x02"
              "ctorch\nload\n.")
            .find("refuses \"torch.load\"") == 0);
  CHECK(error("\x80\x02"
              "c__main__\nNet\nq\0)\x81}b."s) ==
        "is a whole pickled module or object (class \"__main__.Net\"); save model.state_dict() instead of the model");
  CHECK(error("\x80\x02}X\x05\0\0\0modelctorch.nn.modules.linear\nLinear\n)\x81}bs."s)
            .find("is a whole pickled module or object under \"model\" (class \"torch.nn.modules.linear.Linear\")") ==
        0);
  CHECK(error("\x80\x02}.") == "holds no state dict: there are no tensors under its keys (it has none)");
  CHECK(error("\x80\x02}X\x05\0\0\0epochK\x01s."s) ==
        "holds no state dict: there are no tensors under its keys \"epoch\"");
  CHECK(error("\x80\x02].") == "holds no state dict but another Python value; save a dict of names and tensors");
  CHECK(error("\x80\x02]") == "the pickle is cut off at byte 3");
  CHECK(error("\x80\x02(lp0\n.") == "the pickle holds the operation 0x70, which is not read");
  CHECK(error("\x80\x02s.") == "the pickle takes a value that is not there");
  CHECK(error("\x80\x02h\x05.") == "the pickle recalls a value that it did not store");

  std::ofstream stream(folder.path / "x.npz", std::ios::binary);
  ZipWriter zip(stream);
  zip.add("weight.npy", "1", 1);
  zip.finish();
  stream.close();
  CHECK(error_of(folder.path / "x.npz") ==
        "is a zip without data.pkl, not written by PyTorch (it holds \"weight.npy\")");
}

TEST_CASE("objects beside a state dict stay what they are, and a hostile pickle stays small") {
  const Folder folder;
  const std::string state = "}X\x01\0\0\0a"s + float_tensor("K\0K\x02\x85K\x01\x85"s) + "s";
  const std::string system = "cos\nsystem\nX\x04\0\0\0true\x85R"s;
  const auto open = [&](const std::string& pickle) {
    return TensorFile::open(pt_file(folder, "\x80\x02" + pickle + ".", bytes_of<float>({1, 2})));
  };
  const auto file = open("}(X\x03\0\0\0net"s + state + "X\x04\0\0\0rest"s + system + "u");
  CHECK(file.skipped() == std::vector<std::string>{"rest"});
  CHECK(read<float>(file, "a") == std::vector<float>{1, 2});
  // A dict of a class of its own, made with keyword arguments, filled and given a state.
  CHECK(open("}(X\x03\0\0\0net"s + state + "X\x04\0\0\0restcx\nDict\n)}\x92(X\x01\0\0\0kK\x01u}bu"s).skipped().size() ==
        1);
  const auto error = [&](const std::string& pickle) {
    return error_of(pt_file(folder, "\x80\x02" + pickle + ".", bytes_of<float>({1})));
  };
  CHECK(error("}(X\x03\0\0\0net}(X\x01\0\0\0a"s + float_tensor("K\0))"s) + "X\x04\0\0\0rest"s + system + "uu") ==
        "refuses \"os.system\" under \"net.rest\": only tensors and plain Python values are read, nothing is executed");
  // One long name again and again.
  CHECK(error("c" + std::string(10000, 'm') + "\nf\n") == "the pickle holds a global of more than 10000 bytes");
}

TEST_CASE("LibTorch's own archive is read, with the paths of its parameters") {
  // torch::save (2.13) of a module with a parameter, a buffer, a Linear and a Sequential; parameters count up from 0.
  const auto file = TensorFile::open(fs::path(PRENORM_TEST_DATA) / "tensor_file" / "cpp_archive.pt");
  CHECK(file.kind() == TensorFile::Kind::cpp_archive);
  std::vector<std::string> names;
  for (const TensorInfo& info : file.tensors()) names.push_back(info.name);
  CHECK(names == std::vector<std::string>{"scale", "steps", "first.weight", "first.bias", "layers.0.weight",
                                          "layers.0.bias", "layers.1.weight"});
  CHECK(read<float>(file, "scale") == std::vector<float>{0});
  CHECK(read<std::int64_t>(file, "steps") == std::vector<std::int64_t>{7, 8});
  CHECK(file.find("first.weight")->shape == std::vector<std::int64_t>{2, 3});
  CHECK(read<float>(file, "first.weight") == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(read<float>(file, "layers.1.weight") == std::vector<float>{13, 14});
}

TEST_CASE("a damaged file gives an Error and nothing else") {
  const Folder folder;
  const float values[] = {1, 2, 3, 4, 5, 6};
  const auto a = folder.path / "a.safetensors", b = folder.path / "b.pt";
  const std::vector<TensorView> tensors{{"embed", Dtype::F32, {2, 3}, values},
                                        {"layers.0.bias", Dtype::BF16, {4}, values},
                                        {"head", Dtype::F32, {2, 3}, values},
                                        {"n", Dtype::U16, {}, values}};
  write_safetensors(a, tensors, {{"format", "pt"}});
  write_pt(b, tensors);
  const std::string originals[] = {read_file(a), read_file(b),
                                   read_file(fs::path(PRENORM_TEST_DATA) / "tensor_file" / "cpp_archive.pt")};
#ifndef __SANITIZE_ADDRESS__
  // Room for all that is right; a size that is believed unseen would ask for more.
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  rlimit tight = before;
  tight.rlim_cur = rlim_t{2} << 30;
  ::setrlimit(RLIMIT_AS, &tight);
#endif
  std::mt19937 random(20);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  int opened = 0, refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string bytes = originals[i % 3];
    for (std::size_t changes = 1 + below(3); changes > 0 && !bytes.empty(); --changes) {
      const std::size_t at = below(bytes.size());
      switch (below(6)) {
        case 0:
          bytes.resize(std::max<std::size_t>(at, 1));
          break;
        case 1:
          bytes[at] = static_cast<char>(random());
          break;
        case 2:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 3:
          bytes[at] = static_cast<char>(below(2) ? 0xff : 0);
          break;
        case 4:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(40)));
          break;
        default:
          bytes.erase(at, below(20));
          break;
      }
    }
    fs::remove(folder.path / "damaged");  // some file systems wait for the disk when a file is written over
    const auto path = folder.write("damaged", bytes);
    try {
      const auto file = TensorFile::open(path);
      for (const TensorInfo& info : file.tensors()) {
        std::vector<char> room(nbytes(info.dtype, info.shape));
        file.read(info, room.data(), room.size());
      }
      ++opened;
    } catch (const Error& error) {
      ++refused;
      if (std::string(error.what()).find_first_of("\n\r") != std::string::npos) FAIL(error.what());
    }
  }
#ifndef __SANITIZE_ADDRESS__
  ::setrlimit(RLIMIT_AS, &before);
#endif
  CHECK(opened > 100);
  CHECK(refused > 1000);
}

}  // namespace tensor_file_test
