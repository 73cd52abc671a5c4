#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prenorm/config.h"
#include "prenorm/params/count.h"

namespace prenorm::params {

/// A bare stack of the lesson's layers, to which parts are added one by one: no token table (vocab_size 0), positions,
/// final norm or head.
ModelConfig bare_layers();

/// Throws Error naming the first size that cannot be built; vocab_size may be 0.
void validate_dimensions(const ModelConfig& config);

/// What the lesson's table says of one layer, 4 d^2 + 2 d F + 4 d: without the biases.
Count lesson_layer(const ModelConfig& config);

/// One answer to the question which d or L a total belongs to.
struct Candidate {
  ModelConfig config;
  Count total;
  double error_percent = 0;  ///< of `total`, against the total that was asked for
};

/// The numbers of layers just below and above the one that gives `total`, nearest first. `config` says all but L.
std::vector<Candidate> solve_layers(ModelConfig config, Count total);

/// The widths around the one that gives `total`: multiples of 64 (and of the heads), and of 256 where those differ;
/// nearest first. `config` says all but d; an inner width of 0 follows as 4 d.
std::vector<Candidate> solve_width(ModelConfig config, Count total);

/// "7B", "350m", "1.5e9", "6,738,415,616": a positive number with an optional K, M, B (or G) or T. Throws Error.
Count parse_total(std::string_view text);

}  // namespace prenorm::params
