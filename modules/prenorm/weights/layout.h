#pragma once

#include <string>
#include <vector>

namespace prenorm {

/// One line of a layout: the part `ours` of a key of this library (whole names between dots) is called `theirs` in the
/// file. With several names there, the tensor is their rows one after the other: queries, keys, values.
struct LayoutRule {
  std::string ours;
  std::vector<std::string> theirs;
  bool transposed = false;  ///< matrices lie transposed in the file
};

/// How somebody else's files name and shape our tensors. Every rule applies to every key, in order, once; what no rule
/// mentions keeps its name. The empty layout is this library's own. Written for the keys of an EncoderModel; those of
/// its parts (an Encoder, an EncoderLayer) are mapped by the same rules as far as they occur.
using Layout = std::vector<LayoutRule>;

/// The course's, with separate `w_q`, `w_k`, `w_v` and `w_o` instead of `in_proj` and `out_proj`.
Layout course_layout();

/// torch.nn.TransformerEncoder and its layers, of Python and C++, for an Encoder and an EncoderLayer.
Layout torch_layout();

/// BERT, RoBERTa and what is built like them (MiniLM), of `transformers`, and the token classifier on top.
Layout bert_layout();

Layout distilbert_layout();

/// GPT-2, whose Conv1D matrices are [in,out].
Layout gpt2_layout();

/// Where one of our tensors is in a file.
struct FileKeys {
  std::vector<std::string> names;  ///< whose rows, one after the other, are the tensor
  bool transposed = false;
};
FileKeys file_keys(const Layout& layout, const std::string& ours);

}  // namespace prenorm
