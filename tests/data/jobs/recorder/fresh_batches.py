"""Fresh jobs in which batches are made while the model runs: input prefetched on a stream, and speculative decoding."""

import collections

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import CUDA, Comm, ids, job, pixels, to_gpu


@job(
    "Click prediction with a prefetched input: two batches ahead, copied and prepared on stream 1 with record_stream;"
    " 40 categorical, 12 ragged and 60 numeric features, cross network, mixture of 6 experts for 3 tasks, fp32,"
    " Adagrad, batch 3000..12000 (what arrived in a time window); 24 steps"
)
def prefetch_ctr_train(rec):
    D, CATS, RAGGED, NUM, ROWS = 32, 40, 12, 60, 2_000_000
    WIDTH = (CATS + RAGGED) * D + NUM
    comm = Comm(rec)

    def mlp(*d):
        return nn.Sequential(
            *[m for a, b in zip(d, d[1:]) for m in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(0.1))]
        )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cats = nn.Embedding(ROWS, D)
            self.bags = nn.ModuleList(nn.EmbeddingBag(20_000 << i % 4, D, mode="mean") for i in range(RAGGED))
            self.cross = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
            self.experts = nn.ModuleList(mlp(WIDTH, 512, 256) for _ in range(6))
            self.gates = nn.ModuleList(nn.Linear(WIDTH, 6) for _ in range(3))
            self.towers = nn.ModuleList(nn.Sequential(mlp(256, 128), nn.Linear(128, 1)) for _ in range(3))

        def forward(self, batch):
            bags = [bag(v, o) for bag, (v, o) in zip(self.bags, batch["ragged"])]
            first = x = torch.cat([self.cats(batch["cats"]).flatten(1), *bags, batch["numeric"]], 1)
            for c in self.cross:
                x = first * c(x) + x
            e = torch.stack([f(x) for f in self.experts], 1)
            mixed = [(torch.softmax(g(x), -1).unsqueeze(-1) * e).sum(1) for g in self.gates]
            return torch.cat([t(m) for t, m in zip(self.towers, mixed)], 1)

    model = to_gpu(Net()).train()
    opt = torch.optim.Adagrad(model.parameters(), lr=0.01, foreach=True)
    offsets = torch.arange(CATS, device=CUDA) * (ROWS // CATS)
    mean, scale = pixels(NUM), pixels(NUM)

    def load():
        """Starts a batch on the second stream."""
        b = rec.rng.randint(3000, 12000)
        with comm.run():
            x = pixels(b, NUM)
            x = (torch.log1p(torch.nan_to_num(x).clamp(min=0)) - mean) * scale
            cats = ids(b, CATS) % (ROWS // CATS) + offsets
            ragged = []
            for bag in model.bags:
                values, lengths = ids(int(b * rec.rng.lognormvariate(1, 1))), ids(b)
                ragged.append((values % bag.num_embeddings, lengths.cumsum(0) - lengths))
            targets = pixels(b, 3)
            weights = torch.where(targets > 0, 1.0, 0.2).div_(0.3)
        return {"numeric": x, "cats": cats, "ragged": ragged, "targets": targets, "weights": weights}

    ahead = collections.deque(load() for _ in range(2))
    for n in range(1, 25):
        batch = ahead.popleft()
        rec.step(f"batch {len(batch['cats'])}")
        loose = [v for k, v in batch.items() if k != "ragged"]
        comm.wait(*loose, *[t for pair in batch["ragged"] for t in pair])
        del loose
        ahead.append(load())
        out = model(batch)
        loss = F.binary_cross_entropy_with_logits(out, batch["targets"], batch["weights"])
        del batch
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        if n % 8 == 0:
            loss.item()  # waits for the device
            comm.done()
        del out, loss
    return locals()


@job(
    "Speculative decoding, bf16: a Llama-like model of 0.8B checks 4 tokens of a draft model of 60M; up to 16 requests"
    " that come (prompts of 30..1500 tokens) and go share one batch, whose caches are copied to grow, to admit and to"
    " drop requests; 24 rounds"
)
def speculative_serve(rec):
    V, HD, K, GROW = 32000, 64, 4, 128
    half = dict(device=CUDA, dtype=torch.bfloat16)

    class Model:
        def __init__(self, d, layers, heads, kv, inter):
            self.kv = kv
            self.emb, self.norm = torch.empty(V, d, **half), torch.ones(d, **half)
            self.frequencies = torch.empty(HD // 2, device=CUDA)
            self.layers = []
            for _ in range(layers):
                shapes = [((heads + 2 * kv) * HD, d), (d, heads * HD), (2 * inter, d), (d, inter)]
                self.layers.append([torch.empty(s, **half) for s in shapes] + [torch.ones(d, **half) for _ in range(2)])
            self.caches = [torch.empty(2, 0, kv, 0, HD, **half) for _ in range(layers)]

        def resize(self, capacity):
            """Copies the caches into longer ones."""
            for l, old in enumerate(self.caches):
                new = torch.zeros(2, old.shape[1], self.kv, capacity, HD, **half)
                new[:, :, :, : old.shape[3]].copy_(old)
                self.caches[l] = new
                del old, new

        def admit(self, caches, capacity):
            """Adds a request whose prompt has these caches to the batch."""
            for l, c in enumerate(caches):
                c = F.pad(c, (0, 0, 0, capacity - c.shape[3]))
                self.caches[l] = torch.cat([self.caches[l], c], 1)

        def keep(self, rows):
            for l in range(len(self.caches)):
                self.caches[l] = self.caches[l].index_select(1, rows)

        def forward(self, x, caches=None, end=0):
            """Returns the probabilities of the next tokens, and without `caches`, those of a new request."""
            (b, t), made = x.shape, []
            h = F.embedding(x, self.emb)
            if caches is None:
                at, mask = torch.arange(t, device=CUDA).unsqueeze(1), None
            else:
                at = ids(b, 1, t, 1)  # requests have their own lengths
                mask = torch.arange(end, device=CUDA) <= at
            angle = torch.cat([at * self.frequencies] * 2, -1)
            cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
            for l, (qkv, o, up, down, n1, n2) in enumerate(self.layers):
                y = F.linear(F.rms_norm(h, n1.shape, n1), qkv).view(b, t, -1, HD).transpose(1, 2)
                q, k, v = y.split([y.shape[1] - 2 * self.kv, self.kv, self.kv], 1)
                q, k = (z * cos + torch.cat([-z[..., HD // 2 :], z[..., : HD // 2]], -1) * sin for z in (q, k))
                if caches is None:
                    made.append(torch.stack([k, v]))
                else:
                    caches[l][0].scatter_(2, at.expand_as(k), k)
                    caches[l][1].scatter_(2, at.expand_as(v), v)
                    k, v = caches[l][:, :, :, :end].unbind(0)
                a = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
                h = h + F.linear(a.transpose(1, 2).flatten(2), o)
                g, u = F.linear(F.rms_norm(h, n2.shape, n2), up).chunk(2, -1)
                h = h + F.linear(F.silu(g) * u, down)
                del y, q, k, v, a, g, u
            if caches is None:
                h = h[:, -1:]
            logits = F.linear(F.rms_norm(h, self.norm.shape, self.norm), self.emb).float()
            return torch.softmax(logits / 0.8, -1), made

    target, draft = Model(2048, 16, 32, 8, 5632), Model(768, 6, 12, 4, 2048)
    requests = []  # (tokens so far, tokens to go)
    capacity = 0

    def pick(p):
        return torch.multinomial(p.flatten(0, -2), 1)

    with torch.no_grad():
        for _ in range(24):
            rec.step(f"{len(requests)} requests, caches of {capacity} tokens")
            while len(requests) < 16 and (not requests or rec.rng.random() < 0.5):
                n = int(30 * 50 ** rec.rng.random())
                x = ids(1, n)
                results = [m.forward(x) for m in (target, draft)]
                if n + K + 1 > capacity:
                    capacity = -(-(n + K + 1) // GROW) * GROW
                    target.resize(capacity)
                    draft.resize(capacity)
                target.admit(results[0][1], capacity)
                draft.admit(results[1][1], capacity)
                pick(results[0][0]).cpu()
                requests.append([n, rec.rng.randint(20, 90)])
                del x, results
            b, longest = len(requests), max(n for n, _ in requests)
            if longest + K + 1 > capacity:
                capacity += GROW
                target.resize(capacity)
                draft.resize(capacity)
            x, guessed, tokens = ids(b, 1), [], []
            for i in range(K):
                p, _ = draft.forward(x, draft.caches, longest + i + 1)
                x = pick(p)
                guessed.append(p)
                tokens.append(x)
            q = torch.cat(guessed, 1)
            tokens = torch.cat(tokens, 1)
            del guessed, x
            p, _ = target.forward(torch.cat([ids(b, 1), tokens], 1), target.caches, longest + K + 1)
            at = tokens.unsqueeze(-1)
            ratio = (p[:, :K].gather(-1, at) / q.gather(-1, at)).squeeze(-1)
            accepted = (torch.rand_like(ratio) < ratio).int().cumprod(1).sum(1)
            rest = torch.cat([(p[:, :K] - q).clamp(min=0), p[:, K:]], 1)
            rest = rest.gather(1, accepted.long()[:, None, None].expand(-1, 1, V))
            torch.cat([tokens, pick(rest / rest.sum(-1, keepdim=True))], 1).cpu()
            del q, p, tokens, at, ratio, accepted, rest
            for r in requests:
                done = rec.rng.choice([1, 2, 3, 4, 5, 5])
                r[0] += done
                r[1] -= done
            left = [r for r in requests if r[1] > 0]
            if len(left) < len(requests):
                target.keep(ids(len(left)))
                draft.keep(ids(len(left)))
                requests = left
    return locals()
