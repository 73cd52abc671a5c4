
#include "prenorm/json.h"
#include "prenorm/saved_config.h"
#include "prenorm/script/definition.h"

namespace prenorm::script {
namespace {

Json json_of(const MultiHeadAttentionOptions& options) {
  return {{"d_model", options.d_model()},
          {"num_heads", options.num_heads()},
          {"bias", options.bias()},
          {"dropout", options.dropout()}};
}

Json json_of(const FeedForwardOptions& options) {
  return {{"d_model", options.d_model()},
          {"d_ff", options.d_ff()},
          {"dropout", options.dropout()},
          {"activation", enum_name(options.activation())},
          {"bias", options.bias()}};
}

/// The keys are a ModelConfig's, written when it writes them.
Json json_of(const EncoderLayerOptions& options) {
  Json json{{"d_model", options.d_model()},
            {"num_heads", options.num_heads()},
            {"d_ff", options.d_ff()},
            {"dropout", options.dropout()},
            {"attention_dropout", options.attention_dropout()},
            {"activation", enum_name(options.activation())},
            {"norm_placement", enum_name(options.norm_placement())},
            {"norm_eps", options.eps()},
            {"attention_bias", options.attention_bias()},
            {"feed_forward_bias", options.feed_forward_bias()}};
  if (!options.norm_bias()) json["norm_bias"] = false;
  return json;
}

Json json_of(const EncoderOptions& options) {
  Json layers = Json::array();
  for (const auto& layer : options.layers()) layers.push_back(json_of(layer));
  const auto final_norm = options.final_norm(), final_norm_bias = options.final_norm_bias();
  Json json{{"layers", layers}, {"final_norm", final_norm ? Json(*final_norm) : Json(nullptr)}};
  if (final_norm_bias) json["final_norm_bias"] = *final_norm_bias;
  return json;
}

template <typename Options>
std::string named(const char* name, const Options& options) {
  Json json{{"module", name}};
  json.update(json_of(options));
  return json.dump(2) + "\n";
}

}  // namespace

std::string config_json(const torch::nn::Module& module) {
  if (const auto* model = module.as<EncoderModelImpl>()) return saved_config(*model).to_json();
  if (const auto* encoder = module.as<EncoderImpl>()) return named("Encoder", encoder->options);
  if (const auto* layer = module.as<EncoderLayerImpl>()) return named("EncoderLayer", layer->options);
  if (const auto* ff = module.as<FeedForwardImpl>()) return named("FeedForward", ff->options);
  if (const auto* mha = module.as<MultiHeadAttentionImpl>()) return named("MultiHeadAttention", mha->options);
  TORCH_CHECK(false, "cannot export a ", module.name(),
              " as TorchScript, only MultiHeadAttention, FeedForward, EncoderLayer, Encoder and EncoderModel");
}

}  // namespace prenorm::script
