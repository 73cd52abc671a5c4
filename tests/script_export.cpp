// Exports the cases of tests/python/script_exchange.py into a folder: NAME.ts, and NAME.pt with the state dict, inputs
// and the C++ module's outputs for them.

#include <torch/torch.h>

#include <filesystem>
#include <iostream>

#include "prenorm/file.h"
#include "prenorm/model.h"
#include "prenorm/script/export.h"

namespace {

using namespace prenorm;
using Tensors = c10::Dict<std::string, Tensor>;

constexpr std::int64_t kWidth = 12, kHeads = 3, kVocabulary = 7, kSegments = 2;

struct Input {
  std::string name;
  std::int64_t batch, length;
};
const std::vector<Input> kInputs{{"small", 2, 5}, {"long", 3, 9}, {"one", 1, 1}};

/// name -> mask for a module that takes dense masks; each has a query with nothing to attend to where T > 1.
std::vector<std::pair<std::string, Tensor>> dense_masks(const Input& input, torch::ScalarType type) {
  const auto [name, b, t] = input;
  std::vector<std::pair<std::string, Tensor>> masks;
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{
           {t, t}, {b, t, t}, {b, 1, t, t}, {b, kHeads, t, t}, {1, 1, 1, t}, {1, t, t}, {1, kHeads, t, t}}) {
    Tensor shown = torch::rand(shape) < 0.6;
    shown.select(-1, -1).fill_(false);
    shown.select(-1, 0).fill_(true);
    if (shape[shape.size() - 2] > 1) shown.select(-2, 1).fill_(false);
    const std::string suffix = c10::str(shape.size(), "d, mask ", masks.size());
    masks.emplace_back("bool " + suffix, shown);
    masks.emplace_back("floating " + suffix, torch::randn(shape, type).masked_fill(~shown, -INFINITY));
  }
  masks.emplace_back("floating of another type", torch::randn({t, t}, torch::kFloat));
  return masks;
}

std::vector<std::pair<std::string, Tensor>> padding_masks(const Input& input, torch::ScalarType type) {
  Tensor real = torch::ones({input.batch, input.length}, torch::kBool);
  real.slice(1, input.length / 2).fill_(false);
  if (input.batch > 1) real[1] = torch::arange(input.length) >= 2;  // padded on the left
  if (input.batch > 2) real[2].fill_(false);                        // nothing real at all
  const Tensor added = -torch::rand(real.sizes(), type).masked_fill(~real, 10000.0);
  return {{"padding", real}, {"floating padding", added}};
}

template <typename Holder, typename Forward>
void write(const std::filesystem::path& path, Holder model, torch::ScalarType type, bool takes_ids, bool takes_mask,
           const Forward& forward) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  for (auto& parameter : model->parameters()) parameter.normal_(0.0, 0.5);
  model->to(type);
  Tensors tensors;
  for (const auto& parameter : model->named_parameters()) tensors.insert("state." + parameter.key(), parameter.value());
  for (const Input& input : kInputs) {
    const Tensor x = takes_ids ? torch::randint(kVocabulary, {input.batch, input.length}, torch::kLong)
                               : torch::randn({input.batch, input.length, kWidth}, type);
    const Tensor segments = torch::randint(kSegments, {input.batch, input.length}, torch::kLong);
    tensors.insert("input " + input.name, x);
    tensors.insert("segments " + input.name, segments);
    std::vector<std::pair<std::string, Tensor>> masks{{"none", Tensor()}};
    if (takes_mask) {
      const auto more = takes_ids ? padding_masks(input, type) : dense_masks(input, type);
      masks.insert(masks.end(), more.begin(), more.end());
    }
    for (const auto& [name, mask] : masks) {
      const std::string suffix = " " + input.name + "/" + name;
      if (mask.defined()) tensors.insert("mask" + suffix, mask);
      model->eval();
      tensors.insert("output" + suffix, forward(model, x, mask, segments));
    }
  }
  auto file = path;
  export_torchscript(model, file += ".ts");
  const auto written = torch::pickle_save(tensors);
  write_file_atomically((file = path) += ".pt", [&](std::ostream& stream) {
    stream.write(written.data(), static_cast<std::streamsize>(written.size()));
  });
}

