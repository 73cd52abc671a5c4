#include "prenorm/script/definition.h"

#include "prenorm/model.h"

// In TorchScript's builtins a type is its number: 6 is float, 7 double, 11 bool; 3 and 4 are int32 and int64.
namespace prenorm::script {
namespace {

constexpr const char* kLinear = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.linear(x, self.weight, self.bias)
)PY";

constexpr const char* kLinearWithoutBias = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.linear(x, self.weight)
)PY";

constexpr const char* kEmbedding = R"PY(
def forward(self, ids: Tensor) -> Tensor:
    return torch.embedding(self.weight, ids)
)PY";

constexpr const char* kLayerNorm = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.layer_norm(x, self.weight.size(), self.weight, self.bias, self.eps)
)PY";

constexpr const char* kLayerNormWithoutBias = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.layer_norm(x, self.weight.size(), self.weight, None, self.eps)
)PY";

constexpr const char* kDropout = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.dropout(x, self.p, self.training)
)PY";

constexpr const char* kGelu = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.gelu(x, approximate=self.approximate)
)PY";

constexpr const char* kRelu = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.relu(x)
)PY";

constexpr const char* kSilu = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return torch.silu(x)
)PY";

constexpr const char* kMultiHeadAttention = R"PY(
def forward(self, x: Tensor, mask: Optional[Tensor] = None,
            need_weights: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
    fits = x.dim() == 3 and x.size(-1) == self.d_model
    assert fits, "the input is {}, expected [B, T, {}]".format(x.size(), self.d_model)
    qkv = self.in_proj.forward(x).view([x.size(0), x.size(1), 3, self.num_heads, -1])
    q, k, v = torch.unbind(qkv.permute([2, 0, 3, 1, 4]))
    shown: Optional[Tensor] = None
    dead: Optional[Tensor] = None
    if mask is not None:
        shown, dead = self.prepare(mask, x)
    y, weights = self.attention(q, k, v, shown, dead, need_weights)
    merged = y.transpose(1, 2).reshape([x.size(0), x.size(1), -1])
    return self.out_proj.forward(merged), weights

def attention(self, q: Tensor, k: Tensor, v: Tensor, shown: Optional[Tensor], dead: Optional[Tensor],
              need_weights: bool) -> Tuple[Tensor, Optional[Tensor]]:
    dropout = self.dropout if self.training else 0.0
    if not need_weights:
        y = torch.scaled_dot_product_attention(q, k, v, shown, dropout)
        return self.zero_where(dead, y), None
    scores = torch.matmul(q / q.size(-1) ** 0.5, k.transpose(-2, -1))
    if shown is not None:
        if torch.is_floating_point(shown):
            scores = scores + shown
        else:
            scores = scores.masked_fill(torch.logical_not(shown), float("-inf"))
    weights = torch.dropout(self.zero_where(dead, torch.softmax(scores, -1)), dropout, True)
    return torch.matmul(weights, v), weights

def prepare(self, mask: Tensor, x: Tensor) -> Tuple[Tensor, Tensor]:
    floating = torch.is_floating_point(mask)
    assert floating or mask.dtype == 11, "the attention mask is neither bool (true: may attend) nor floating (added)"
    shapes = "[T, T], [B, T, T], [B, 1, T, T] or [B, H, T, T] with B {}, H {}, T {} (key padding: [B, 1, 1, T])"
    expected = shapes.format(x.size(0), self.num_heads, x.size(1))
    assert self.fits(mask, x.size(0), x.size(1)), "the attention mask is {}, expected {}".format(mask.size(), expected)
    unclear = mask.dim() == 2 and x.size(0) == x.size(1) and x.size(0) > 1
    message = "an attention mask of {} may be [T, T] or key padding [B, T]: give [1, T, T] or [B, 1, 1, T]"
    assert not unclear, message.format(mask.size())
    if mask.dim() == 3:
        mask = mask.unsqueeze(1)
    if floating:
        added = mask.to(x.device).to(x.dtype)
        dead = torch.isneginf(added).all(-1, keepdim=True)
        return added.masked_fill(dead, 0.0), dead
    may_attend = mask.to(x.device)
    dead = torch.logical_not(may_attend).all(-1, keepdim=True)
    return torch.logical_or(may_attend, dead), dead

def fits(self, mask: Tensor, batch: int, length: int) -> bool:
    dim = mask.dim()
    if dim < 2 or dim > 4 or mask.size(-1) != length:
        return False
    if dim > 2 and mask.size(0) != batch and mask.size(0) != 1:
        return False
    if dim < 4:
        return mask.size(-2) == length
    return (mask.size(1) == self.num_heads or mask.size(1) == 1) and (mask.size(2) == length or mask.size(2) == 1)

def zero_where(self, dead: Optional[Tensor], x: Tensor) -> Tensor:
    return x if dead is None else x.masked_fill(dead, 0.0)
)PY";

