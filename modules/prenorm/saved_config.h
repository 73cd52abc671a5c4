#pragma once

#include "prenorm/model.h"

namespace prenorm {

/// The configuration to save with a model, from which it can be built again: its own, and with it a head that was tied
/// by hand (`head->weight = embeddings->token->weight`).
///
/// Throws c10::Error naming the first part of the model that is not what its configuration says, and both: another
/// layer, head, activation, dropout, eps, or tensors that are one.
ModelConfig saved_config(const EncoderModelImpl& model);

}  // namespace prenorm
