// What tests/python/tensor_file.py asks of the library:
//   tensor_file_tool list FILE [ENTRY]      kind, left-out entries, then a tensor a line
//   tensor_file_tool copy FILE COPY         as .pt or safetensors, by the name of the copy
#include <cstring>
#include <iostream>
#include <map>

#include "prenorm/error.h"
#include "prenorm/tensor_file/tensor_file.h"

using namespace prenorm;

namespace {

void list(const TensorFile& file) {
  const char* kinds[] = {"safetensors", "state_dict", "cpp_archive", "torchscript", "frozen_torchscript"};
  std::cout << "kind " << kinds[static_cast<int>(file.kind())] << "\n";
  for (const std::string& name : file.skipped()) std::cout << "skipped " << name << "\n";
  for (const auto& [key, value] : file.metadata()) std::cout << "metadata " << key << " " << value << "\n";
  for (const TensorInfo& info : file.tensors()) {
    std::cout << "tensor " << info.name << " " << dtype_name(info.dtype);
    for (const std::int64_t size : info.shape) std::cout << " " << size;
    std::cout << "\n";
  }
}

void copy(const TensorFile& file, const std::filesystem::path& path) {
  std::map<std::string, std::vector<char>> elements;
  std::vector<TensorView> views;
  for (const TensorInfo& info : file.tensors()) {
    const void* data = nullptr;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (file.tensors()[i].same_elements(info)) data = views[i].data;
    }
    if (data == nullptr) {
      auto& bytes = elements[info.name];
      bytes.resize(nbytes(info.dtype, info.shape));
      file.read(info, bytes.data(), bytes.size());
      data = bytes.data();
    }
    views.push_back({info.name, info.dtype, info.shape, data});
  }
  if (path.extension() == ".pt") {
    write_pt(path, views);
  } else {
    write_safetensors(path, views, file.metadata());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if ((argc == 3 || argc == 4) && std::strcmp(argv[1], "list") == 0) {
      list(TensorFile::open(argv[2], argc == 4 ? argv[3] : ""));
    } else if (argc == 4 && std::strcmp(argv[1], "copy") == 0) {
      copy(TensorFile::open(argv[2]), argv[3]);
    } else {
      return 2;
    }
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
