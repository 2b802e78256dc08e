"""Jobs that train on text."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import CUDA, Comm, amp, clip, ids, job, llama, to_gpu, transformers


@job(
    "GPT-2 small, batch 8 seq 512, bf16 autocast, AdamW (foreach), clip; 6 steps (to compare the recorder with another"
    " recording)"
)
def gpt2_check(rec):
    hf = transformers()
    model = to_gpu(hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False))).train()
    opt = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() > 1]},
            {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=1e-4,
        foreach=True,
    )
    for _ in range(6):
        rec.step("batch 8 seq 512")
        x = ids(8, 512)
        with amp():
            loss = model(input_ids=x, labels=x).loss
        loss.backward()
        clip(model.parameters())
        opt.step()
        opt.zero_grad(set_to_none=True)
    return locals()


@job(
    "T5 (6+6 layers of 1024), batches of about 10,000 tokens of varying lengths, 2 micro-batches a step, bf16 autocast,"
    " Adafactor; 6 steps"
)
def t5_accum_train(rec):
    hf = transformers()
    cfg = hf.T5Config(
        d_model=1024,
        d_kv=64,
        d_ff=4096,
        num_layers=6,
        num_decoder_layers=6,
        num_heads=16,
        feed_forward_proj="gated-gelu",
        use_cache=False,
        decoder_start_token_id=0,
    )
    model = to_gpu(hf.T5ForConditionalGeneration(cfg)).train()
    opt = torch.optim.Adafactor(model.parameters(), lr=1e-2, foreach=True)
    for _ in range(6):
        shapes = []
        for _ in range(2):
            src = rec.rng.randint(24, 512)
            shapes.append((max(4, 10000 // src), src, rec.rng.randint(8, max(16, src // 3))))
        rec.step("batch x source x target " + " ".join("x".join(map(str, s)) for s in shapes))
        for b, s, t in shapes:
            src, mask, tgt = ids(b, s), ids(b, s), ids(b, t)
            rec.truth = False  # the batch is padded
            with amp():
                loss = model(input_ids=src, attention_mask=mask, labels=tgt).loss
            (loss / 2).backward()
        clip(model.parameters())
        opt.step()
        opt.zero_grad(set_to_none=True)
    return locals()


@job(
    "BART-like (8+8 layers of 1024), bf16 autocast, batch 8 of 128..1024 tokens, saved activations moved to the host"
    " and back on stream 1 with record_stream, AdamW; 6 steps"
)
def bart_offload_train(rec):
    hf = transformers()
    cfg = hf.BartConfig(
        encoder_layers=8,
        decoder_layers=8,
        d_model=1024,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        encoder_ffn_dim=4096,
        decoder_ffn_dim=4096,
        use_cache=False,
    )
    model = to_gpu(hf.BartForConditionalGeneration(cfg)).train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    comm = Comm(rec)
    own = {p.untyped_storage()._cdata for p in model.parameters()}

    def pack(t):
        if t.device.type != "cuda" or t.numel() < 1 << 18 or t.untyped_storage()._cdata in own or not t.is_contiguous():
            return t, False
        with comm.run():
            host = torch.empty(t.shape, dtype=t.dtype)
            host.copy_(t, non_blocking=True)
            t.record_stream(comm.stream)
        return host, True

    def unpack(packed):
        t, away = packed
        if not away:
            return t
        with comm.run():
            back = t.to(CUDA, non_blocking=True)
        comm.wait(back)
        return back

    for _ in range(6):
        s, t = rec.rng.randrange(128, 1025, 8), rec.rng.randrange(32, 257, 8)
        rec.step(f"batch 8 source {s} target {t}")
        x, y = ids(8, s), ids(8, t)
        with amp(), torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = model(input_ids=x, labels=y).loss
        loss.backward()
        comm.done()
        clip(model.parameters())
        opt.step()
        opt.zero_grad(set_to_none=True)
        del x, y, loss
    return locals()


@job(
    "Translation with LSTM cells (2 layers of 1024 each side) stepped through time with attention, fp32, sentence"
    " lengths 8..48, batch by tokens, Adam; 12 steps"
)
def lstm_seq2seq_train(rec):
    H, V = 1024, 24000

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.src, self.tgt = nn.Embedding(V, H), nn.Embedding(V, H)
            self.enc = nn.ModuleList(nn.LSTMCell(H, H) for _ in range(2))
            self.dec = nn.ModuleList(nn.LSTMCell(2 * H if i == 0 else H, H) for i in range(2))
            self.query, self.mix, self.out = nn.Linear(H, H, bias=False), nn.Linear(2 * H, H), nn.Linear(H, V)
            self.drop = nn.Dropout(0.2)

        def forward(self, x, y):
            b = x.shape[1]
            xs, ys = self.drop(self.src(x)), self.drop(self.tgt(y))
            zero = lambda: [(torch.zeros(b, H, device=CUDA), torch.zeros(b, H, device=CUDA)) for _ in range(2)]
            state, mem = zero(), []
            for t in xs.unbind(0):
                for i, c in enumerate(self.enc):
                    state[i] = c(t, state[i])
                    t = self.drop(state[i][0])
                mem.append(t)
            mem = torch.stack(mem, 1)
            feed, outs = torch.zeros(b, H, device=CUDA), []
            for t in ys.unbind(0):
                t = torch.cat([t, feed], 1)
                for i, c in enumerate(self.dec):
                    state[i] = c(t, state[i])
                    t = self.drop(state[i][0])
                a = torch.softmax(torch.bmm(mem, self.query(t).unsqueeze(2)).squeeze(2), 1)
                feed = torch.tanh(self.mix(torch.cat([t, torch.bmm(a.unsqueeze(1), mem).squeeze(1)], 1)))
                outs.append(feed)
            return self.out(self.drop(torch.stack(outs)))

    model = to_gpu(Net()).train()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    for _ in range(12):
        s = rec.rng.randint(8, 48)
        t = max(6, int(s * rec.rng.uniform(0.8, 1.2)))
        b = min(512, 12000 // max(s, t))
        rec.step(f"batch {b} source {s} target {t}")
        y = ids(t, b)
        loss = F.cross_entropy(model(ids(s, b), y).view(-1, V), y.view(-1), label_smoothing=0.1)
        loss.backward()
        clip(model.parameters(), 5.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        del y, loss
    return locals()


@job(
    "Llama-like 2.4B, bf16, LoRA of rank 16 on the attention, frozen weights, activation checkpointing, batch 2 of"
    " 512..3072 tokens, AdamW on the adapters in fp32; 6 steps"
)
def llama2b_lora_ckpt(rec):
    class Lora(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a = nn.Parameter(torch.zeros(16, base.in_features, device=CUDA))
            self.b = nn.Parameter(torch.zeros(base.out_features, 16, device=CUDA))
            self.drop = nn.Dropout(0.05)

        def forward(self, x):
            y = F.linear(F.linear(self.drop(x.to(self.a.dtype)), self.a), self.b) * 2.0
            return self.base(x) + y.to(x.dtype)

    model = llama(3072, 20, 24, 8, 8192, 128256, torch.bfloat16, tie_word_embeddings=True, use_cache=False).train()
    model.requires_grad_(False)
    for l in model.model.layers:
        for k in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(l.self_attn, k, Lora(getattr(l.self_attn, k)))
    model.model.embed_tokens.register_forward_hook(lambda m, i, o: o.requires_grad_(True))
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    train = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(train, lr=1e-4, foreach=True)
    for _ in range(6):
        s = rec.rng.randrange(512, 3073, 8)
        rec.step(f"batch 2 seq {s}")
        x = ids(2, s)
        loss = model(input_ids=x, labels=x).loss
        loss.backward()
        clip(train)
        opt.step()
        opt.zero_grad(set_to_none=True)
        del x, loss
    return locals()


@job(
    "Reinforcement learning from feedback: Llama-like policy, reference and value models (6 layers of 2048, bf16), each"
    " step generates 6 tokens with growing caches, scores them and trains with AdamW in 2 micro-batches; 6 steps"
)
def ppo_train(rec):
    hf = transformers()
    policy, ref = (llama(2048, 6, 16, 8, 5632, 32000, torch.bfloat16) for _ in range(2))
    value = llama(1024, 6, 16, 8, 2816, 32000, torch.bfloat16)
    head = nn.Linear(1024, 1, device=CUDA, dtype=torch.bfloat16)
    ref.eval().requires_grad_(False)
    params = (
        list(policy.parameters())
        + [p for n, p in value.named_parameters() if "lm_head" not in n]
        + list(head.parameters())
    )
    opt = torch.optim.AdamW(params, lr=1e-5, foreach=True)
    N = 6

    def logp(model, x):
        lp = torch.log_softmax(model(input_ids=x, use_cache=False).logits[:, -N - 1 : -1].float(), -1)
        return lp.gather(-1, x[:, -N:].unsqueeze(-1)).squeeze(-1)

    def values(x):
        return head(value.model(input_ids=x, use_cache=False).last_hidden_state[:, -N:]).squeeze(-1).float()

    for _ in range(6):
        b, s = 16, rec.rng.randint(64, 900)
        rec.step(f"batch {b} prompt {s}")
        with torch.no_grad():
            policy.eval()
            cache, x = hf.DynamicCache(), ids(b, s)
            new = x
            for _ in range(N):
                out = policy(input_ids=new, past_key_values=cache, use_cache=True, logits_to_keep=1)
                new = torch.multinomial(torch.softmax(out.logits[:, -1].float(), -1), 1)
                x = torch.cat([x, new], 1)
            del cache, out, new
            old, base, val = logp(policy, x), logp(ref, x), values(x)
            adv = torch.zeros_like(val)
            last = torch.zeros(b, device=CUDA)
            for i in reversed(range(N)):
                last = -0.1 * (old - base)[:, i] + 0.95 * last
                adv[:, i] = last - val[:, i]
        policy.train()
        for rows in torch.arange(b, device=CUDA).chunk(2):
            xx = x[rows]
            ratio = (logp(policy, xx) - old[rows]).exp()
            a = adv[rows]
            loss = (
                -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
                + 0.1 * (values(xx) - (a + val[rows])).pow(2).mean()
            )
            (loss / 2).backward()
            del xx, ratio, a, loss
        clip(params)
        opt.step()
        opt.zero_grad(set_to_none=True)
        del x, old, base, val, adv, last
    return locals()
