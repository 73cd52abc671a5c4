"""prenorm's numbers beside eager Python's, from the same weights: forward, every gradient, ten steps of AdamW.

    parity.py PARITY_PROGRAM

The references are the lesson (apps/lesson.py) and torch.nn.TransformerEncoder.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
import lesson

torch.backends.mha.set_fastpath_enabled(False)  # the fast path gives other numbers and lengths
torch.set_num_threads(1)

B, T, D, H, V, C = 3, 5, 12, 2, 7, 4  # all different, D / H too
LENGTHS = torch.tensor([5, 2, 4])
REAL = torch.arange(T) < LENGTHS.unsqueeze(1)
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()

BASE = {"model_type": "prenorm", "version": 1, "vocab_size": V, "d_model": D, "num_heads": H, "num_layers": 2,
        "d_ff": 0, "dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0, "activation": "gelu",
        "norm_placement": "pre", "norm_eps": 1e-5, "final_norm": None, "attention_bias": False,
        "feed_forward_bias": True, "position": "learned", "max_positions": 6, "num_segments": 0,
        "embedding_norm": False, "head": "token", "num_classes": C}


def masks(dtype):
    """name -> (what prenorm is given, what the lesson is given, which queries are compared)."""
    everywhere = torch.ones(B, T, dtype=torch.bool)
    generator = torch.Generator().manual_seed(5)
    per_head = (torch.rand(B, H, T, T, generator=generator) < 0.6) | torch.eye(T, dtype=torch.bool)
    added = torch.randn(B, 1, T, T, generator=generator).to(dtype)
    left = REAL.flip(1)
    keys = REAL[:, None, None, :]
    return {
        "none": ({}, None, everywhere),
        "causal": ({"causal": torch.ones(())}, CAUSAL, everywhere),
        "lengths": ({"lengths": LENGTHS}, keys, REAL),
        "padding": ({"padding": REAL}, keys, everywhere),
        "left and causal": ({"padding": left, "causal": torch.ones(())}, CAUSAL & left[:, None, None, :], everywhere),
        "per head": ({"dense": per_head}, per_head, everywhere),
        "added": ({"dense": added}, added, everywhere),
        "added, lengths, causal": ({"dense": added, "lengths": LENGTHS, "causal": torch.ones(())},
                                   added.masked_fill(~(CAUSAL & keys), -torch.inf), REAL),
    }


def ten_steps(module, loss):
    matrices = [p for p in module.parameters() if p.dim() >= 2]
    vectors = [p for p in module.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-2)
    for _ in range(10):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


class Parity(unittest.TestCase):
    program = ""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.cases = {}
        self.addCleanup(self.folder.cleanup)

    def add(self, name, config, inputs, expected, tolerance):
        path = pathlib.Path(self.folder.name) / f"case{len(self.cases)}"
        path.with_suffix(".json").write_text(json.dumps(config))
        torch.save(inputs, path.with_suffix(".in.pt"))
        self.cases[path] = (name, expected, tolerance)

    def check_all(self):
        subprocess.run([self.program, self.folder.name], check=True)
        self.assertTrue(self.cases)
        for path, (name, expected, tolerance) in self.cases.items():
            actual = torch.load(path.with_suffix(".out.pt"), weights_only=False)
            for key, want in expected.items():
                got = actual[key]
                with self.subTest(case=name, key=key):
                    self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
                    difference = (got - want).abs().max().item()
                    self.assertLessEqual(difference, tolerance * max(1.0, want.abs().max().item()))

    def add_lesson(self, name, dtype, mask, compare_training=True, **changes):
        torch.manual_seed(len(self.cases))
        config = BASE | changes
        model = lesson.EncoderModel(config).to(dtype)
        ids = torch.randint(V, (B, T))
        given, reference, compared = masks(dtype)[mask]
        real = REAL if "lengths" in given or "padding" in given else None
        segments = torch.randint(config["num_segments"], (B, T)) if config["num_segments"] else None
        forward = lambda: model(ids, reference, segments, real)
        per_token = forward().dim() == 3
        shown = compared.unsqueeze(-1) if per_token else torch.ones((), dtype=torch.bool)
        upstream = torch.randn(forward().shape, dtype=dtype) * shown
        inputs = given | {"ids": ids, "upstream": upstream} | {"state." + key: value.clone()
                                                               for key, value in model.state_dict().items()}
        if segments is not None:
            inputs["segments"] = segments
        loss = lambda: (forward() * upstream).sum()
        loss().backward()
        expected = {"output": forward().detach() * shown if mask not in ("padding", "left and causal")
                    else forward().detach()}
        expected |= {"gradient." + key: value.grad.clone() for key, value in model.named_parameters()}
        if compare_training:
            ten_steps(model, loss)
            expected |= {"trained." + key: value.detach() for key, value in model.named_parameters()}
        self.add(f"{name}, {mask}, {dtype}", config, inputs, expected,
                 1e-12 if dtype == torch.double else 1e-5)

    def test_lesson(self):
        for dtype in (torch.float, torch.double):
            exact = dtype == torch.double  # Adam amplifies the rounding of float where the gradient is nearly zero
            for placement in ("pre", "post"):
                for mask in masks(dtype):
                    self.add_lesson(placement, dtype, mask, exact, norm_placement=placement)
            for changes in ({"activation": "gelu_tanh"}, {"activation": "relu"}, {"activation": "silu", "d_ff": 7},
                            {"feed_forward_bias": False, "norm_bias": False}, {"final_norm": False}, {"norm_eps": 1e-2},
                            {"norm_placement": "post", "final_norm": True}, {"position": "sinusoidal"},
                            {"position": "none"}, {"embedding_norm": True, "num_segments": 2},
                            {"embedding_norm": True, "norm_placement": "post", "norm_bias": False},
                            {"head": "none", "num_classes": 0}, {"head": "sequence_mean"}, {"head": "sequence_first"},
                            {"position_offset": 1}, {"causal": True},
                            {"d_model": 9, "num_heads": 3, "position": "sinusoidal"}, {"num_heads": 1}, {"num_heads": 12}):
                self.add_lesson(str(changes), dtype, "lengths", exact, **changes)
            # The bias of the keys moves no score: its gradient is noise, which Adam would blow up.
            self.add_lesson("attention biases", dtype, "padding", False, attention_bias=True)
        self.check_all()

    def test_attention_maps_and_hidden_states(self):
        torch.manual_seed(1)
        model = lesson.EncoderModel(BASE).double()
        ids = torch.randint(V, (B, T))
        given, reference, _ = masks(torch.double)["left and causal"]
        expected = {}
        x = model.embeddings(ids)
        for i, layer in enumerate(model.encoder.layers):
            expected[f"weights.{i}"] = layer.mha(layer.sub1.norm(x), reference)[1].detach()
            x = layer(x, reference)
            expected[f"hidden.{i}"] = (model.encoder.norm(x) if i == 1 else x).detach()
        state = {"state." + key: value for key, value in model.state_dict().items()}
        upstream = torch.zeros(B, T, C, dtype=torch.double)
        self.add("inspect", BASE, given | state | {"ids": ids, "upstream": upstream}, expected, 1e-12)
        self.check_all()

    def test_torch_transformer_encoder(self):
        names = {"self_attn.in_proj_weight": "mha.in_proj.weight", "self_attn.in_proj_bias": "mha.in_proj.bias",
                 "self_attn.out_proj.weight": "mha.out_proj.weight", "self_attn.out_proj.bias": "mha.out_proj.bias",
                 "linear1.weight": "ff.net.0.weight", "linear1.bias": "ff.net.0.bias",
                 "linear2.weight": "ff.net.3.weight", "linear2.bias": "ff.net.3.bias",
                 "norm1.weight": "sub1.norm.weight", "norm1.bias": "sub1.norm.bias",
                 "norm2.weight": "sub2.norm.weight", "norm2.bias": "sub2.norm.bias"}

        def ours(key):
            parts = key.split(".", 2)
            return "encoder." + (f"layers.{parts[1]}.{names[parts[2]]}" if parts[0] == "layers" else key)

        for dtype in (torch.float, torch.double):
            for norm_first in (True, False):
                for activation in ("gelu", "relu"):
                    for masked in (False, True):
                        torch.manual_seed(len(self.cases))
                        layer = nn.TransformerEncoderLayer(D, H, 20, dropout=0.0, activation=activation,
                                                           norm_first=norm_first, batch_first=True, dtype=dtype)
                        model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D, dtype=dtype) if norm_first else None)
                        for parameter in model.parameters():  # nn clones one layer: make the layers differ
                            nn.init.normal_(parameter, std=0.3)
                        x = torch.randn(B, T, D, dtype=dtype)
                        given = {"padding": REAL, "causal": torch.ones(())} if masked else {}
                        hidden = {"mask": ~CAUSAL, "src_key_padding_mask": ~REAL} if masked else {}
                        upstream = torch.randn(B, T, D, dtype=dtype)
                        output = model(x, **hidden)
                        (output * upstream).sum().backward()
                        config = BASE | {"d_ff": 20, "attention_bias": True, "activation": activation,
                                         "norm_placement": "pre" if norm_first else "post", "head": "none"}
                        state = {"state." + ours(key): value.clone() for key, value in model.state_dict().items()}
                        state["state.embeddings.token.weight"] = torch.zeros(V, D, dtype=dtype)
                        state["state.embeddings.position.weight"] = torch.zeros(6, D, dtype=dtype)
                        expected = {"output": output.detach()}
                        expected |= {"gradient." + ours(key): value.grad.clone() for key, value in model.named_parameters()}
                        if dtype == torch.double:
                            ten_steps(model, lambda: (model(x, **hidden) * upstream).sum())
                            expected |= {"trained." + ours(key): value.detach()
                                         for key, value in model.named_parameters() if "in_proj_bias" not in key}
                        self.add(f"nn norm_first={norm_first} {activation} masked={masked} {dtype}", config,
                                 given | state | {"x": x, "upstream": upstream}, expected,
                                 1e-10 if dtype == torch.double else 1e-5)
        self.check_all()

    def test_torch_attention(self):
        """nn.MultiheadAttention (True: ignore) and scaled_dot_product_attention (True: attend), inside one layer whose
        feed-forward block adds nothing."""
        for dtype in (torch.float, torch.double):
            for masked in (False, True):
                torch.manual_seed(len(self.cases))
                mha = nn.MultiheadAttention(D, H, batch_first=True, dtype=dtype)
                nn.init.normal_(mha.in_proj_bias)
                x = torch.randn(B, T, D, dtype=dtype)
                normalised = nn.functional.layer_norm(x, (D,))
                seen = CAUSAL & REAL[:, None, :] if masked else torch.ones(B, T, T, dtype=torch.bool)
                output, weights = mha(normalised, normalised, normalised, average_attn_weights=False,
                                      attn_mask=~seen.repeat_interleave(H, 0))
                q, k, v = (part.view(B, T, H, D // H).transpose(1, 2) for part in nn.functional.linear(
                    normalised, mha.in_proj_weight, mha.in_proj_bias).chunk(3, -1))
                sdpa = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen.unsqueeze(1))
                sdpa = mha.out_proj(sdpa.transpose(1, 2).reshape(B, T, D))
                self.assertLessEqual((sdpa - output).abs().max().item(), 1e-6)
                config = BASE | {"num_layers": 1, "attention_bias": True, "final_norm": False, "head": "none"}
                state = lesson.EncoderModel(config).to(dtype).state_dict()
                layer = "encoder.layers.0."
                state |= {layer + "mha.in_proj.weight": mha.in_proj_weight, layer + "mha.in_proj.bias": mha.in_proj_bias,
                          layer + "mha.out_proj.weight": mha.out_proj.weight,
                          layer + "mha.out_proj.bias": mha.out_proj.bias,
                          layer + "ff.net.3.weight": torch.zeros(D, 4 * D, dtype=dtype),
                          layer + "ff.net.3.bias": torch.zeros(D, dtype=dtype)}
                inputs = {"x": x, "upstream": torch.zeros_like(x)} | ({"dense": seen} if masked else {})
                inputs |= {"state." + key: value.detach().clone() for key, value in state.items()}
                self.add(f"nn.MultiheadAttention masked={masked} {dtype}", config, inputs,
                         {"output": x + output.detach(), "weights.0": weights.detach()},
                         1e-10 if dtype == torch.double else 1e-6)
        self.check_all()


if __name__ == "__main__":
    Parity.program = sys.argv.pop(1)
    unittest.main()
