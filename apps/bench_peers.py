"""The Python contenders of `./dev bench`: what else computes the encoder that a case names. See bench.py.

    bench_peers.py SPEC.json

Every contender here starts from the lesson's model with the case's weights, and puts something else in its place.
Attention weights are never dropped. One whose package is missing, or that cannot do a case, says why and ends.
"""

import functools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import lesson


class Skip(Exception):
    """Why a contender cannot take part."""


class Spec:
    """What all contenders of a case compute."""

    def __init__(self, path):
        self.__dict__.update(json.loads(path.read_text()))
        self.folder = path.parent
        self.full = all(length == self.length for length in self.lengths)
        self.pre = self.config["norm_placement"] == "pre"

    def rows(self):
        """The token ids of each sequence."""
        return [[(7919 * (b + 1) + 104729 * (t + 1)) % self.config["vocab_size"] for t in range(length)]
                for b, length in enumerate(self.lengths)]

    def ids(self):
        return [row + [0] * (self.length - len(row)) for row in self.rows()]

    def targets(self):
        return [[id % self.config["num_classes"] for id in row] + [-100] * (self.length - len(row))
                for row in self.rows()]

    def weights(self):
        from safetensors.torch import load_file
        return load_file(self.weights_path)


class Contender:
    """`output()` is what the model answers in evaluation mode, float32; `iteration()` is what is timed."""

    def __init__(self, output, iteration=None, other=None, synchronize=lambda: None):
        self.output, self.iteration, self.other = output, iteration or output, other
        self.synchronize = synchronize

    def times(self, count):
        for _ in range(count):
            self.synchronize()
            begin = time.perf_counter()
            self.iteration()
            self.synchronize()
            yield (time.perf_counter() - begin) * 1000


# torch


def lesson_model(spec):
    # The table is made by plain loops there, which no program would run for each batch.
    table = lesson.sinusoidal_table
    lesson.sinusoidal_table = functools.cache(lambda *size: table(*size).to(spec.device))
    model = lesson.EncoderModel(spec.config)
    model.load_state_dict(spec.weights())
    return model


def with_torch_encoder(model, spec):
    """The lesson's embeddings and head around torch.nn.TransformerEncoder."""
    import torch
    from torch import nn
    config = spec.config
    layer = nn.TransformerEncoderLayer(config["d_model"], config["num_heads"], config["d_ff"], config["dropout"],
                                       config["activation"], config["norm_eps"], batch_first=True, norm_first=spec.pre)
    encoder = nn.TransformerEncoder(layer, config["num_layers"], model.encoder.norm if spec.pre else None,
                                    enable_nested_tensor=not spec.pre)
    for to, own in zip(encoder.layers, model.encoder.layers):
        to.self_attn.dropout = 0.0
        with torch.no_grad():
            to.self_attn.in_proj_weight.copy_(own.mha.in_proj.weight)
            to.self_attn.in_proj_bias.copy_(own.mha.in_proj.bias)
        for name, module in (("self_attn.out_proj", own.mha.out_proj), ("linear1", own.ff.net[0]),
                             ("linear2", own.ff.net[3]), ("norm1", own.sub1.norm), ("norm2", own.sub2.norm)):
            to.get_submodule(name).load_state_dict(module.state_dict())
    model.encoder = encoder
    model.forward = lambda ids, padding: model.head(encoder(model.embeddings(ids), src_key_padding_mask=padding))
    return model