constexpr const char* kFeedForward = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return self.net.forward(x)
)PY";

// TorchScript passes no functions: what the C++ module does around its sub-layer stands in two methods.
constexpr const char* kPreNormConnection = R"PY(
def before(self, x: Tensor) -> Tensor:
    return self.norm.forward(x)

def after(self, x: Tensor, y: Tensor) -> Tensor:
    return x + self.drop.forward(y)
)PY";

constexpr const char* kPostNormConnection = R"PY(
def before(self, x: Tensor) -> Tensor:
    return x

def after(self, x: Tensor, y: Tensor) -> Tensor:
    return self.norm.forward(x + self.drop.forward(y))
)PY";

constexpr const char* kEncoderLayer = R"PY(
def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
    x = self.attention_sublayer(x, mask)
    return self.feed_forward_sublayer(x)

def attention_sublayer(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
    y = self.mha.forward(self.sub1.before(x), mask)[0]
    return self.sub1.after(x, y)

def feed_forward_sublayer(self, x: Tensor) -> Tensor:
    y = self.ff.forward(self.sub2.before(x))
    return self.sub2.after(x, y)
)PY";

constexpr const char* kSinusoidalPositions = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return x + self.table(x.size(1), x)

def table(self, length: int, like: Tensor) -> Tensor:
    exponents = torch.arange(0, self.d_model, 2, dtype=7, device=like.device) / float(self.d_model)
    frequencies = torch.exp(exponents * -torch.log(10000.0))
    angles = torch.arange(length, dtype=7, device=like.device).unsqueeze(1) * frequencies
    pairs = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    return pairs[:, :self.d_model].to(like.dtype)
)PY";

constexpr const char* kLearnedPositions = R"PY(
def forward(self, x: Tensor) -> Tensor:
    length = x.size(1)
    message = "a sequence of length {} exceeds the max_positions {} of the learned positions, which start at row {}"
    fits = self.offset + length <= self.weight.size(0)
    assert fits, message.format(length, self.weight.size(0), self.offset)
    return x + self.weight[self.offset:self.offset + length]
)PY";

constexpr const char* kNoPositions = R"PY(
def forward(self, x: Tensor) -> Tensor:
    return x
)PY";

constexpr const char* kEmbeddings = R"PY(
def embed(self, ids: Tensor) -> Tensor:
    self.check_ids("token ids", ids)
    return self.position.forward(self.token.forward(ids))

def check_ids(self, name: str, ids: Tensor):
    assert ids.dim() == 2, "{} are {}, expected [B, T]".format(name, ids.size())
    assert ids.dtype == 3 or ids.dtype == 4, "{} are neither int64 nor int32".format(name)
)PY";

constexpr const char* kSegments = R"PY(
def segment_vectors(self, ids: Tensor, segment_ids: Optional[Tensor]) -> Tensor:
    if segment_ids is None:
        return self.segment.weight[0]
    self.check_ids("segment ids", segment_ids)
    fits = segment_ids.size() == ids.size()
    assert fits, "segment ids are {}, token ids {}".format(segment_ids.size(), ids.size())
    return self.segment.forward(segment_ids)
)PY";

constexpr const char* kPadding = R"PY(
def attention_mask(self, padding: Optional[Tensor], ids: Tensor) -> Optional[Tensor]:
    if padding is None:
        return None
    floating = torch.is_floating_point(padding)
    assert floating or padding.dtype == 11, "the padding mask is neither bool (true: a real token) nor floating (added)"
    fits = padding.size() == ids.size()
    assert fits, "the padding mask is {}, expected [B, T] = {}".format(padding.size(), ids.size())
    if floating:
        added = "the padding mask holds values above 0, but is added to the scores: 0 attends, -inf hides"
        assert padding.device.type == "meta" or bool((padding <= 0).all()), added
        padding = padding.masked_fill(padding <= -100, float("-inf"))  # the lowest number and the like
    return padding.to(ids.device).unsqueeze(1).unsqueeze(1)
)PY";

