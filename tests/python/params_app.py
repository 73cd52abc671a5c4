"""The params program from outside: exit codes, messages, files of every kind, and each row of parameter_rejects.tsv.

    params_app.py PARAMS DATA_FOLDER
"""

import argparse
import csv
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TQDM_DISABLE"] = "1"
import safetensors.torch
import torch
import transformers

PROGRAM, DATA = sys.argv[1:3]
BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "F8_E4M3": 8, "U8": 8, "I8": 8,
        "BOOL": 8}
ROWS = {row["model"]: row for row in csv.DictReader(open(f"{DATA}/parameters.tsv"), delimiter="\t",
                                                    quoting=csv.QUOTE_NONE)}
tests, folder = [], ""


def test(function):
    tests.append(function)
    return function


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def count(*arguments):
    code, out, err = run("--json", *arguments)
    assert code == 0 and err == "", (code, err)
    return json.loads(out)


def refused(*arguments, code=1):
    """The one line on stderr."""
    got, out, err = run(*arguments)
    assert got == code and out == "", (got, out, err)
    assert err.startswith("params: ") and err.count("\n") == 1 and err.endswith("\n"), err
    return err


def path(name):
    full = os.path.join(folder, name)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    return full


def write(name, content):
    with open(path(name), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path(name)


def config(model, name="config.json", **changes):
    values = json.loads(ROWS[model]["config_json_compact"]) | changes
    return write(name, json.dumps({k: v for k, v in values.items() if v != "remove"}))


def sparse(name, tensors, metadata=None):
    """A safetensors file whose elements are a hole of zeros: {tensor: (dtype, shape)}."""
    header, end = {"__metadata__": metadata} if metadata else {}, 0
    for tensor, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * BITS[dtype] // 8
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path(name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return path(name)


def shapes(model_config):
    """Every parameter of a transformers model with its shape, tied ones under each name."""
    with torch.device("meta"):
        model = getattr(transformers, model_config["architectures"][0])(
            transformers.AutoConfig.for_model(**model_config))
    return {name: ("F32", list(p.shape)) for name, p in model.named_parameters(remove_duplicate=False)}


# --- the rows of parameter_rejects.tsv -------------------------------------------------------------------------------


def no_model_type():
    file = config("roberta-base (RobertaModel)", model_type="remove", architectures="remove")
    message = refused(file)
    assert "model_type" in message and "--model-type" in message
    assert count(file, "--model-type", "roberta")["total"] == 124645632


def no_dimensions():
    assert "no model dimensions found" in refused(write("config.json", '{"alignment_heads":[[1,2]],"lang_ids":[3]}'))


def old_remote_code_type():
    message = refused(write("config.json", '{"model_type":"mixformer-sequential","n_embd":2560,"n_layer":32,'
                                           '"n_inner":null,"n_head_kv":null,"vocab_size":51200}'))
    assert "mixformer-sequential" in message and "2516582400" in message


def unknown_type():
    message = refused(write("config.json", '{"model_type":"gpt99","hidden_size":8}'))
    assert "gpt99" in message and "12 d^2 L" not in message
    assert "gpt99" in refused(write("config.json", '{"model_type":"gpt99","text_config":"x"}'))


def not_json():
    message = refused(write("config.json", "{invalid"))
    assert "config.json" in message and "line 1, column 2" in message


def empty_file():
    for name in ("config.json", "model.safetensors", "model.pt"):
        assert "empty" in refused(write(name, ""))


def leading_newline():
    file = config("mistral-7b-v0.1", vocab_size=32768)
    assert count(write("config.json", "\n" + open(file).read()))["total"] == 7248023552


def no_final_newline():
    assert count(config('"gpt2-medium" folder with vocab 32000'))["total"] == 336128000


def utf8_bom():
    assert count(write("config.json", "\ufeff" + ROWS["gpt2"]["config_json_compact"]))["total"] == 124439808


def heads_do_not_divide():
    message = refused(config("llama-2-7b", hidden_size=512, num_attention_heads=10, num_key_value_heads=10))
    assert "512" in message and "10" in message
    message = refused(config("llama-2-7b", num_attention_heads=32, num_key_value_heads=5))
    assert "32" in message and "5" in message


def zero_or_negative():
    for key, value in (("num_hidden_layers", -1), ("hidden_size", 0), ("vocab_size", 1.5), ("vocab_size", "9"),
                       ("vocab_size", 2**64), ("vocab_size", None), ("hidden_size", 2**62)):
        message = refused(config("llama-2-7b", **{key: value}))
        assert key in message or value == 2**62, message


def sixty_four_bit():
    assert count(config("bloom-176b"))["total"] == 176247271424


GEMMA3 = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
          "text_config": {"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 2560, "head_dim": 256,
                          "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8,
                          "num_key_value_heads": 4},
          "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
                            "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
                            "num_channels": 3, "vision_use_head": False}}


