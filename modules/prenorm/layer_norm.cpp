#include "prenorm/layer_norm.h"

#include <memory>

namespace prenorm::detail {
namespace {

class LayerNormWithoutBias : public torch::nn::LayerNormImpl {
 public:
  explicit LayerNormWithoutBias(const torch::nn::LayerNormOptions& options_) : LayerNormImpl(options_) {
    remove_bias();
  }

  void reset() override {
    LayerNormImpl::reset();
    remove_bias();
  }

  /// LibTorch's would be one of its own class, with a bias.
  std::shared_ptr<Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override {
    auto copy = std::make_shared<LayerNormWithoutBias>(*this);
    static_cast<LayerNormImpl&>(*copy) = *std::dynamic_pointer_cast<LayerNormImpl>(LayerNormImpl::clone(device));
    copy->remove_bias();
    return copy;
  }

 private:
  void remove_bias() { bias = parameters_["bias"] = Tensor(); }
};

}  // namespace

torch::nn::LayerNorm layer_norm(std::int64_t d_model, double eps, bool bias) {
  const auto options = torch::nn::LayerNormOptions({d_model}).eps(eps);
  if (bias) return torch::nn::LayerNorm(options);
  return torch::nn::LayerNorm(std::shared_ptr<torch::nn::LayerNormImpl>(new LayerNormWithoutBias(options)));
}

}  // namespace prenorm::detail