constexpr const char* kCausal = R"PY(
def causal_mask(self, padding: Optional[Tensor], ids: Tensor) -> Tensor:
    causal = torch.ones([ids.size(1), ids.size(1)], dtype=11, device=ids.device).tril().unsqueeze(0).unsqueeze(0)
    shown = self.attention_mask(padding, ids)
    if shown is None:
        return causal
    if torch.is_floating_point(shown):
        return torch.where(causal, shown, torch.full_like(shown, float("-inf")))
    return torch.logical_and(shown, causal)
)PY";

constexpr const char* kRealTokens = R"PY(
def real_tokens(self, padding: Tensor, x: Tensor) -> Tensor:
    padding = padding.to(x.device)
    return padding > -100 if torch.is_floating_point(padding) else padding
)PY";

constexpr const char* kMean = R"PY(
def summary(self, x: Tensor, padding: Optional[Tensor]) -> Tensor:
    if padding is None:
        return x.mean([1])
    real = self.real_tokens(padding, x)
    wide = x.to(7 if x.dtype == 7 else 6)  # half overflows and bfloat16 stops counting at 256
    total = wide.masked_fill(torch.logical_not(real).unsqueeze(-1), 0.0).sum([1])
    return (total / real.sum([1], keepdim=True).clamp_min(1)).to(x.dtype)
)PY";

constexpr const char* kFirst = R"PY(
def summary(self, x: Tensor, padding: Optional[Tensor]) -> Tensor:
    if padding is None:
        return x.select(1, 0)
    first = self.real_tokens(padding, x).to(3).argmax(1, keepdim=True).unsqueeze(-1)
    return x.gather(1, first.expand([-1, -1, x.size(2)])).squeeze(1)
)PY";

/// `code` with one more method, of these lines.
std::string with_method(const std::string& signature, const std::vector<std::string>& lines, const std::string& code) {
  std::string method = "\ndef " + signature + ":\n";
  for (const std::string& line : lines) method += "    " + line + "\n";
  return method + code;
}

/// Calls each child in turn; `more` goes along with x.
std::vector<std::string> calls(const torch::nn::Module& list, const std::string& target, const std::string& more) {
  std::vector<std::string> lines;
  for (const auto& child : list.named_children()) {
    lines.push_back("x = getattr(" + target + ", \"" + child.key() + "\").forward(x" + more + ")");
  }
  return lines;
}

std::string sequential_code(const torch::nn::Module& net) {
  auto lines = calls(net, "self", "");
  lines.push_back("return x");
  return with_method("forward(self, x: Tensor) -> Tensor", lines, "");
}

std::string encoder_code(const EncoderImpl& encoder) {
  for (size_t i = 0; i < encoder.layers->size(); ++i) encoder.layer(i);
  auto lines = calls(*encoder.layers, "self.layers", ", mask");
  lines.push_back(encoder.norm ? "return self.norm.forward(x)" : "return x");
  return with_method("forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor", lines, "");
}

std::string embeddings_code(const EmbeddingsImpl& embeddings) {
  const bool segments = static_cast<bool>(embeddings.segment);
  std::vector<std::string> lines{"x = self.embed(ids)"};
  if (segments) lines.emplace_back("x = x + self.segment_vectors(ids, segment_ids)");
  if (embeddings.norm) lines.emplace_back("x = self.norm.forward(x)");
  lines.emplace_back("return self.drop.forward(x)");
  const std::string more = segments ? ", segment_ids: Optional[Tensor] = None" : "";
  return with_method("forward(self, ids: Tensor" + more + ") -> Tensor", lines,
                     std::string(kEmbeddings) + (segments ? kSegments : ""));
}

