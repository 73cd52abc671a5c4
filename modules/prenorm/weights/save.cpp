#include <unordered_map>
#include <utility>

#include "prenorm/tensor_file/tensor_file.h"
#include "prenorm/weights/state.h"
#include "prenorm/weights/weights.h"

namespace prenorm {

void save_weights(const torch::nn::Module& module, const std::filesystem::path& path, const Layout& layout) {
  detail::save_state(detail::state_entries(module), path, layout, {});
}

void detail::save_state(const std::vector<StateEntry>& entries, const std::filesystem::path& path, const Layout& layout,
                        std::map<std::string, std::string> metadata) {
  const std::string ending = path.extension().string();
  const bool safetensors = ending == ".safetensors";
  TORCH_CHECK(safetensors || ending == ".pt" || ending == ".pth" || ending == ".bin", path.string(),
              ": weights are written as .safetensors, .pt, .pth or .bin, not as \"", ending, "\"");
  const torch::NoGradGuard no_grad;
  std::vector<TensorView> views;
  std::unordered_map<std::string, Tensor> tensors;
  for (const auto& entry : entries) {
    const auto type = detail::file_type(entry.tensor.scalar_type());
    TORCH_CHECK(type, entry.name, " is of type ", c10::toString(entry.tensor.scalar_type()),
                ", which cannot be written");
    for (const auto& [key, view] : detail::parts_of(entry, layout)) {
      views.push_back({key, *type, view.sizes().vec(), view.data_ptr()});
      tensors.emplace(key, view);
    }
  }
  Tensor staged;
  const auto fetch = [&](const TensorView& view) {
    staged = tensors.at(view.name).to(torch::kCPU).contiguous();
    return static_cast<const void*>(staged.data_ptr());
  };
  if (safetensors) {
    metadata.emplace("format", "pt");  // what `transformers` looks for
    write_safetensors(path, views, std::move(metadata), fetch);
  } else {
    write_pt(path, views, fetch);
  }
}

}  // namespace prenorm
