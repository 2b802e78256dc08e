"""Common parts of the jobs: moving a model to the device, and shared models and streams."""

import contextlib

import torch
import torch.nn as nn

CUDA = torch.device("cuda", 0)
JOBS = {}
nn.init.trunc_normal_ = lambda t, *a, **k: t  # draws until all values fit, which never happens without values


def job(about):
    def add(f):
        JOBS[f.__name__] = (f, about)
        return f

    return add


def amp(dtype=torch.bfloat16):
    return torch.autocast("cuda", dtype=dtype)


def to_gpu(model, dtype=None):
    """Does model.to("cuda", dtype) tensor by tensor, because Module.to cannot exchange fake parameters."""
    moved = {}
    for m in model.modules():
        for d in (m._parameters, m._buffers):
            for k, t in d.items():
                if t is None:
                    continue
                if id(t) not in moved:
                    u = t.detach().to(CUDA, dtype if dtype and t.is_floating_point() else t.dtype)
                    moved[id(t)] = t, nn.Parameter(u, requires_grad=t.requires_grad) if d is m._parameters else u
                d[k] = moved[id(t)][1]
    return model


def ids(*shape):
    """Returns a batch of token numbers, copied from the host."""
    return torch.zeros(*shape, dtype=torch.int64).to(CUDA)


def pixels(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype).to(CUDA)


def clip(params, norm=1.0):
    torch.nn.utils.clip_grad_norm_(params, norm, foreach=True)


def transformers():
    """Returns the transformers library, set not to treat fake tensors as a compiler's."""
    import transformers
    import transformers.utils.import_utils as u

    u.is_fake_tensor = lambda t: False
    return transformers


def llama(hidden, layers, heads, kv_heads, inter, vocab, dtype, **more):
    hf = transformers()
    cfg = hf.LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=inter,
        vocab_size=vocab,
        max_position_embeddings=8192,
        **more,
    )
    with torch.device(CUDA):
        torch.set_default_dtype(dtype)
        try:
            return hf.LlamaForCausalLM(cfg)
        finally:
            torch.set_default_dtype(torch.float32)


class Ema:
    """A moving average of the parameters, in one list."""

    def __init__(self, model):
        self.src = [p for p in model.parameters()]
        self.avg = [p.detach().clone() for p in self.src]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.avg, self.src, 0.01)


class Comm:
    """A communication stream. The device lags behind: the work of this and the default stream is done when the next
    communication starts (release, then hold again)."""

    def __init__(self, rec):
        self.rec, self.stream = rec, torch.cuda.Stream()
        self.number = rec.stream_number(self.stream.stream_id)

    @contextlib.contextmanager
    def run(self):
        self.done()
        self.rec.op("hold 0")
        self.rec.op(f"hold {self.number}")
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield

    def wait(self, *tensors):
        """Makes the current stream wait for this one and then use the tensors."""
        cur = torch.cuda.current_stream()
        cur.wait_stream(self.stream)
        for t in tensors:
            t.record_stream(cur)

    def done(self):
        self.rec.op("release 0")
        self.rec.op(f"release {self.number}")
