"""Random configurations of every family: `params --json` against transformers on the meta device; two models of each
family also as saved files, whose counts must agree with their configs.

    params_random.py PARAMS [CASES_PER_FAMILY [SEED]]
"""

import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TQDM_DISABLE"] = "1"
import torch
import transformers

rng = random.Random()


def pick(*values):
    return rng.choice(values)


def maybe(config, key, *values):
    """A key that may be missing."""
    if rng.random() < 0.6:
        config[key] = pick(*values)


def heads(config, width_key, heads_key, kv_key=None, kv_absent=False, head_dim=False):
    """A width that the heads divide, with key-value heads that divide the heads."""
    n = pick(1, 2, 3, 4, 6, 8)
    config[heads_key] = n
    config[width_key] = n * pick(2, 4, 6, 10)
    if kv_key:
        config[kv_key] = pick(*[k for k in range(1, n + 1) if n % k == 0])
        if kv_absent and rng.random() < 0.3:
            if rng.random() < 0.5:
                del config[kv_key]
            else:
                config[kv_key] = None
    if head_dim and rng.random() < 0.6:
        config["head_dim"] = pick(2, 4, 6, 8, 12)


def labels(config):
    kind = pick("absent", "number", "map")
    n = pick(1, 2, 3, 7, 30)
    if kind == "number":
        config["num_labels"] = n
    elif kind == "map":
        config["id2label"] = {str(i): f"label {i}" for i in range(n)}


ENCODER_HEADS = ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice", "Model"]


def bert_like(prefix, extra):
    def build():
        c = {"vocab_size": pick(5, 50, 99), "max_position_embeddings": pick(8, 20), "type_vocab_size": pick(0, 1, 2),
             "num_hidden_layers": pick(1, 2, 3), "intermediate_size": pick(7, 16, 40), "pad_token_id": 0}
        heads(c, "hidden_size", "num_attention_heads")
        maybe(c, "tie_word_embeddings", True, False)
        labels(c)
        if rng.random() < 0.2:
            c["is_decoder"] = c["add_cross_attention"] = True
        return c, prefix + pick(*ENCODER_HEADS, "ForQuestionAnswering", *extra)

    return build


def distilbert():
    c = {"vocab_size": pick(5, 50), "max_position_embeddings": pick(8, 20), "n_layers": pick(1, 2, 3),
         "hidden_dim": pick(7, 16)}
    heads(c, "dim", "n_heads")
    maybe(c, "tie_word_embeddings", True, False)
    labels(c)
    return c, "DistilBert" + pick(*ENCODER_HEADS)


def albert():
    c = {"vocab_size": pick(5, 50), "embedding_size": pick(4, 9), "max_position_embeddings": pick(8, 20),
         "type_vocab_size": pick(1, 2), "num_hidden_layers": pick(2, 12), "num_hidden_groups": pick(1, 2),
         "inner_group_num": pick(1, 3), "intermediate_size": pick(7, 16)}
    heads(c, "hidden_size", "num_attention_heads")
    maybe(c, "tie_word_embeddings", True, False)
    labels(c)
    return c, "Albert" + pick(*ENCODER_HEADS, "ForPreTraining", "ForQuestionAnswering")


def deberta():
    c = {"vocab_size": pick(5, 50), "max_position_embeddings": pick(8, 20), "type_vocab_size": pick(0, 2),
         "num_hidden_layers": pick(1, 2, 3), "intermediate_size": pick(7, 16)}
    heads(c, "hidden_size", "num_attention_heads")
    for key, values in {"relative_attention": (True, False), "position_buckets": (-1, 6), "share_att_key": (True, False),
                        "max_relative_positions": (-1, 11), "position_biased_input": (True, False),
                        "norm_rel_ebd": ("layer_norm", "none"), "legacy": (True, False),
                        "tie_word_embeddings": (True, False), "conv_kernel_size": (0, 3),
                        "pos_att_type": ("p2c|c2p", ["c2p"], "p2c", None)}.items():
        maybe(c, key, *values)
    if c.get("legacy", True):
        maybe(c, "embedding_size", 6, c["hidden_size"])
    labels(c)
    return c, "DebertaV2" + pick(*ENCODER_HEADS, "ForQuestionAnswering")