def nested_text_config():
    assert count(write("config.json", json.dumps(GEMMA3)))["total"] == 4300079472
    cut = json.loads(json.dumps(GEMMA3))
    del cut["text_config"]["vocab_size"]
    assert "text_config.vocab_size is missing" in refused(write("config.json", json.dumps(cut)))


def lfs_pointer():
    for name in ("model.safetensors", "config.json"):
        file = write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
        assert "Git LFS pointer" in refused(file)


def truncated_header():
    assert "truncated" in refused(write("model.safetensors", struct.pack("<Q", 1000) + b"{" + b" " * 99))


def truncated_data():
    file = sparse("model.safetensors", {"wte.weight": ("F32", [10, 10])})
    os.truncate(file, os.path.getsize(file) - 1)
    message = refused(file)
    assert "wte.weight" in message and "truncated" in message


def header_too_large():
    refused(write("model.safetensors", struct.pack("<Q", 0x7FFFFFFFFFFFFFFF) + b"{}"))


def scalar():
    report = count(sparse("model.safetensors", {"scale": ("F32", [])}))
    assert (report["total"], report["bytes"]) == (1, 4)


def empty_dim():
    report = count(sparse("model.safetensors", {"none": ("F32", [0, 768])}))
    assert (report["total"], report["bytes"], report["extras_percent"]) == (0, 0, None)


def int_buffers():
    report = count(sparse("model.safetensors", {"w": ("F32", [278043648]), "position_ids": ("I64", [514])}))
    assert (report["total"], report["buffers"]) == (278043648, 514)
    assert report["by_dtype"] == {"F32": 278043648, "I64": 514}
    assert report["bytes"] == 4 * 278043648 + 8 * 514


def tied_twice():
    file = config("qwen3-0.6b", "qwen3/config.json")
    tensors = shapes(json.load(open(file)))
    alone = count(sparse("qwen3/model.safetensors", tensors))
    assert alone["total"] == 751632384 and any("tied duplicate" in note for note in alone["notes"])
    both = count(path("qwen3"))
    assert (both["file_total"], both["config_total"], both["total"]) == (751632384, 596049920, 596049920)
    assert [d["elements"] for d in both["differences"]] == [155582464] and "tied" in both["differences"][0]["reason"]
    assert both["exact"] and both["source"] == "config and file"


def shard_missing():
    sparse("model-00001-of-00002.safetensors", {"a": ("F32", [2])})
    index = {"metadata": {"total_size": 16}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                                                            "b": "model-00002-of-00002.safetensors"}}
    file = write("model.safetensors.index.json", json.dumps(index))
    assert "model-00002-of-00002.safetensors" in refused(file)
    sparse("model-00002-of-00002.safetensors", {"b": ("F32", [3])})
    report = count(file)
    assert report["total"] == 5 and any("total_size 16" in note and "20" in note for note in report["notes"])


def shard_underscore():
    report = count(sparse("model_00012-of-00072.safetensors", {"a": ("BF16", [4, 3])}))
    assert report["total"] == 12 and any("one shard of 00072" in note for note in report["notes"])


REJECTS = {name.replace("_", "-"): globals()[name] for name in (
    "no_model_type no_dimensions old_remote_code_type unknown_type not_json empty_file leading_newline no_final_newline "
    "utf8_bom heads_do_not_divide zero_or_negative nested_text_config lfs_pointer truncated_header truncated_data "
    "header_too_large scalar empty_dim int_buffers tied_twice shard_missing shard_underscore").split()}
REJECTS["64-bit"] = sixty_four_bit


@test
def every_reject_row():
    rows = [row["case"] for row in csv.DictReader(open(f"{DATA}/parameter_rejects.tsv"), delimiter="\t",
                                                  quoting=csv.QUOTE_NONE)]
    assert sorted(rows) == sorted(REJECTS), set(rows) ^ set(REJECTS)
    for row in rows:
        REJECTS[row]()


# --- section E of public.md ------------------------------------------------------------------------------------------


@test
def names_are_never_used_to_count():
    for name, row, total in (("gpt2", "gpt2-large (\"gpt2\" folder)", 774030080),
                             ("Qwen2.5-0.5B", "llama-2-7b", 6738415616),
                             ("bert-base-uncased", "\"bert-base-uncased\" folder with vocab 50265", 124696665)):
        config(row, f"{name}/config.json")
        report = count(path(name))
        assert report["total"] == total
        assert (report["label"] is None) == (name != "Qwen2.5-0.5B")
    assert round(count(path("Qwen2.5-0.5B"))["label"]["off_percent"]) == 1248
    assert "misleading" in run(path("Qwen2.5-0.5B"))[1]


