#include "prenorm/params/blocks.h"

#include <sstream>
#include <utility>

#include "prenorm/error.h"

namespace prenorm::params {
namespace {

template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

std::string plus(Count bias) {
  return bias == 0 ? "" : text(" + ", bias);
}

}  // namespace

Component group(std::string name, Parts parts) {
  return {.name = std::move(name), .children = std::move(parts)};
}

Component stack(std::string name, Count layers, Count d, Parts parts) {
  return {.name = std::move(name),
          .children = std::move(parts),
          .copies = layers,
          .active_copies = layers,
          .layer_width = d};
}

Component linear(std::string name, Count in, Count out, bool bias) {
  const Count shift = bias ? out : 0;
  return {.name = std::move(name), .formula = text(in, "*", out, plus(shift)), .own = in * out + shift};
}

Component parameter(std::string name, Count size) {
  return {.name = std::move(name), .formula = text(size), .own = size};
}

Component norm(std::string name, Count d, bool bias) {
  return {.name = std::move(name), .formula = text(bias ? "2*" : "", d), .own = Count(bias ? 2 : 1) * d};
}

Component rms_norm(std::string name, Count d) {
  return norm(std::move(name), d, false);
}

Component table(std::string name, Count rows, Count d) {
  return {.name = std::move(name), .formula = text(rows, "*", d), .own = rows * d, .embedding = true};
}

Component output(std::string name, Count d, Count vocabulary, bool tied, bool bias) {
  const Count shift = bias ? vocabulary : 0;
  const Count weight = d * vocabulary;
  return {.name = std::move(name),
          .formula = text(tied ? "tied" : text(d, "*", vocabulary), plus(shift)),
          .own = tied ? shift : weight + shift,
          .tied = tied ? weight : 0};
}

Component attention(std::string name, const AttentionSizes& sizes) {
  const Count q = sizes.heads * sizes.head_size;
  const Count kv = sizes.kv_heads * sizes.head_size;
  Component block =
      group(std::move(name),
            {linear("query", sizes.d, q, sizes.bias), linear("key", sizes.d, kv, sizes.bias && sizes.key_bias),
             linear("value", sizes.d, kv, sizes.bias), linear("output", q, sizes.d, sizes.output_bias)});
  const Count weights = Count(2) * sizes.d * (q + kv);
  const std::string matrices =
      q == kv ? text("4*", sizes.d, "*", q) : text("2*", sizes.d, "*", q, " + 2*", sizes.d, "*", kv);
  block.formula = matrices + plus(block.one() - weights);
  return block;
}

Component feed_forward(std::string name, Count d, Count f, bool bias) {
  Component block = group(std::move(name), {linear("in", d, f, bias), linear("out", f, d, bias)});
  block.formula = text("2*", d, "*", f, plus(bias ? d + f : 0));
  return block;
}

Component gated_feed_forward(std::string name, Count d, Count f, bool bias) {
  Component block =
      group(std::move(name), {linear("gate", d, f, bias), linear("in", d, f, bias), linear("out", f, d, bias)});
  block.formula = text("3*", d, "*", f, plus(bias ? d + Count(2) * f : 0));
  return block;
}

Component mixture(std::string name, Count d, Count f, Count experts, Count per_token) {
  require(per_token <= experts, "num_experts_per_tok ", per_token, " is more than the ", experts, " experts there are");
  Component expert = gated_feed_forward("expert", d, f);
  expert.copies = experts;
  expert.active_copies = per_token;
  Component block = group(std::move(name), {linear("router", d, experts, false), std::move(expert)});
  block.formula = text(d, "*", experts, " + ", experts, "*3*", d, "*", f);
  return block;
}

}  // namespace prenorm::params
