#include "prenorm/sublayer_connection.h"

#include "prenorm/layer_norm.h"

namespace prenorm {

SubLayerConnectionImpl::SubLayerConnectionImpl(const SubLayerConnectionOptions& options_) : options(options_) {
  SubLayerConnectionImpl::reset();
}

void SubLayerConnectionImpl::reset() {
  check_positive("d_model", options.d_model());
  check_dropout("dropout", options.dropout());
  check_eps(options.eps());
  norm = register_module("norm", detail::layer_norm(options.d_model(), options.eps(), options.norm_bias()));
  drop = register_module("drop", Dropout(options.dropout()));
}

void SubLayerConnectionImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::SubLayerConnection(" << enum_name(options.placement()) << "-norm)";
}

Tensor SubLayerConnectionImpl::forward(const Tensor& x, const std::function<Tensor(const Tensor&)>& sublayer) {
  TORCH_CHECK(sublayer, "the sub-layer is an empty function");
  const bool pre = options.placement() == NormPlacement::pre;
  const Tensor y = sublayer(pre ? norm(x) : x.clone());  // x is the caller's, and the sub-layer may write in its input
  TORCH_CHECK(y.defined(), "the sub-layer returned an undefined tensor");
  TORCH_CHECK(y.sizes() == x.sizes(), "the sub-layer returned ", y.sizes(), " for an input of ", x.sizes());
  return pre ? x + drop(y) : norm(x + drop(y));
}

}  // namespace prenorm