@test
def a_missing_size_is_an_error_naming_it():
    for row, keys in (("bert-base-uncased (BertModel)", ("vocab_size", "hidden_size", "num_hidden_layers",
                                                         "num_attention_heads", "intermediate_size",
                                                         "max_position_embeddings", "type_vocab_size")),
                      ("mistral-7b-v0.1", ("num_key_value_heads", "intermediate_size")),
                      ("mixtral-8x7b", ("num_local_experts", "num_experts_per_tok")),
                      ("qwen3-30b-a3b", ("num_experts", "moe_intermediate_size")),
                      ("gpt2", ("n_embd", "n_positions", "n_layer", "n_head")),
                      ("t5-small", ("d_kv", "d_ff", "relative_attention_num_buckets")),
                      ("vit-b-16 at 384", ("image_size", "patch_size", "num_channels"))):
        for key in keys:
            assert f"{key} " in refused(config(row, **{key: "remove"})), key


@test
def derived_values_are_noted():
    notes = count(config("llama-2-7b", num_key_value_heads="remove"))["notes"]
    assert "num_key_value_heads is not in the file: num_attention_heads = 32" in notes
    notes = count(config("gemma-2b, tie key absent"))["notes"]
    assert "not in the file, so by the family's rule: attention_bias false, tie_word_embeddings true" in notes
    notes = count(config("bert-base-uncased seq-cls, labels absent"))["notes"]
    assert "neither id2label nor num_labels is in the file: 2 labels" in notes
    file = config("bert-base-uncased seq-cls, labels absent", id2label={str(i): "x" for i in range(151)})
    assert count(file)["total"] == 109598359


@test
def an_unknown_head_is_named():
    report = count(config("gpt2", architectures=["GPT2ForTelepathy"]))
    assert not report["exact"] and report["total"] == 124439808
    assert any("GPT2ForTelepathy" in note and "ForCausalLM" in note for note in report["notes"])
    assert "not exact" in run(path("config.json"))[1]
    assert "config, not exact" in run(path("config.json"), config("llama-2-7b", "other.json"))[1]


# --- files -----------------------------------------------------------------------------------------------------------


@test
def saved_models_agree_with_their_configs():
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
             "vocab_size": 99}
    for cls, kind, extra in ((transformers.BertForMaskedLM, "bert", {}), (transformers.GPT2LMHeadModel, "gpt2", {}),
                             (transformers.LlamaForCausalLM, "llama", {}), (transformers.T5ForConditionalGeneration, "t5", {}),
                             (transformers.MixtralForCausalLM, "mixtral", {"num_local_experts": 4, "num_key_value_heads": 2}),
                             (transformers.WhisperForConditionalGeneration, "whisper",
                              {"decoder_attention_heads": 4, "pad_token_id": 0})):
        model = cls(transformers.AutoConfig.for_model(kind, **small | extra))
        expected = sum(p.numel() for p in model.parameters())
        model.save_pretrained(path(kind))
        report = count(path(kind))
        assert (report["total"], report["file_total"], report["differences"]) == (expected, expected, []), kind
        assert report["exact"] and report["source"] == "config and file" and sum(report["by_dtype"].values()) >= expected, report


@test
def pt_files_count_shared_storage_once():
    weight = torch.zeros(10, 4)
    torch.save({"wte.weight": weight, "lm_head.weight": weight, "ids": torch.arange(7)}, path("model.pt"))
    report = count(path("model.pt"))
    assert (report["total"], report["buffers"], report["bytes"]) == (40, 7, 160 + 56)
    assert any("lm_head.weight" in note and "tied" in note for note in report["notes"])
    torch.jit.script(torch.nn.Linear(3, 5)).save(path("script.pt"))
    assert count(path("script.pt"))["total"] == 20
    torch.save({"optimizer": {}, "model": {"w": torch.zeros(3)}}, path("pytorch_model.bin"))
    assert count(path("pytorch_model.bin"))["total"] == 3