std::string model_code(const EncoderModelImpl& model) {
  const bool segments = static_cast<bool>(model.embeddings->segment);
  std::vector<std::string> lines{
      segments ? "x = self.embeddings.forward(ids, segment_ids)" : "x = self.embeddings.forward(ids)",
      model.config.causal ? "x = self.encoder.forward(x, self.causal_mask(padding, ids))"
                          : "x = self.encoder.forward(x, self.attention_mask(padding, ids))"};
  std::string code = kPadding;
  if (model.config.causal) code += kCausal;
  switch (model.config.head) {
    case Head::none:
      lines.emplace_back("return x");
      break;
    case Head::token:
      lines.emplace_back("return self.head.forward(x)");
      break;
    case Head::sequence_mean:
    case Head::sequence_first:
      lines.emplace_back("return self.head.forward(self.summary(x, padding))");
      code += model.config.head == Head::sequence_mean ? kMean : kFirst;
      code += kRealTokens;
  }
  const std::string more = segments ? ", segment_ids: Optional[Tensor] = None" : "";
  return with_method("forward(self, ids: Tensor, padding: Optional[Tensor] = None" + more + ") -> Tensor", lines, code);
}

Definition definition(const PositionalEncodingImpl& position) {
  switch (position.options.kind()) {
    case Position::sinusoidal:
      return {"SinusoidalPositions", kSinusoidalPositions, {{"d_model", position.options.d_model()}}};
    case Position::learned:
      return {"LearnedPositions", kLearnedPositions, {{"offset", position.options.offset()}}};
    case Position::none:
      break;
  }
  return {"NoPositions", kNoPositions};
}

Definition definition(const MultiHeadAttentionImpl& mha) {
  return {
      "MultiHeadAttention",
      kMultiHeadAttention,
      {{"d_model", mha.options.d_model()}, {"num_heads", mha.options.num_heads()}, {"dropout", mha.options.dropout()}}};
}

Definition definition(const SubLayerConnectionImpl& connection) {
  if (connection.options.placement() == NormPlacement::pre) return {"PreNormConnection", kPreNormConnection};
  return {"PostNormConnection", kPostNormConnection};
}

Definition definition(const torch::nn::LayerNormImpl& norm) {
  const bool bias = norm.bias.defined();
  return {bias ? "LayerNorm" : "LayerNormWithoutBias",
          bias ? kLayerNorm : kLayerNormWithoutBias,
          {{"eps", norm.options.eps()}}};
}

Definition definition(const torch::nn::GELUImpl& gelu) {
  return {"GELU", kGelu, {{"approximate", gelu.options.approximate()}}};
}

}  // namespace

Definition definition(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  if (const auto* linear = module.as<nn::LinearImpl>()) {
    return linear->bias.defined() ? Definition{"Linear", kLinear} : Definition{"LinearWithoutBias", kLinearWithoutBias};
  }
  if (const auto* norm = module.as<nn::LayerNormImpl>()) return definition(*norm);
  if (const auto* drop = module.as<nn::DropoutImpl>()) return {"Dropout", kDropout, {{"p", drop->options.p()}}};
  if (const auto* drop = module.as<DropoutImpl>()) return {"Dropout", kDropout, {{"p", drop->options.p()}}};
  if (module.as<nn::EmbeddingImpl>() != nullptr) return {"Embedding", kEmbedding};
  if (const auto* gelu = module.as<nn::GELUImpl>()) return definition(*gelu);
  if (module.as<nn::ReLUImpl>() != nullptr) return {"ReLU", kRelu};
  if (module.as<nn::SiLUImpl>() != nullptr) return {"SiLU", kSilu};
  if (module.as<nn::SequentialImpl>() != nullptr) return {"Sequential", sequential_code(module)};
  if (module.as<nn::ModuleListImpl>() != nullptr) return {"ModuleList", ""};
  if (const auto* mha = module.as<MultiHeadAttentionImpl>()) return definition(*mha);
  if (module.as<FeedForwardImpl>() != nullptr) return {"FeedForward", kFeedForward};
  if (const auto* connection = module.as<SubLayerConnectionImpl>()) return definition(*connection);
  if (module.as<EncoderLayerImpl>() != nullptr) return {"EncoderLayer", kEncoderLayer};
  if (const auto* encoder = module.as<EncoderImpl>()) return {"Encoder", encoder_code(*encoder)};
  if (const auto* position = module.as<PositionalEncodingImpl>()) return definition(*position);
  if (const auto* embeddings = module.as<EmbeddingsImpl>()) return {"Embeddings", embeddings_code(*embeddings)};
  if (const auto* model = module.as<EncoderModelImpl>()) return {"EncoderModel", model_code(*model)};
  TORCH_CHECK(false, "a module of type ", module.name(), " has no TorchScript form");
}

}  // namespace prenorm::script
