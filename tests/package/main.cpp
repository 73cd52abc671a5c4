#include <prenorm/encoder.h>
#include <prenorm/model.h>

#include <iostream>
#include <string>

// std::string crosses the border to both libraries: with the other string ABI this would not link.
int main() {
  const auto activation = prenorm::ModelConfig::from_json(std::string(R"({"model_type": "prenorm", "version": 1,
    "vocab_size": 3, "d_model": 8, "num_heads": 2, "num_layers": 1, "activation": "relu"})"))
                              .activation;
  std::cout << prenorm::ModelConfig{.vocab_size = 3}.to_json().size() << " bytes\n";
  const torch::Device device(std::string("cpu"));
  prenorm::Encoder encoder(prenorm::EncoderOptions(prenorm::EncoderLayerOptions(8, 2).activation(activation), 2));
  const auto y = encoder(torch::randn({2, 3, 8}, device), prenorm::AttentionMask::lengths({3, 1}));
  std::cout << "linked: " << y.sizes() << "\n";
}