@test
def another_head_or_none_in_the_file_is_explained():
    file = config("bert-base-uncased (ForMaskedLM)", "bert/config.json")
    with_all = shapes(json.load(open(file)) | {"architectures": ["BertForPreTraining"]})
    del with_all["cls.predictions.decoder.weight"], with_all["cls.predictions.decoder.bias"]
    sparse("bert/model.safetensors", with_all)
    both = count(path("bert"))
    assert (both["file_total"], both["config_total"]) == (110106428, 109514298)
    assert both["differences"][0]["elements"] == 592130 and "ForPreTraining" in both["differences"][0]["reason"]

    file = config("llama-2-7b", "llama/config.json")
    tensors = {k: v for k, v in shapes(json.load(open(file))).items() if k != "lm_head.weight"}
    for i in range(32):
        tensors[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = ("F32", [64])
    sparse("llama/model.safetensors", tensors)
    both = count(path("llama"))
    assert both["buffers"] == 2048 and any("inv_freq: 2048" in note for note in both["notes"])
    assert both["differences"][0]["elements"] == -32000 * 4096 and both["exact"]

    sparse("llama/model.safetensors", tensors | {"extra": ("F32", [3])})
    both = count(path("llama"))
    assert not both["exact"] and "not explained" in both["differences"][0]["reason"]


@test
def known_parts_beside_the_model_are_explained():
    def differences(model, cls, remove=(), **more):
        file = config(model, "known/config.json", architectures=[cls])
        tensors = {k: v for k, v in shapes(json.load(open(file))).items() if not k.startswith(tuple(remove))}
        sparse("known/model.safetensors", tensors | {k: ("F32", shape) for k, shape in more.items()})
        report = count(path("known"))
        assert report["exact"] == all("not explained" not in d["reason"] for d in report["differences"])
        return {d["elements"]: d["reason"] for d in report["differences"] if "copy" not in d["reason"]}

    pooler = {"roberta.pooler.dense.weight": [768, 768], "roberta.pooler.dense.bias": [768]}
    found = differences("roberta-base (ForMaskedLM, file count)", "RobertaForMaskedLM", **pooler)
    assert list(found) == [590592] and "also holds pooler" in found[590592]
    found = differences("all-MiniLM-L6-v2", "BertModel", ["pooler"])
    assert list(found) == [-147840] and "holds no pooler" in found[-147840]
    found = differences("deberta-v3-base (DebertaV2Model)", "DebertaV2Model",
                        **{"lm_predictions.lm_head.bias": [128100], "mask_predictions.dense.weight": [768, 768]})
    assert set(found) == {128100, 589824}
    relative = {f"encoder.layer.{i}.attention.self.distance_embedding.weight": [1023, 64] for i in range(12)}
    found = differences("bert-base-uncased (BertModel)", "BertModel", **relative)
    assert list(found) == [785664] and "also holds distance_embedding" in found[785664]
    table = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": [32, 8]}
    assert list(differences("t5-small", "T5ForConditionalGeneration", **table)) == [256]
    assert "not explained" in str(differences("all-MiniLM-L6-v2", "BertModel", ["pooler"], other=[5]))


@test
def metadata_is_compared_and_never_trusted():
    tensors = {"wte.weight": ("F32", [5, 4]), "ids": ("I64", [3])}
    for metadata, expected in (({"total_parameters": "20"}, 0), ({"total_parameters": "333312"}, 1),
                               ({"total_size": "104"}, 0), ({"total_size": "x"}, 1), ({"format": "pt"}, 0),
                               ({"lm_head.weight": "wte.weight"}, 1)):
        report = count(sparse("meta.safetensors", tensors, metadata))
        notes = [note for note in report["notes"] if "metadata" in note or "tied" in note]
        assert report["total"] == 20 and len(notes) == expected, (metadata, notes)


@test
def t5_with_a_head_of_its_own():
    file = config("t5-small", "t5/config.json", tie_word_embeddings=False)
    sparse("t5/model.safetensors", shapes(json.load(open(file))))
    both = count(path("t5"))  # zeros everywhere: equal copies
    assert both["file_total"] - both["config_total"] == 3 * 32128 * 512 and both["exact"]


@test
def a_head_that_is_tied_by_the_config_alone():
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=4, d_ff=20, num_layers=1, num_heads=2))
    model.save_pretrained(path("flan"))
    tensors = safetensors.torch.load_file(path("flan/model.safetensors"))
    safetensors.torch.save_file(tensors | {"lm_head.weight": torch.randn(50, 16)}, path("flan/model.safetensors"))
    both = count(path("flan"))
    assert both["file_total"] - both["config_total"] == 800 and both["exact"]
    loaded = transformers.T5ForConditionalGeneration.from_pretrained(path("flan"))
    assert both["total"] == both["active"] == sum(p.numel() for p in loaded.parameters()) == both["config_total"] + 800
    assert "lm_head.weight is tied by the config, but differs" in both["differences"][0]["reason"]