def torch_contender(spec, make, compiled=False):
    import torch
    torch.set_num_threads(spec.threads)
    torch.manual_seed(1)
    device, bfloat16 = torch.device(spec.device), spec.precision == "bfloat16"
    model = make(lesson_model(spec), spec).to(device)
    ids = torch.tensor(spec.ids(), device=device)
    mask = None
    if not spec.full:
        mask = torch.arange(spec.length) >= torch.tensor(spec.lengths)[:, None]  # padding
        if isinstance(model.encoder, lesson.Encoder):
            mask = ~mask[:, None, None]
        mask = mask.to(device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    if not spec.train:
        if bfloat16:
            model.bfloat16()
        model.eval()
        forms = [model]
        if compiled:
            forms = [torch.compile(model), torch.compile(model, options={"freezing": True})]

        def forward(form):
            with torch.inference_mode() if not compiled else torch.no_grad():
                return form(ids, mask)

        form = forms[0] if len(forms) == 1 else fastest(forms, forward)
        return Contender(lambda: forward(form), synchronize=synchronize)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    targets = torch.tensor(spec.targets(), device=device)
    form = torch.compile(model) if compiled else model

    def step():
        model.train()
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            logits = form(ids, mask)
        torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def output():
        model.eval()
        with torch.no_grad():
            return model(ids, mask)

    return Contender(output, step, synchronize=synchronize)


def fastest(forms, run):
    """The one of these that runs fastest; what fails does not count."""
    best = None
    for form in forms:
        try:
            run(form), run(form)
            taken = []
            for _ in range(7):
                begin = time.perf_counter()
                run(form)
                taken.append(time.perf_counter() - begin)
        except Exception as error:  # of a compiler or a runtime, in its own words
            reason = error
            continue
        if best is None or statistics.median(taken) < best[0]:
            best = statistics.median(taken), form
    if best is None:
        raise Skip(str(reason).splitlines()[0])
    return best[1]


# The others. Their embeddings are one table of tokens and one of positions, into which the first segment's row goes.


def plain_embeddings(model, spec):
    """Numpy: token table [V,D], position table [T,D]."""
    embeddings = model.embeddings
    position = embeddings.position.weight[embeddings.position.offset:][:spec.length]
    if embeddings.segment is not None:
        position = position + embeddings.segment.weight[0]
    return embeddings.token.weight.detach().numpy(), position.detach().numpy()


def only_inference(spec):
    if spec.train:
        raise Skip("it does not train")
    if spec.device != "cpu":
        raise Skip("it is measured on the CPU alone")


def onnx_model(spec, attention):
    """The graph as ONNX Runtime's own optimiser of Transformers leaves it (attention, skip and norm, bias and GELU as one
    operator each), with attention as its `Attention` or its `MultiHeadAttention`; or `plain`, of the standard's operators,
    for the runtime to optimise as it loads."""
    from onnx import TensorProto, helper, numpy_helper
    model, config = lesson_model(spec), spec.config
    heads, eps, own = config["num_heads"], config["norm_eps"], {"domain": "com.microsoft"}
    nodes, constants = [], {}

    def constant(name, value):
        constants[name] = value.detach().numpy() if hasattr(value, "detach") else value
        return name

    def add(op, inputs, outputs=1, **attributes):
        names = [f"{op}{len(nodes)}.{i}" for i in range(outputs)]
        nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def linear(name, module, x):
        weight = constant(f"{name}.weight", module.weight.T.contiguous())
        return add("MatMul", [x, weight]), constant(f"{name}.bias", module.bias)

    def norm(name, module, x, bias=None, skip=None):
        """norm(x + bias + skip), and that sum."""
        scale = [constant(f"{name}.weight", module.weight), constant(f"{name}.bias", module.bias)]
        if skip is not None and attention != "plain":
            outputs = add("SkipLayerNormalization", [x, skip, *scale, bias], 4, epsilon=eps, **own)
            return outputs[0], outputs[3]
        if skip is not None:
            x = add("Add", [add("Add", [x, bias]), skip])
        return add("LayerNormalization", [x, *scale], epsilon=eps), x

    def attend(name, mha, x):
        if attention == "Attention":
            weight = constant(f"{name}.weight", mha.in_proj.weight.T.contiguous())
            return add("Attention", [x, weight, constant(f"{name}.bias", mha.in_proj.bias), lengths], num_heads=heads, **own)
        q, k, v = add("Split", [add("Add", [*linear(name, mha.in_proj, x)])], 3, axis=-1, num_outputs=3)
        if attention == "MultiHeadAttention":
            return add("MultiHeadAttention", [q, k, v, "", lengths], num_heads=heads, **own)
        q, k, v = (add("Transpose", [add("Reshape", [part, split])], perm=order)
                   for part, order in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])))
        scores = add("Mul", [add("MatMul", [q, k]), scale])
        if lengths:
            scores = add("Add", [scores, lengths])
        y = add("MatMul", [add("Softmax", [scores], axis=-1), v])
        return add("Reshape", [add("Transpose", [y], perm=[0, 2, 1, 3]), merge])

    import numpy
    lengths = ""
    if not spec.full and attention != "plain":
        lengths = constant("lengths", numpy.array(spec.lengths, numpy.int32))
    elif not spec.full:
        hidden = numpy.arange(spec.length) >= numpy.array(spec.lengths)[:, None]
        lengths = constant("mask", numpy.where(hidden, -1e9, 0.0).astype(numpy.float32)[:, None, None])
    split = constant("split", numpy.array([0, 0, heads, config["d_model"] // heads]))
    merge = constant("merge", numpy.array([0, 0, config["d_model"]]))
    scale = constant("scale", numpy.array((config["d_model"] // heads) ** -0.5, numpy.float32))
    token, position = plain_embeddings(model, spec)
    x = add("Add", [add("Gather", [constant("token", token), "ids"]), constant("position", position)])
    if config["embedding_norm"]:
        x, _ = norm("embedding_norm", model.embeddings.norm, x)
    layers = list(model.encoder.layers)
    if spec.pre:
        residual = x
        x, _ = norm("0.norm", layers[0].sub1.norm, residual)
    for i, layer in enumerate(layers):
        y = linear(f"{i}.out", layer.mha.out_proj, attend(f"{i}.qkv", layer.mha, x))
        x, total = norm(f"{i}.norm2", layer.sub2.norm if spec.pre else layer.sub1.norm, *y, residual if spec.pre else x)
        up = linear(f"{i}.up", layer.ff.net[0], x)
        y = add("Gelu", [add("Add", [*up])]) if attention == "plain" else add("BiasGelu", [*up], **own)
        y = linear(f"{i}.down", layer.ff.net[3], y)
        if spec.pre:
            following = layers[i + 1].sub1.norm if i + 1 < len(layers) else model.encoder.norm
            x, residual = norm(f"{i}.norm1", following, *y, total)
        else:
            x, _ = norm(f"{i}.norm1", layer.sub2.norm, *y, x)
    shape = [len(spec.lengths), spec.length]
    graph = helper.make_graph(
        nodes, "encoder", [helper.make_tensor_value_info("ids", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [*shape, config["d_model"]])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]).SerializeToString()


def onnx_runtime(spec):
    only_inference(spec)
    import numpy
    import onnxruntime
    ids = numpy.array(spec.ids())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = spec.threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3

    def session(attention):
        return onnxruntime.InferenceSession(onnx_model(spec, attention), options, providers=["CPUExecutionProvider"])

    def run(session):
        return session.run(None, {"ids": ids})[0]

    best = fastest([session(kind) for kind in ("Attention", "MultiHeadAttention", "plain")], run)
    return Contender(lambda: run(best))


def ctranslate2(spec):
    only_inference(spec)
    import ctranslate2 as library
    import numpy
    from ctranslate2.specs import common_spec, transformer_spec
    model, config = lesson_model(spec), spec.config
    encoder = transformer_spec.TransformerEncoderSpec(
        config["num_layers"], config["num_heads"], pre_norm=spec.pre, activation=common_spec.Activation.GELU,
        layernorm_embedding=config["embedding_norm"])
    encoder.scale_embeddings = False

    def linear(to, own):
        to.weight, to.bias = own.weight.detach().numpy(), own.bias.detach().numpy()

    def norm(to, own):
        to.gamma, to.beta = own.weight.detach().numpy(), own.bias.detach().numpy()

    encoder.embeddings[0].weight, encoder.position_encodings.encodings = plain_embeddings(model, spec)
    if config["embedding_norm"]:
        norm(encoder.layernorm_embedding, model.embeddings.norm)
    if spec.pre:
        norm(encoder.layer_norm, model.encoder.norm)
    for to, own in zip(encoder.layer, model.encoder.layers):
        linear(to.self_attention.linear[0], own.mha.in_proj)
        linear(to.self_attention.linear[1], own.mha.out_proj)
        linear(to.ffn.linear_0, own.ff.net[0])
        linear(to.ffn.linear_1, own.ff.net[3])
        norm(to.self_attention.layer_norm, own.sub1.norm)
        norm(to.ffn.layer_norm, own.sub2.norm)
    whole = transformer_spec.TransformerEncoderModelSpec(encoder)
    whole.config.layer_norm_epsilon = config["norm_eps"]
    whole.config.unk_token = "0"
    whole.register_vocabulary([str(id) for id in range(config["vocab_size"])])
    whole.validate()
    whole.optimize()
    rows = spec.rows()
    with tempfile.TemporaryDirectory(dir=spec.folder) as folder:
        whole.save(folder)
        loaded = library.Encoder(folder, device="cpu", compute_type="float32", inter_threads=1,
                                 intra_threads=spec.threads)
    return Contender(lambda: numpy.array(loaded.forward_batch(rows).last_hidden_state))


# The train app


def train_app(spec):
    """Times a step by what a run of the app writes down: evaluations do not count."""
    if spec.device != "cpu":
        raise Skip("it is measured on the CPU alone")
    program = pathlib.Path(spec.programs) / "train"
    if not program.exists():
        raise Skip(f"there is no {program}")

    def run():
        with tempfile.TemporaryDirectory(dir=spec.folder) as folder:
            ended = subprocess.run([program, "--steps", "150", "--eval-every", "150", "--task", spec.task, "--threads",
                                    str(spec.threads), "--device", "cpu", "--out", f"{folder}/run"],
                                   capture_output=True, text=True)
            if ended.returncode:
                raise Skip(ended.stderr.splitlines()[-1])
            lines = [json.loads(line) for line in pathlib.Path(folder, "run/metrics.jsonl").open()]
        rates = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
        return spec.tokens / statistics.median(rates[len(rates) // 3:]) * 1000

    contender = Contender(None, other="the app itself")
    contender.times = lambda count: (run() for _ in range(count))
    return contender


CONTENDERS = {
    "lesson (Python)": lambda spec: torch_contender(spec, lambda model, spec: model),
    "torch.nn (Python)": lambda spec: torch_contender(spec, with_torch_encoder),
    "torch.compile": lambda spec: torch_contender(spec, with_torch_encoder, compiled=True),
    "ONNX Runtime": onnx_runtime,
    "CTranslate2": ctranslate2,
    "train": train_app,
    "train before": train_app,
}


def peak_memory():
    for line in pathlib.Path("/proc/self/status").open():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024


def main():
    spec = Spec(pathlib.Path(sys.argv[1]))
    try:
        contender = CONTENDERS[spec.contender](spec)
    except (Skip, ImportError) as reason:
        print("skip", reason, flush=True)
        return
    print("ready", flush=True)
    for line in sys.stdin:
        verb, _, value = line.strip().partition(" ")
        if verb == "check":
            if contender.other is None:
                import numpy
                output = contender.output()
                output = output.float().cpu().numpy() if hasattr(output, "cpu") else output
                numpy.ascontiguousarray(output, numpy.float32).tofile(value)
            print(f"other {contender.other}" if contender.other else "ok", flush=True)
        elif verb == "time":
            print(*contender.times(int(value)), flush=True)
        elif verb == "memory":
            print(peak_memory(), flush=True)


if __name__ == "__main__":
    main()
