"""The course's encoder (modules 5 and 6) in eager Python, with the keys of prenorm's state dicts.

What compare.py and the tests hold prenorm's numbers against: written from the lesson's formulas, as plainly as it goes,
without fused kernels or options for speed.
`mask` is as in prenorm: bool (True: may attend) or floating (added), broadcastable to [B, H, T, T].
"""

import math

import torch
from torch import nn

ACTIVATIONS = {"gelu": lambda: nn.GELU(), "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "relu": nn.ReLU,
               "silu": nn.SiLU}


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, bias=False, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        batch, length, d_model = x.shape
        q, k, v = (part.view(batch, length, self.num_heads, -1).transpose(1, 2)
                   for part in self.in_proj(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(d_model // self.num_heads)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        dead = (scores == -math.inf).all(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(dead, 0.0), dim=-1).masked_fill(dead, 0.0)
        y = self.drop(weights) @ v
        return self.out_proj(y.transpose(1, 2).reshape(batch, length, d_model)), weights


class SubLayerConnection(nn.Module):
    def __init__(self, d_model, dropout=0.1, placement="pre", eps=1e-5, norm_bias=True):
        super().__init__()
        self.placement = placement
        self.norm = nn.LayerNorm(d_model, eps=eps, bias=norm_bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        if self.placement == "pre":
            return x + self.drop(sublayer(self.norm(x)))
        return self.norm(x + self.drop(sublayer(x)))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff=0, dropout=0.1, activation="gelu", bias=True):
        super().__init__()
        d_ff = d_ff or 4 * d_model
        self.net = nn.Sequential(nn.Linear(d_model, d_ff, bias=bias), ACTIVATIONS[activation](), nn.Dropout(dropout),
                                 nn.Linear(d_ff, d_model, bias=bias))

    def forward(self, x):
        return self.net(x)


class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_model, dropout = config["d_model"], config["dropout"]
        self.mha = MultiHeadAttention(d_model, config["num_heads"], config["attention_bias"],
                                      config["attention_dropout"])
        self.ff = FeedForward(d_model, config["d_ff"], dropout, config["activation"], config["feed_forward_bias"])
        norm = config["norm_placement"], config["norm_eps"], config.get("norm_bias", True)
        self.sub1 = SubLayerConnection(d_model, dropout, *norm)
        self.sub2 = SubLayerConnection(d_model, dropout, *norm)

    def forward(self, x, mask=None):
        x = self.sub1(x, lambda y: self.mha(y, mask)[0])
        return self.sub2(x, self.ff)


def norm_of(config):
    return nn.LayerNorm(config["d_model"], eps=config["norm_eps"], bias=config.get("norm_bias", True))


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config["num_layers"]))
        final_norm = config["final_norm"]
        if final_norm is None:
            final_norm = config["norm_placement"] == "pre"
        self.norm = norm_of(config) if final_norm else nn.Identity()

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


def sinusoidal_table(length, d_model, dtype):
    table = torch.zeros(length, d_model, dtype=torch.double)
    for t in range(length):
        for i in range(d_model):
            angle = t / 10000 ** (i // 2 * 2 / d_model)
            table[t, i] = math.cos(angle) if i % 2 else math.sin(angle)
    return table.to(dtype)


class Position(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.kind = config["position"]
        self.offset = config.get("position_offset", 0)
        if self.kind == "learned":
            self.weight = nn.Parameter(torch.randn(config["max_positions"], config["d_model"]))

    def forward(self, x):
        if self.kind == "none":
            return x
        length, d_model = x.shape[1:]
        if self.kind == "learned":
            return x + self.weight[self.offset:self.offset + length]
        return x + sinusoidal_table(length, d_model, x.dtype)


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_model = config["d_model"]
        self.token = nn.Embedding(config["vocab_size"], d_model)
        self.position = Position(config)
        self.segment = nn.Embedding(config["num_segments"], d_model) if config["num_segments"] else None
        self.norm = norm_of(config) if config["embedding_norm"] else nn.Identity()
        self.drop = nn.Dropout(config["embedding_dropout"])

    def forward(self, ids, segment_ids=None):
        x = self.position(self.token(ids))
        if self.segment is not None:
            x = x + self.segment(torch.zeros_like(ids) if segment_ids is None else segment_ids)
        return self.drop(self.norm(x))


class EncoderModel(nn.Module):
    """From a parsed config.json. `real` [B, T] (bool) tells the sequence heads which tokens count."""

    def __init__(self, config):
        super().__init__()
        self.kind = config["head"]
        self.causal = config.get("causal", False)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.head = nn.Linear(config["d_model"], config["num_classes"]) if self.kind != "none" else nn.Identity()
        if config.get("tie_head"):
            self.head.weight = self.embeddings.token.weight

    def forward(self, ids, mask=None, segment_ids=None, real=None):
        if self.causal:
            past = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
            if mask is None:
                mask = past
            else:
                mask = mask & past if mask.dtype == torch.bool else mask.masked_fill(~past, -math.inf)
        x = self.encoder(self.embeddings(ids, segment_ids), mask)
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        if self.kind == "sequence_first":
            x = x[torch.arange(len(ids)), real.int().argmax(1)]
        elif self.kind == "sequence_mean":
            x = (x * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        return self.head(x)