def modernbert():
    c = {"vocab_size": pick(50, 99), "num_hidden_layers": pick(1, 2, 4), "intermediate_size": pick(7, 16),
         "pad_token_id": 0}
    heads(c, "hidden_size", "num_attention_heads")
    for key in ("norm_bias", "attention_bias", "mlp_bias", "decoder_bias", "classifier_bias", "tie_word_embeddings"):
        maybe(c, key, True, False)
    labels(c)
    return c, "ModernBert" + pick(*ENCODER_HEADS, "ForQuestionAnswering")


DECODER_HEADS = ["Model", "ForCausalLM", "ForSequenceClassification"]


def gpt2():
    c = {"vocab_size": pick(5, 50), "n_positions": pick(8, 20), "n_layer": pick(1, 2, 3)}
    heads(c, "n_embd", "n_head")
    maybe(c, "n_inner", None, 13)
    maybe(c, "tie_word_embeddings", True, False)
    maybe(c, "summary_proj_to_labels", True, False)
    labels(c)
    if rng.random() < 0.2:
        c["add_cross_attention"] = True
    return c, "GPT2" + pick("Model", "LMHeadModel", "DoubleHeadsModel", "ForSequenceClassification",
                            "ForTokenClassification", "ForQuestionAnswering")


def gpt_bigcode():
    c, _ = gpt2()
    maybe(c, "multi_query", True, False)
    if c.get("multi_query", True):
        c.pop("add_cross_attention", None)
    return c, "GPTBigCode" + pick(*DECODER_HEADS, "ForTokenClassification")


def gptj():
    c = {"vocab_size": pick(5, 50), "n_layer": pick(1, 2, 3), "n_positions": 8, "rotary_dim": 2}
    heads(c, "n_embd", "n_head")
    maybe(c, "n_inner", None, 13)
    maybe(c, "tie_word_embeddings", True, False)
    labels(c)
    return c, "GPTJ" + pick(*DECODER_HEADS, "ForQuestionAnswering")


def gpt_neox():
    c = {"vocab_size": pick(5, 50), "num_hidden_layers": pick(1, 2, 3), "intermediate_size": pick(7, 16)}
    heads(c, "hidden_size", "num_attention_heads")
    maybe(c, "attention_bias", True, False)
    maybe(c, "tie_word_embeddings", True, False)
    labels(c)
    return c, "GPTNeoX" + pick(*DECODER_HEADS, "ForTokenClassification", "ForQuestionAnswering")


def opt():
    c = {"vocab_size": pick(5, 50), "num_hidden_layers": pick(1, 2, 3), "ffn_dim": pick(7, 16),
         "max_position_embeddings": pick(8, 20)}
    heads(c, "hidden_size", "num_attention_heads")
    maybe(c, "word_embed_proj_dim", None, 6, c["hidden_size"])
    for key in ("enable_bias", "layer_norm_elementwise_affine", "do_layer_norm_before", "_remove_final_layer_norm",
                "tie_word_embeddings"):
        maybe(c, key, True, False)
    labels(c)
    return c, "OPT" + pick(*DECODER_HEADS, "ForQuestionAnswering")


def bloom():
    c = {"vocab_size": pick(5, 50), "n_layer": pick(1, 2, 3)}
    heads(c, pick("hidden_size", "n_embed"), pick("n_head", "num_attention_heads"))
    maybe(c, "tie_word_embeddings", True, False)
    labels(c)
    return c, "Bloom" + pick(*DECODER_HEADS, "ForTokenClassification", "ForQuestionAnswering")


def falcon():
    c = {"vocab_size": pick(5, 50), "num_hidden_layers": pick(1, 2, 3)}
    heads(c, "hidden_size", "num_attention_heads", "num_kv_heads", kv_absent=True)
    for key in ("multi_query", "parallel_attn", "new_decoder_architecture", "bias", "alibi", "tie_word_embeddings"):
        maybe(c, key, True, False)
    maybe(c, "ffn_hidden_size", None, 13)
    maybe(c, "num_ln_in_parallel_attn", None, 1, 2)
    labels(c)
    return c, "Falcon" + pick(*DECODER_HEADS, "ForTokenClassification", "ForQuestionAnswering")


def llama_like(prefix, flags=(), kv_absent=False, head_dim=True, extra=(), more=None):
    def build():
        c = {"vocab_size": pick(5, 50), "num_hidden_layers": pick(1, 2, 3), "intermediate_size": pick(7, 16),
             "pad_token_id": 0}
        heads(c, "hidden_size", "num_attention_heads", "num_key_value_heads", kv_absent, head_dim)
        for key in (*flags, "tie_word_embeddings"):
            maybe(c, key, True, False)
        labels(c)
        if more:
            more(c)
        return c, prefix + pick(*DECODER_HEADS, "ForTokenClassification", *extra)

    return build


