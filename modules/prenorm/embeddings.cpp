#include "prenorm/embeddings.h"

#include "prenorm/layer_norm.h"

namespace prenorm {
namespace {

void check_ids(const char* name, const Tensor& ids, std::int64_t size) {
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) > 0, name, " are ", ids.sizes(), ", expected [B, T] with T at least 1");
  TORCH_CHECK(ids.scalar_type() == torch::kLong || ids.scalar_type() == torch::kInt, name, " have type ",
              c10::toString(ids.scalar_type()), ", expected int64 or int32");
  if (!ids.is_cpu() || ids.numel() == 0) return;
  const auto [least, greatest] = torch::aminmax(ids);
  TORCH_CHECK(least.item<std::int64_t>() >= 0, name, " hold ", least.item<std::int64_t>(), ", allowed are 0 to ",
              size - 1);
  TORCH_CHECK(greatest.item<std::int64_t>() < size, name, " hold ", greatest.item<std::int64_t>(),
              ", allowed are 0 to ", size - 1);
}

}  // namespace

EmbeddingsImpl::EmbeddingsImpl(const EmbeddingsOptions& options_) : options(options_) {
  EmbeddingsImpl::reset();
}

void EmbeddingsImpl::reset() {
  const auto d_model = options.d_model();
  check_positive("vocab_size", options.vocab_size());
  check_positive("d_model", d_model);
  TORCH_CHECK(options.num_segments() >= 0, "num_segments is ", options.num_segments(),
              ", not a positive number or 0 (no segments)");
  check_dropout("dropout", options.dropout());
  check_eps(options.eps());
  token = register_module("token", torch::nn::Embedding(options.vocab_size(), d_model));
  position = register_module("position", PositionalEncoding(PositionalEncodingOptions(d_model, options.position())
                                                                .max_positions(options.max_positions())
                                                                .offset(options.position_offset())));
  segment = nullptr;
  norm = nullptr;
  if (options.num_segments() > 0) {
    segment = register_module("segment", torch::nn::Embedding(options.num_segments(), d_model));
  }
  if (options.norm()) {
    norm = register_module("norm", detail::layer_norm(d_model, options.eps(), options.norm_bias()));
  }
  drop = register_module("drop", Dropout(options.dropout()));
}

void EmbeddingsImpl::pretty_print(std::ostream& stream) const {
  stream << "prenorm::Embeddings";
}

Tensor EmbeddingsImpl::forward(const Tensor& ids, const Tensor& segment_ids) {
  check_ids("token ids", ids, options.vocab_size());
  Tensor x = position(token(ids));  // [B,T,D]
  if (segment_ids.defined()) {
    TORCH_CHECK(segment, "segment ids were given to a model without segments (num_segments is 0)");
    TORCH_CHECK(segment_ids.sizes() == ids.sizes(), "segment ids are ", segment_ids.sizes(), ", token ids ",
                ids.sizes());
    check_ids("segment ids", segment_ids, options.num_segments());
    x = x + segment(segment_ids);
  } else if (segment) {
    x = x + segment->weight[0];
  }
  return drop(norm ? norm(x) : x);
}

}  // namespace prenorm