@test
def packed_formats_are_counted_unpacked():
    state = json.dumps({"shape": [5, 3], "quant_type": "nf4"}).encode()
    safetensors.torch.save_file({
        "l.weight": torch.zeros(8, 1, dtype=torch.uint8), "l.weight.absmax": torch.zeros(1),
        "l.weight.quant_map": torch.zeros(16), "l.bias": torch.zeros(5),
        "l.weight.quant_state.bitsandbytes__nf4": torch.tensor(list(state), dtype=torch.uint8)}, path("bnb.safetensors"))
    report = count(path("bnb.safetensors"))
    assert (report["total"], report["exact"]) == (15 + 5, True)
    assert any("bitsandbytes" in note for note in report["notes"])
    for bits in (2, 3, 4, 8):
        tensors = {"l.qweight": ("I32", [128 * bits // 32, 64]), "l.qzeros": ("I32", [1, 64 * bits // 32]),
                   "l.scales": ("F16", [1, 64])}
        assert count(sparse("gptq.safetensors", tensors))["total"] == 128 * 64
        assert count(sparse("gptq.safetensors", tensors | {"l.g_idx": ("I32", [128])}))["total"] == 128 * 64
    awq = {"l.qweight": ("I32", [128, 8]), "l.qzeros": ("I32", [2, 8]), "l.scales": ("F16", [2, 64])}
    report = count(sparse("awq.safetensors", awq))
    assert report["total"] == 128 * 64 and any("AWQ" in note for note in report["notes"])
    safetensors.torch.save_file({"l.weight_packed": torch.zeros(64, 17, dtype=torch.int32),
                                 "l.weight_scale": torch.zeros(64, 2, dtype=torch.float16),
                                 "l.weight_shape": torch.tensor([64, 130])}, path("ct.safetensors"))
    assert count(path("ct.safetensors"))["total"] == 64 * 130
    int8 = {"l.weight": ("I8", [6, 4]), "l.SCB": ("F32", [6])}
    assert count(sparse("int8.safetensors", int8))["total"] == 24
    nvfp4 = {"l.weight": ("U8", [6, 16]), "l.weight_scale": ("F8_E4M3", [6, 2]), "l.weight_scale_2": ("F32", [])}
    assert (report := count(sparse("nv.safetensors", nvfp4)))["total"] == 192 and report["exact"]


@test
def mlx_is_exact_only_where_the_config_tells():
    def mlx(name, out, inputs, bits, group):
        return {f"{name}.weight": ("U32", [*out, inputs * bits // 32]), f"{name}.scales": ("F16", [*out, inputs // group]),
                f"{name}.biases": ("F16", [*out, inputs // group])}

    def counted(tensors, **quantization):
        sparse("mlx/model.safetensors", tensors)
        write("mlx/config.json", json.dumps({"quantization": quantization} if quantization else {"x": 1}))
        report = count(path("mlx"))
        return report["total"], report["exact"], report["buffers"]

    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            tensors = mlx("l", [64], 128, bits, group)
            constants = 2 * 64 * 128 // group
            assert counted(tensors, group_size=group, bits=bits) == (8192, True, constants)
            if group == 64:
                assert counted(tensors) == (8192, False, constants)
            assert not counted(tensors, group_size=group, bits=7)[1]
    report = count(path("mlx/model.safetensors"))
    assert not report["exact"] and any("groups of" in note for note in report["notes"])
    # Another grouping for one module, a switch layer of experts, and 4-bit floats without biases.
    tensors = mlx("a", [64], 128, 4, 64) | mlx("model.b", [3, 64], 128, 8, 32)
    tensors |= {"c.weight": ("U32", [64, 16]), "c.scales": ("U8", [64, 4])}
    told = {"model.b": {"group_size": 32, "bits": 8}, "c": {"group_size": 32, "bits": 4, "mode": "mxfp4"}, "d": False}
    assert counted(tensors, group_size=64, bits=4, **told)[:2] == (5 * 8192, True)


@test
def a_packing_that_nobody_tells_is_not_exact():
    for tensors in ({"l.W_q": ("U8", [32, 8])}, {"l.q_weight": ("I32", [8, 8])}, {"l.codes": ("I16", [8, 8, 1])},
                    {"l.weight": ("I8", [6, 4])}, {"l.weight": ("U32", [6, 4]), "l.scales": ("F16", [6, 4])},
                    {"l.weight": ("U8", [6, 4]), "l.weight_scale": ("F32", [6])}, {"l.weight": ("I64", [9])}):
        report = count(sparse("unknown.safetensors", tensors))
        assert not report["exact"] and any("assumed" in note for note in report["notes"]), tensors
    known = {"ids": ("I32", [9]), "e.position_ids": ("I32", [1, 9]), "index": ("I64", [4, 4]), "seen": ("BOOL", [4, 4]),
             "attn.relative_position_index": ("I32", [4, 4])}
    report = count(sparse("known.safetensors", known))
    assert report["exact"] and (report["total"], report["buffers"]) == (0, 66)


@test
def what_never_trains_is_told_apart_by_name():
    buffers = {"blocks.0.attn.mask": [1, 1, 8, 8], "blocks.0.att.mask": [8, 8], "h.0.attn.bias": [1, 1, 8, 8],
               "h.0.attention.bias": [8, 8], "h.0.attn.masked_bias": [], "sa.heads.0.tril": [8, 8], "causal_mask": [8, 8],
               "l.attn_mask": [4, 7, 7], "rotary_emb.inv_freq": [4], "rope.freqs": [4], "freqs_cis": [8, 4],
               "l.rotary_emb.cos_cached": [8, 4], "sin": [8, 4], "pos_encoder.pe": [1, 8, 4], "positional_encoding": [8, 4],
               "n.running_mean": [4], "n.num_batches_tracked": [], "embeddings.position_ids": [1, 8], "cache_k": [1, 8],
               "attn.relative_coords_table": [1, 3, 3, 2], "alibi": [4, 1, 1], "embed_positions.weights": [8, 4]}
    for name, shape in buffers.items():
        report = count(sparse("buffer.safetensors", {"w": ("F32", [4, 4]), name: ("F32", shape)}))
        assert (report["total"], report["buffers"], report["exact"]) == (16, math.prod(shape), True), name
    trained = {"mask_token": [1, 8], "pos_embed": [1, 8, 4], "wpe.weight": [8, 4], "attn.bias": [4], "attn.proj.bias": [4],
               "attn.bias_table": [9, 2], "head.bias": [8, 8], "attn.scale": [1], "position_embeddings.weight": [8, 4],
               "attn.rel_bias.bias": [1, 3, 8, 8], "rotary_proj.weight": [2, 2], "mask_head.weight": [2, 2]}
    for name, shape in trained.items():
        report = count(sparse("trained.safetensors", {name: ("F32", shape)}))
        assert (report["total"], report["buffers"]) == (math.prod(shape), 0), name


@test
def state_dicts_and_scripts_of_other_kinds():
    state, other = {"w": torch.zeros(3, 4)}, {"w": torch.zeros(5)}
    torch.save({"params_ema": state, "params": other}, path("two.pt"))
    assert '"params_ema", "params"' in refused(path("two.pt"))
    assert count(path("two.pt"), "--entry", "params")["total"] == 5
    assert 'no entry "x"' in refused(path("two.pt"), "--entry", "x")
    torch.save({"net": state, "args": argparse.Namespace(lr=1), "epoch": 3}, path("net.pt"))
    report = count(path("net.pt"))
    assert report["total"] == 12 and any("left out" in n and "args, epoch" in n for n in report["notes"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.freeze(torch.jit.script(torch.nn.Linear(3, 5).eval())).save(path("frozen.ts"))
    report = count(path("frozen.ts"))
    assert report["total"] == 20 and not report["exact"] and any("frozen" in note for note in report["notes"])


@test
def llama_in_four_bits_has_the_count_of_its_config():
    file = config("llama-3.1-8b", "llama4/config.json")
    tensors = {}
    for name, (_, shape) in shapes(json.load(open(file))).items():
        if len(shape) == 2 and ".layers." in name:
            tensors[name] = ("U8", [shape[0] * shape[1] // 2, 1])
            tensors[name + ".absmax"] = ("U8", [shape[0] * shape[1] // 64])
        else:
            tensors[name] = ("BF16", shape)
    sparse("llama4/model.safetensors", tensors)
    both = count(path("llama4"))
    assert (both["file_total"], both["total"], both["differences"]) == (8030261248, 8030261248, [])


@test
def the_module_tree_goes_down_to_the_depth():
    tensors = {f"encoder.layers.{i}.mlp.weight": ("F32", [8, 4]) for i in range(12)} | {"head.weight": ("F32", [3, 4])}
    file = sparse("tree.safetensors", tensors)
    assert "mlp" not in run(file, "--depth", 2)[1] and "0-11" in run(file, "--depth", 3)[1]
    assert "97.0 %" in run(file, "--depth", 1)[1] and "8*4 F32" in run(file, "--depth", 9)[1]


@test
def a_file_without_config_shows_the_rule():
    report = count(sparse("gpt2.safetensors", shapes(json.loads(ROWS["gpt2"]["config_json_compact"]))))
    assert (report["layers"], report["d_model"], report["rule_12d2L"]) == (12, 768, 84934656)
    assert report["embedding"] is None and report["source"] == "file"


@test
def folders():
    os.makedirs(path("empty"))
    assert "neither" in refused(path("empty"))
    config("gpt2", "config_only/config.json")
    assert count(path("config_only"))["source"] == "config"
    sparse("weights_only/weights.safetensors", {"a": ("F32", [2])})
    assert count(path("weights_only"))["total"] == 2
    write("unknown/config.json", '{"model_type":"gpt99"}')
    sparse("unknown/model.safetensors", {"a": ("F32", [2])})
    report = count(path("unknown"))
    assert report["total"] == 2 and any("gpt99" in note for note in report["notes"])
    assert "no such file" in refused(path("missing.json")).lower()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    assert "Git LFS pointer" in refused(os.path.dirname(write("pointer/config.json", pointer)))
    os.mkfifo(path("pipe/config.json"))  # neither waited for nor read without end
    os.symlink("/dev/zero", path("zeros/config.json"))
    for name in ("pipe", "zeros"):
        assert "config.json: is not a regular file" in refused(path(name))


# --- dimensions, output, usage ---------------------------------------------------------------------------------------


@test
def dimensions():
    code, out, _ = run("--d-model", 512, "--heads", 8, "--layers", 1)
    assert code == 0 and all(n in out for n in ("3,150,336", "3,147,776", "1,048,576", "2,099,712", "2,048", "2,560"))
    base = ["--d-model", 512, "--layers", 12]
    plain = 12 * 3150336
    for options, extra in (([], 0), (["--final-norm"], 1024), (["--attention-bias"], 12 * 2048),
                           (["--no-feed-forward-bias"], -12 * 2560), (["--vocab-size", 1000], 512000),
                           (["--positions", 100], 51200), (["--segments", 2], 1024), (["--classes", 3], 1539)):
        assert count(*base, *options)["total"] == plain + extra, options
    report = count(*base)
    assert report["rule_12d2L"] == 12 * 512 * 512 * 12
    assert abs(report["extras_percent"] - 100 * (plain - 37748736) / plain) < 1e-9
    assert count("--d-model", "0512", "--layers", "+012", "--heads", "08")["total"] == plain
    assert count("--d-model", "0100", "--layers", "01", "--d-ff", "010")["total"] == 4 * 10000 + 2 * 1000 + 10 + 100 + 400
    assert count("--d-model", 100, "--layers", 1)["total"] == 12 * 100 * 100 + 500 + 400
    assert "not divisible" in refused("--d-model", 512, "--layers", 1, "--heads", 10)
    assert "d_model" in refused("--d-model", 0, "--layers", 1)
    assert "64 bits" in refused("--d-model", 2**60, "--layers", 1)


@test
def backwards():
    report = count("--total", "37,804,032", "--d-model", 512)
    assert report["exact"] and report["candidates"][0]["num_layers"] == 12
    report = count("--total", 37804032, "--layers", 12)
    assert report["exact"] and report["candidates"][0]["d_model"] == 512
    best = count("--total", "7B", "--layers", 32, "--vocab-size", 32000)["candidates"][0]
    assert best["d_model"] == 4224 and abs(best["error_percent"]) < 0.2
    assert "+0.68 %" in run("--total", "7B", "--d-model", 4096)[1]
    refused("--total", "many", "--layers", 3)


@test
def several_inputs_make_one_table():
    one, two = config("gpt2", "gpt2-0.1b/config.json"), config("llama-3.2-1b", "two/config.json")
    reports = count(one, two)
    assert [r["total"] for r in reports] == [124439808, 1235814400]
    out = run(one, two)[1]
    assert len(out.splitlines()) == 3 and "124,439,808" in out and "1,235,814,400" in out
    bad = write("bad.json", '{"model_type":"gpt99"}')
    for order in ((one, bad), (bad, one)):
        code, out, err = run(*order)
        assert code == 1 and "124,439,808" in out and "gpt99" in err and err.count("\n") == 1
        assert [r["total"] for r in json.loads(run("--json", *order)[1])] == [124439808]
    message = refused(bad, path("missing.json"))
    assert "gpt99" in message and "missing.json" in message


@test
def the_files_of_a_run_folder():
    ours = {"model_type": "prenorm", "version": 1, "vocab_size": 9, "d_model": 8, "num_heads": 2, "num_layers": 1}
    model = write("run/config.json", json.dumps(ours))
    total = count(model)["total"]
    others = [write("run/metrics.jsonl", '{"step":1}\n{"step":2}\n'), write("run/run.json", '{"d-model":8,"layers":1}'),
              write("run/vocabulary.json", '{"version":1,"tokens":["a"]}'), write("run/README.md", "# run\n"),
              sparse("run/example.safetensors", {"ids": ("I64", [4])}), path("run/checkpoints"),
              write("run/vocab.json", '{"dim":27740}'), write("run/modules.json", '[{"idx":0}]'),
              write("run/tokenizer.model", "\n\x0e")]
    write("run/checkpoints/step-1/config.json", json.dumps(ours))
    code, out, err = run(model, *others)
    assert code == 0 and f"{total:,}" in out and len(out.splitlines()) == 2
    assert err.startswith("params: no models, skipped: ") and err.count("\n") == 1
    assert all(os.path.basename(other) in err for other in others)
    assert "none of the inputs is a model" in run(*others)[2] and run(*others)[0] == 1
    assert "neither a config.json nor a file of tensors" in refused(others[0])
    assert "no model dimensions" in refused(others[1])


@test
def json_members_are_stable():
    keys = ("input source exact model_type architecture total active embedding non_embedding buffers bytes by_dtype "
            "rule_12d2L extras_percent layers d_model label memory config_total file_total differences candidates "
            "components notes").split()
    for arguments in ([config("gpt2")], ["--d-model", 8, "--layers", 2], [sparse("m.safetensors", {"a": ("F32", [2])})]):
        assert list(count(*arguments)) == keys
    memory = count(config("gpt2"))["memory"]
    assert memory["bfloat16"] == 2 * 124439808 and memory["adamw_float32"] == 16 * 124439808


@test
def own_model():
    ours = {"model_type": "prenorm", "version": 1, "vocab_size": 100, "d_model": 64, "num_heads": 4, "num_layers": 2}
    layer = 4 * 64 * 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64
    assert count(write("config.json", json.dumps(ours)))["total"] == 6400 + 2 * layer + 128
    more = ours | {"position": "learned", "max_positions": 20, "num_segments": 2, "embedding_norm": True,
                   "attention_bias": True, "final_norm": False, "head": "token", "num_classes": 5}
    assert count(write("config.json", json.dumps(more)))["total"] == 6400 + 22 * 64 + 128 + 2 * (layer + 256) + 325
    assert "d_model is missing" in refused(write("config.json", json.dumps({k: v for k, v in ours.items()
                                                                             if k != "d_model"})))


@test
def usage():
    for arguments in ([], ["--no-such-option"], ["--d-model", "wide", "--layers", 1], ["--d-model", 512],
                      ["--layers"], [config("gpt2"), "--d-model", 512], ["--depth", "-1", config("gpt2")],
                      ["--d-model", 8, "--layers", 2, "--total", "7B"], ["--d-model", "0x10", "--layers", 1],
                      ["--d-model", 8, "--layers", 1, "--model-type", "bert"], ["--total", "7B", "--layers", 1, "--entry", "a"],
                      ["--d-model", 8, "--d-model", 9, "--layers", 1]):
        refused(*arguments, code=2)
    assert "num_layers is -1" in refused("--d-model", 8, "--layers", -1)
    code, out, err = run("--help")
    assert code == 0 and "--model-type" in out and err == ""


@test
def hostile_names_stay_on_one_line():
    assert "\x1b" not in refused(write("a\x1b[31m\nb.json", "{"))
    assert "\x7f" not in refused(write("a\x7fb.json", "{"))
    file = sparse("n.safetensors", {"a\x1b[31m\nb.weight": ("F32", [2]), ".".join("x" * 5000): ("F32", [3])})
    code, out, _ = run(file, "--depth", 50)
    assert len([line for line in out.splitlines() if "?[31m" in line]) == 1
    tied = sparse("t\x1b.safetensors", {"lm_head.weight": ("F32", [2, 2]), "x\x1b.wte.weight": ("F32", [2, 2])})
    assert "\x1b" not in run(tied)[1] and "x?.wte.weight" in run(tied)[1]
    assert code == 0 and "\x1b" not in out and count(file)["total"] == 5
    for text in ("[" * 1000000, '{"a":' * 100000 + "1" + "}" * 100000):
        assert "deep.json: JSON nested more than 100 deep at line 1, column" in refused(write("deep.json", text))
    assert "comments.json: not valid JSON at line 2, column 1" in refused(write("comments.json", "{\n// a\n}"))
    assert 'twice.json: the key "n_embd" stands twice' in refused(write("twice.json", '{"n_embd":1,"n_embd":2}'))
    assert "too many" in refused(write("long.json", "[" + "[]," * 4000000))


for one in tests:
    with tempfile.TemporaryDirectory() as folder:
        try:
            one()
        except Exception:
            print(f"failed: {one.__name__}")
            raise
print(f"{len(tests)} tests passed")