def mixtral_more(c):
    c[pick("num_local_experts", "num_experts")] = pick(2, 4, 5)
    c["num_experts_per_tok"] = pick(1, 2)


def qwen3_moe_more(c):
    c.update(num_experts=pick(0, 2, 4), num_experts_per_tok=pick(1, 2), moe_intermediate_size=pick(5, 9),
             num_hidden_layers=pick(1, 4, 5))
    maybe(c, "decoder_sparse_step", 1, 2, 3)
    maybe(c, "mlp_only_layers", [], [0], [1, 3], [2, 2, 9], None)


def t5():
    c = {"vocab_size": pick(5, 50), "d_model": pick(6, 12), "num_heads": pick(1, 3), "d_kv": pick(2, 5),
         "d_ff": pick(7, 16), "num_layers": pick(1, 2, 3), "relative_attention_num_buckets": pick(4, 8)}
    maybe(c, "num_decoder_layers", None, 1, 4)
    maybe(c, "feed_forward_proj", "relu", "gated-gelu", "gated-silu", "gelu")
    if rng.random() < 0.2:
        c["is_gated_act"] = pick(True, False)
    maybe(c, "tie_word_embeddings", True, False)
    labels(c)
    return c, "T5" + pick("Model", "ForConditionalGeneration", "EncoderModel", "ForSequenceClassification",
                          "ForTokenClassification", "ForQuestionAnswering")


def vit():
    c = {"num_hidden_layers": pick(1, 2, 3), "intermediate_size": pick(7, 16), "image_size": pick(32, [32, 48]),
         "patch_size": pick(8, [8, 16], 5), "num_channels": pick(1, 3), "encoder_stride": pick(4, 8)}
    heads(c, "hidden_size", "num_attention_heads", head_dim=True)
    maybe(c, "qkv_bias", True, False)
    maybe(c, "pooler_output_size", 5)
    labels(c)
    return c, "ViT" + pick("Model", "ForImageClassification", "ForMaskedImageModeling")


def whisper():
    c = {"vocab_size": pick(5, 50), "num_mel_bins": pick(4, 8), "encoder_layers": pick(1, 2), "decoder_layers": pick(1, 3),
         "encoder_ffn_dim": pick(7, 16), "decoder_ffn_dim": pick(8, 12), "max_source_positions": pick(8, 20),
         "max_target_positions": pick(6, 9), "pad_token_id": 0, "classifier_proj_size": pick(3, 5)}
    heads(c, "d_model", "encoder_attention_heads")
    c["decoder_attention_heads"] = c["encoder_attention_heads"]
    maybe(c, "tie_word_embeddings", True, False)
    maybe(c, "use_weighted_layer_sum", True, False)
    labels(c)
    return c, "Whisper" + pick("Model", "ForConditionalGeneration", "ForCausalLM", "ForAudioClassification")


def gemma3():
    text, _ = llama_like("", ("attention_bias",))()
    vision = {"model_type": "siglip_vision_model", "num_hidden_layers": pick(1, 2), "intermediate_size": pick(7, 16),
              "num_channels": 3, "image_size": pick(28, 42), "patch_size": 14}
    heads(vision, "hidden_size", "num_attention_heads")
    maybe(vision, "vision_use_head", True, False)
    text["model_type"] = "gemma3_text"
    c = {"text_config": text, "vision_config": vision, "mm_tokens_per_image": 4}
    maybe(c, "tie_word_embeddings", True, False)
    labels(c)
    return c, "Gemma3" + pick("Model", "ForConditionalGeneration", "ForSequenceClassification")


