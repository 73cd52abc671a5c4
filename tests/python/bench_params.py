"""Time and memory of `params` on a 70B model: its config, and the headers of its 30 shards (sparse files), beside
transformers on the meta device.

    bench_params.py PARAMS
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 8192,
          "num_hidden_layers": 80, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
          "tie_word_embeddings": False}
SHARDS, RUNS = 30, 20
META = """
import json, sys, os
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
with torch.device("meta"):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_dict(json.load(open(sys.argv[1]))))
print(sum(p.numel() for p in model.parameters()))
"""


def tensors():
    d, ff, kv = CONFIG["hidden_size"], CONFIG["intermediate_size"], 1024
    yield "model.embed_tokens.weight", [CONFIG["vocab_size"], d]
    for i in range(CONFIG["num_hidden_layers"]):
        for name, shape in {"input_layernorm": [d], "mlp.down_proj": [d, ff], "mlp.gate_proj": [ff, d],
                            "mlp.up_proj": [ff, d], "post_attention_layernorm": [d], "self_attn.k_proj": [kv, d],
                            "self_attn.o_proj": [d, d], "self_attn.q_proj": [d, d], "self_attn.v_proj": [kv, d]}.items():
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", [d]
    yield "lm_head.weight", [CONFIG["vocab_size"], d]


def write_shards(folder):
    everything = list(tensors())
    weight_map, total = {}, 0
    for shard in range(SHARDS):
        name = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        header, end = {}, 0
        for tensor, shape in everything[shard::SHARDS]:
            begin, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
            weight_map[tensor] = name
        text = json.dumps(header).encode()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + end)
        total += end
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, file)


def measure(label, command, runs):
    times, peak = [], 0
    for _ in range(runs):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        times.append(time.perf_counter() - start)
        peak = max(peak, usage.ru_maxrss)
        assert status == 0, command
    count = json.loads(out)["total"] if "{" in out else int(out)
    times.sort()
    print(f"{label:32} {count:>15,}  median {1000 * times[runs // 2]:8.1f} ms  worst {1000 * times[-1]:8.1f} ms  "
          f"{peak / 1024:6.1f} MiB")
    return count


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w") as file:
            json.dump(CONFIG, file)
        counts = {measure("params, config.json", [program, "--json", config], RUNS)}
        write_shards(folder)
        index = os.path.join(folder, "model.safetensors.index.json")
        counts.add(measure(f"params, headers of {SHARDS} shards", [program, "--json", index], RUNS))
        counts.add(measure("params, config and headers", [program, "--json", folder], RUNS))
        counts.add(measure("transformers, meta device", [sys.executable, "-c", META, config], 3))
    assert counts == {70553706496}, counts


main()
