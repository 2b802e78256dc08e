"""Jobs that serve a language model."""

import torch
import torch.nn.functional as F

from common import CUDA, ids, job, llama, transformers


@job(
    "Llama-like 1.1B, fp16, serving groups of requests with caches grown by torch.cat: up to 5 groups of 1..4 prompts"
    " of 40..1800 tokens take turns; 12 steps of 7 forward passes"
)
def llama_serve_cat(rec):
    hf = transformers()
    model = llama(2048, 16, 16, 16, 5632, 32000, torch.float16).eval()
    waiting = 40
    groups = []

    def forward(g, x):
        out = model(input_ids=x, past_key_values=g["cache"], use_cache=True, logits_to_keep=1)
        nxt = torch.softmax(out.logits[:, -1].float() / 0.8, -1)
        nxt = torch.multinomial(nxt, 1)
        nxt.cpu()  # the program looks at the token
        g["next"] = nxt

    with torch.no_grad():
        turn = 0
        for _ in range(12):
            rec.step(f"{len(groups)} groups")
            for _ in range(7):
                if len(groups) < 5 and waiting and rec.rng.random() < 0.5:
                    waiting -= 1
                    g = {"cache": hf.DynamicCache(), "left": rec.rng.randint(4, 20)}
                    b = rec.rng.choice([1, 1, 2, 3, 4])
                    forward(g, ids(b, int(40 * 45 ** rec.rng.random())))
                    groups.append(g)
                elif groups:
                    turn += 1
                    g = groups[turn % len(groups)]
                    forward(g, g["next"])
                    g["left"] -= 1
                    if g["left"] == 0:
                        groups.remove(g)
                        del g
    return locals()


@job(
    "Llama-like 2.3B, fp16, paged key-value cache (1.5 GiB pool made at the start), chunked prompts and decoding mixed"
    " in one ragged batch, growing block tables; 12 steps of 2 passes"
)
def llama_serve_paged(rec):
    D, L, H, KV, HD, FF, V, BS = 3072, 20, 24, 8, 128, 8192, 128256, 16
    half = dict(device=CUDA, dtype=torch.float16)
    emb = torch.empty(V, D, **half)
    layers = [
        dict(
            qkv=torch.empty((H + 2 * KV) * HD, D, **half),
            o=torch.empty(D, H * HD, **half),
            up=torch.empty(2 * FF, D, **half),
            down=torch.empty(D, FF, **half),
            n1=torch.empty(D, **half),
            n2=torch.empty(D, **half),
        )
        for _ in range(L)
    ]
    norm = torch.empty(D, **half)
    rope = torch.empty(8192, HD, **half)
    blocks = (3 << 29) // (L * 2 * BS * KV * HD * 2)
    pool = [torch.zeros(2, blocks, BS, KV, HD, **half) for _ in range(L)]

    def rms(x, w):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w

    def rotate(x, cs):
        a, b = x.chunk(2, -1)
        c, s = cs.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def attend(q, k, v, causal):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    def forward(prefill, decode):
        """Arguments: prefill: [(new tokens, tokens before)], decode: [tokens before]."""
        T = sum(n for n, _ in prefill) + len(decode)
        x = F.embedding(ids(T), emb)
        pos, slot = ids(T), ids(T)
        cs = rope[pos].unsqueeze(1)
        tables = [ids((n + b + BS - 1) // BS) for n, b in prefill]
        longest = max(decode, default=0) + 1
        if decode:
            table = ids(len(decode), (longest + BS - 1) // BS)
            lens = ids(len(decode))  # an argument of the real kernel, which does not run here
        for l, (w, kv) in enumerate(zip(layers, pool)):
            q, k, v = F.linear(rms(x, w["n1"]), w["qkv"]).view(T, -1, HD).split([H, KV, KV], 1)
            q, k = rotate(q, cs), rotate(k, cs)
            kv[0].view(-1, KV, HD).index_copy_(0, slot, k)
            kv[1].view(-1, KV, HD).index_copy_(0, slot, v)
            outs, at = [], 0
            for (n, b), tb in zip(prefill, tables):
                if b == 0:
                    kk, vv = k[at : at + n], v[at : at + n]
                else:
                    kk, vv = (kv[j].index_select(0, tb).view(-1, KV, HD)[: n + b] for j in (0, 1))
                o = attend(
                    q[at : at + n].transpose(0, 1)[None], kk.transpose(0, 1)[None], vv.transpose(0, 1)[None], b == 0
                )
                outs.append(o[0].transpose(0, 1))
                at += n
            if decode:
                kk, vv = (
                    kv[j].index_select(0, table.view(-1)).view(len(decode), -1, KV, HD)[:, :longest].transpose(1, 2)
                    for j in (0, 1)
                )
                o = attend(q[at:].unsqueeze(2), kk, vv, False)
                outs.append(o[:, :, 0])
            o = torch.cat(outs).reshape(T, -1)
            del q, k, v, kk, vv, outs
            x = x + F.linear(o, w["o"])
            g, u = F.linear(rms(x, w["n2"]), w["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(g) * u, w["down"])
            del g, u, o
        last = x.index_select(0, ids(len(prefill) + len(decode)))
        logits = F.linear(rms(last, norm), emb).float()
        p, order = torch.softmax(logits, -1).sort(-1, descending=True)
        keep = p.cumsum(-1) < 0.9
        p = p.masked_fill(~keep, 0.0)
        torch.gather(order, -1, torch.multinomial(p, 1)).cpu()

    with torch.no_grad():
        decode, prefill = [], []
        for _ in range(12):
            rec.step(f"{len(decode)} decoding")
            for _ in range(2):
                budget, now = 6144 - len(decode), []
                while budget > 0 and (prefill or len(decode) < 24):
                    if not prefill:
                        prefill.append([int(40 * 200 ** rec.rng.random()), 0])
                    left, before = prefill[0]
                    n = min(left, budget)
                    now.append((n, before))
                    prefill[0] = [left - n, before + n]
                    budget -= n
                    if left == n:
                        prefill.pop(0)
                    if len(now) == 3:
                        break
                forward(now, decode)
                decode = [d + 1 for d in decode if rec.rng.random() > 0.08]
                decode += [b + n for (n, b) in now if not (prefill and prefill[0][1] == b + n)]
    return locals()