FAMILIES = {
    "albert": albert,
    "bert": bert_like("Bert", ["ForPreTraining", "ForNextSentencePrediction", "LMHeadModel"]),
    "bloom": bloom,
    "camembert": bert_like("Camembert", ["ForCausalLM"]),
    "deberta-v2": deberta,
    "distilbert": distilbert,
    "falcon": falcon,
    "gemma": llama_like("Gemma", ("attention_bias",)),
    "gemma2": llama_like("Gemma2", ("attention_bias",)),
    "gemma3": gemma3,
    "gemma3_text": llama_like("Gemma3", ("attention_bias",)),
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "llama": llama_like("Llama", ("attention_bias", "mlp_bias"), kv_absent=True, extra=["ForQuestionAnswering"]),
    "mistral": llama_like("Mistral", extra=["ForQuestionAnswering"]),
    "mixtral": llama_like("Mixtral", extra=["ForQuestionAnswering"], more=mixtral_more),
    "modernbert": modernbert,
    "opt": opt,
    "phi": llama_like("Phi", ("qk_layernorm",), kv_absent=True, head_dim=False),
    "phi3": llama_like("Phi3", kv_absent=True, head_dim=False),
    "qwen2": llama_like("Qwen2", extra=["ForQuestionAnswering"]),
    "qwen3": llama_like("Qwen3", ("attention_bias",), extra=["ForQuestionAnswering"]),
    "qwen3_moe": llama_like("Qwen3Moe", ("attention_bias",), extra=["ForQuestionAnswering"], more=qwen3_moe_more),
    "roberta": bert_like("Roberta", ["ForCausalLM"]),
    "t5": t5,
    "vit": vit,
    "whisper": whisper,
    "xlm-roberta": bert_like("XLMRoberta", ["ForCausalLM"]),
}
OTHER_NAMES = {("gemma3_text", "Gemma3Model"): "Gemma3TextModel",
               ("gemma3_text", "Gemma3ForSequenceClassification"): "Gemma3TextForSequenceClassification",
               ("gemma3_text", "Gemma3ForTokenClassification"): "Gemma3ForCausalLM"}


def build_model(config, device):
    cls = getattr(transformers, config["architectures"][0])
    with torch.device(device):
        return cls(cls.config_class.from_dict(json.loads(json.dumps(config))))


def save(config, folder, as_pt):
    model = build_model(config, "cpu")
    model.save_pretrained(folder)
    if as_pt:
        os.remove(os.path.join(folder, "model.safetensors"))
        torch.save(model.state_dict(), os.path.join(folder, "pytorch_model.bin"))


def count(program, paths):
    counted = subprocess.run([program, "--json", *paths], capture_output=True, text=True)
    if counted.returncode != 0:
        sys.exit(counted.stderr)
    return json.loads(counted.stdout)


def reference(config):
    """Total, active and looked-up parameters as transformers has them."""
    model = build_model(config, "meta")
    total = sum(p.numel() for p in model.parameters())
    active = total
    for name, p in model.named_parameters():
        if ".experts." in name:
            active -= p.numel() // p.shape[0] * (p.shape[0] - config["num_experts_per_tok"])
    tables = {id(m.weight): m.weight.numel() for name, m in model.named_modules()
              if isinstance(m, torch.nn.Embedding) and "relative_attention_bias" not in name}
    tables |= {id(p): p.numel() for name, p in model.named_parameters()
               if name.endswith("embeddings.cls_token") or config["model_type"] == "vit"
               and name.endswith("embeddings.position_embeddings")}
    return total, active, sum(tables.values())


def main():
    program = sys.argv[1]
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    rng.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    expected, saved, failures = {}, [], 0
    with tempfile.TemporaryDirectory() as folder:
        for family, build in FAMILIES.items():
            for i in range(cases):
                config, architecture = build()
                architecture = OTHER_NAMES.get((family, architecture), architecture)
                config.update(model_type=family, architectures=[architecture])
                path = os.path.join(folder, f"{family}_{i}.json")
                with open(path, "w") as file:
                    json.dump(config, file)
                expected[path] = reference(config)
                if i < 2:
                    saved.append(os.path.join(folder, f"{family}_{i}"))
                    save(config, saved[-1], as_pt=i == 1)
        for report in count(program, expected):
            got = (report["total"], report["active"], report["embedding"])
            if got != expected[report["input"]]:
                failures += 1
                print(f"{open(report['input']).read()}\n  params {got}, transformers {expected[report['input']]}")
        for report in count(program, saved):
            whole = (report["source"], report["exact"], report["total"], report["file_total"], report["differences"])
            total = expected[report["input"] + ".json"][0]
            if whole != ("config and file", True, total, total, []):
                failures += 1
                print(f"{open(report['input'] + '.json').read()}\n  saved: {whole}, transformers {total}")
    print(f"{len(expected)} configurations of {len(FAMILIES)} families and {len(saved)} saved models, "
          f"{failures} counted differently")
    sys.exit(failures > 0 or not expected)


main()
