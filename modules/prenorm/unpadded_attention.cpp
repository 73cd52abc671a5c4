#include "prenorm/unpadded_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace prenorm {
namespace {

/// Sequences of one length that are neighbours in the row.
struct Run {
  std::int64_t first;  // token
  std::int64_t count, length;

  /// Their part of x [1,H,N,D/H], as [count,H,length,D/H].
  Tensor of(const Tensor& x) const {
    return x.as_strided({count, x.size(1), length, x.size(3)},
                        {length * x.stride(2), x.stride(1), x.stride(2), x.stride(3)},
                        x.storage_offset() + first * x.stride(2));
  }
};

/// The runs; a long one is several, so that threads can share them.
std::vector<Run> runs_of(const std::vector<std::int64_t>& lengths, std::int64_t tokens) {
  std::vector<Run> runs;
  const std::int64_t most = tokens / (4 * at::get_num_threads());
  std::int64_t token = 0;
  for (const std::int64_t length : lengths) {
    if (length > 0 && !runs.empty() && runs.back().length == length && runs.back().count * length < most) {
      ++runs.back().count;
    } else if (length > 0) {
      runs.push_back({token, 1, length});
    }
    token += length;
  }
  return runs;
}

/// Calls `use(i)` for each run, in parallel where the runs are many; else the kernel divides each by itself.
template <typename Use>
void for_each_run(const std::vector<Run>& runs, const Use& use) {
  const auto some = [&](std::int64_t begin, std::int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView kernels_alone;  // gradients are this function's own
    for (std::int64_t i = begin; i < end; ++i) use(static_cast<size_t>(i));
  };
  const auto size = static_cast<std::int64_t>(runs.size()), threads = static_cast<std::int64_t>(at::get_num_threads());
  if (size < 2 * threads) return some(0, size);
  // Contiguous parts of about the same cost: that of the tokens, and of the scores.
  std::vector<double> cost;
  for (const Run& run : runs) {
    const auto tokens = static_cast<double>(run.count * run.length);
    cost.push_back((cost.empty() ? 0.0 : cost.back()) + tokens * (32.0 + static_cast<double>(run.length)));
  }
  const auto share = [&](std::int64_t part) {
    const double target = cost.back() * static_cast<double>(part) / static_cast<double>(threads);
    return part == threads ? size : std::ranges::lower_bound(cost, target) - cost.begin();
  };
  at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) { some(share(begin), share(end)); });
}

struct UnpaddedAttention : torch::autograd::Function<UnpaddedAttention> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::vector<std::int64_t>& lengths, bool causal) {
    const auto runs = runs_of(lengths, q.size(2));
    const Tensor output = torch::empty({1, q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2);
    std::vector<Tensor> log_sums(runs.size());
    for_each_run(runs, [&](size_t i) {
      Tensor part;
      std::tie(part, log_sums[i]) = at::_scaled_dot_product_flash_attention_for_cpu(
          runs[i].of(q), runs[i].of(k), runs[i].of(v), /*dropout_p=*/0.0, causal);
      runs[i].of(output).copy_(part);
    });
    context->save_for_backward({q, k, v, output});
    context->saved_data["log_sums"] = log_sums;
    context->saved_data["lengths"] = lengths;
    context->saved_data["causal"] = causal;
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attention has no gradient of its gradient");
    const auto saved = context->get_saved_variables();
    const auto log_sums = context->saved_data["log_sums"].toTensorVector();
    const bool causal = context->saved_data["causal"].toBool();
    const Tensor& output = saved[3];
    const auto runs = runs_of(context->saved_data["lengths"].toIntVector(), output.size(2));
    const Tensor gradient = gradients[0].transpose(1, 2).contiguous().transpose(1, 2);
    std::vector<Tensor> found;
    for (int i = 0; i < 3; ++i) found.push_back(torch::empty_like(output));
    for_each_run(runs, [&](size_t i) {
      const Run& run = runs[i];
      const auto parts = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          run.of(gradient), run.of(saved[0]), run.of(saved[1]), run.of(saved[2]), run.of(output), log_sums[i],
          /*dropout_p=*/0.0, causal);
      run.of(found[0]).copy_(std::get<0>(parts));
      run.of(found[1]).copy_(std::get<1>(parts));
      run.of(found[2]).copy_(std::get<2>(parts));
    });
    return {found[0], found[1], found[2], Tensor(), Tensor()};
  }
};

}  // namespace

Tensor unpadded_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<std::int64_t>& lengths,
                          bool causal) {
  return UnpaddedAttention::apply(q, k, v, lengths, causal);
}

}  // namespace prenorm