class Cases {
 public:
  explicit Cases(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void add(const MultiHeadAttentionOptions& options) {
    each_type([&](auto path, auto type) {
      write(path, MultiHeadAttention(options), type, false, true,
            [](auto& mha, const Tensor& x, const Tensor& mask, const Tensor&) { return std::get<0>(mha(x, mask)); });
    });
  }

  void add(const FeedForwardOptions& options) {
    each_type([&](auto path, auto type) {
      write(path, FeedForward(options), type, false, false,
            [](auto& ff, const Tensor& x, const Tensor&, const Tensor&) { return ff(x); });
    });
  }

  template <typename Holder, typename Options>
  void add_layers(const Options& options) {
    each_type([&](auto path, auto type) {
      write(path, Holder(options), type, false, true,
            [](auto& encoder, const Tensor& x, const Tensor& mask, const Tensor&) { return encoder(x, mask); });
    });
  }

  void add(const ModelConfig& config) {
    each_type([&](auto path, auto type) {
      write(path, EncoderModel(config), type, true, true,
            [](auto& model, const Tensor& ids, const Tensor& padding, const Tensor& segments) {
              const AttentionMask mask = padding.defined() ? AttentionMask::padding(padding) : AttentionMask();
              return model(ids, mask, model->config.num_segments > 0 ? segments : Tensor());
            });
    });
  }

 private:
  template <typename Write>
  void each_type(const Write& write) {
    for (const auto type : {torch::kFloat, torch::kDouble}) {
      write(folder_ / ("case" + std::to_string(next_++)), type);
    }
  }

  std::filesystem::path folder_;
  int next_ = 0;
};

void export_all(Cases& cases) {
  const EncoderLayerOptions layer(kWidth, kHeads);
  cases.add(MultiHeadAttentionOptions(kWidth, kHeads));
  cases.add(MultiHeadAttentionOptions(kWidth, kHeads).bias(true).dropout(0.3));
  cases.add(FeedForwardOptions(kWidth, 5).bias(false).activation(Activation::relu).dropout(0.4));
  cases.add(FeedForwardOptions(kWidth));
  cases.add_layers<EncoderLayer>(EncoderLayerOptions(layer));
  cases.add_layers<EncoderLayer>(EncoderLayerOptions(layer)
                                     .norm_placement(NormPlacement::post)
                                     .attention_bias(true)
                                     .feed_forward_bias(false)
                                     .norm_bias(false)
                                     .attention_dropout(0.2)
                                     .dropout(0.5)
                                     .eps(1e-2)
                                     .d_ff(7)
                                     .activation(Activation::silu));
  cases.add_layers<Encoder>(EncoderOptions(layer, 2));
  cases.add_layers<Encoder>(EncoderOptions(layer, 1).final_norm(false));
  cases.add_layers<Encoder>(
      EncoderOptions({layer, EncoderLayerOptions(layer).norm_placement(NormPlacement::post).eps(1e-3).dropout(0.3),
                      EncoderLayerOptions(layer).d_ff(5).activation(Activation::gelu_tanh).attention_bias(true)})
          .final_norm_bias(false));
  cases.add_layers<Encoder>(
      EncoderOptions(EncoderLayerOptions(layer).norm_placement(NormPlacement::post), 2).final_norm(true));

  const ModelConfig base{
      .vocab_size = kVocabulary, .d_model = kWidth, .num_heads = kHeads, .num_layers = 2, .max_positions = 9};
  std::vector<ModelConfig> configs(15, base);
  size_t i = 0;
  for (const Head head : {Head::token, Head::sequence_mean, Head::sequence_first}) {
    configs[++i].head = head;
    configs[i].num_classes = 4;
  }
  configs[++i].position = Position::learned;
  configs[++i].position = Position::learned;
  configs[i].position_offset = 2;
  configs[i].max_positions = 11;
  configs[++i].causal = true;
  configs[++i].position = Position::none;
  configs[++i].num_segments = kSegments;
  configs[++i].embedding_norm = true;
  configs[i].norm_eps = 1e-2;
  configs[i].norm_bias = false;
  configs[++i].embedding_dropout = 0.3;
  configs[i].attention_dropout = 0.2;
  configs[i].dropout = 0.4;
  configs[++i].d_model = 9;  // an odd sinusoidal table
  configs[++i].norm_placement = NormPlacement::post;
  configs[++i].final_norm = false;
  // BERT's kind, with everything at once.
  configs[++i] = {.vocab_size = kVocabulary,
                  .d_model = kWidth,
                  .num_heads = kHeads,
                  .num_layers = 3,
                  .d_ff = 17,
                  .activation = Activation::gelu_tanh,
                  .norm_placement = NormPlacement::post,
                  .norm_eps = 1e-12,
                  .attention_bias = true,
                  .position = Position::learned,
                  .max_positions = 9,
                  .num_segments = kSegments,
                  .embedding_norm = true,
                  .head = Head::sequence_first,
                  .num_classes = 4};
  for (const auto& config : configs) cases.add(config);
}

}  // namespace

int main(int, char** argv) {
  try {
    Cases cases(argv[1]);
    export_all(cases);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
