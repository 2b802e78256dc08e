"""Jobs in which values determine which parts of a model are used."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import CUDA, Comm, clip, ids, job, pixels, to_gpu
from recorder import aten


class AllToAll(torch.autograd.Function):
    """Sends rows to other devices and receives others, on the communication stream."""

    @staticmethod
    def forward(ctx, x, rows, comm):
        ctx.rows, ctx.comm = x.shape[0], comm
        return AllToAll.go(x, rows, comm)

    @staticmethod
    def go(x, rows, comm):
        with comm.run():
            out = x.new_empty(rows, *x.shape[1:])
            x.record_stream(comm.stream)
        comm.wait(out)
        return out

    @staticmethod
    def backward(ctx, g):
        return AllToAll.go(g.contiguous(), ctx.rows, ctx.comm), None, None


@job(
    "Mixture of experts, expert parallel: 8 layers of 1024, 8 of 64 experts here, top 2, counts of tokens random,"
    " all-to-all on stream 1 with record_stream; bf16, AdamW, batch 4 seq 2048; 6 steps"
)
def moe_ep_train(rec):
    D, FF, H, L, E, LOCAL, V = 1024, 2816, 16, 8, 64, 8, 32000
    comm = Comm(rec)

    def counts(total, n, skew):
        """Splits `total` into n parts of random sizes."""
        w = [rec.rng.lognormvariate(0, skew) for _ in range(n)]
        c = [int(total * v / sum(w)) for v in w]
        c[0] += total - sum(c)
        return c

    class Expert(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.gate, self.down = (
                nn.Linear(D, FF, bias=False),
                nn.Linear(D, FF, bias=False),
                nn.Linear(FF, D, bias=False),
            )

        def forward(self, x):
            return self.down(F.silu(self.gate(x)) * self.up(x))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.RMSNorm(D), nn.RMSNorm(D)
            self.qkv, self.o = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
            self.router = nn.Linear(D, E, bias=False)
            self.experts = nn.ModuleList(Expert() for _ in range(LOCAL))

        def forward(self, x):
            B, S, _ = x.shape
            q, k, v = self.qkv(self.n1(x)).view(B, S, 3, H, D // H).permute(2, 0, 3, 1, 4).unbind(0)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(B, S, D))
            h = self.n2(x).view(B * S, D)
            p = torch.softmax(self.router(h).float(), -1)
            w, e = p.topk(2, -1)
            w = (w / w.sum(-1, keepdim=True)).to(h.dtype)
            order = e.view(-1).argsort(stable=True)
            torch.bincount(e.view(-1), minlength=E).cpu()
            sent = h.index_select(0, order // 2)
            got = AllToAll.apply(sent, int(sent.shape[0] * rec.rng.uniform(0.6, 1.5)), comm)
            # received rows are sorted by sender; sort them by expert
            perm = ids(got.shape[0])
            rows = got.index_select(0, perm)
            ys = [f(t) for f, t in zip(self.experts, rows.split(counts(got.shape[0], LOCAL, 0.6)))]
            back = AllToAll.apply(torch.cat(ys).index_select(0, perm), sent.shape[0], comm)
            y = torch.zeros_like(h).index_add(0, order // 2, back * w.view(-1)[order].unsqueeze(-1))
            aux = (p.mean(0) * F.one_hot(e[:, 0], E).float().mean(0)).sum() * E
            return x + y.view(B, S, D), aux

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.norm, self.head = nn.Embedding(V, D), nn.RMSNorm(D), nn.Linear(D, V, bias=False)
            self.layers = nn.ModuleList(Layer() for _ in range(L))

        def forward(self, x, y):
            h, aux = self.emb(x), 0
            for l in self.layers:
                h, a = l(h)
                aux = aux + a
            return F.cross_entropy(self.head(self.norm(h)).float().view(-1, V), y.view(-1)) + 0.01 * aux

    rec.answers[aten.bincount.default] = lambda t, w=None, minlength=0: torch.zeros(
        minlength, dtype=torch.int64, device=t.device
    )
    model = to_gpu(Net(), torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    for _ in range(6):
        rec.step("batch 4 seq 2048")
        model(ids(4, 2048), ids(4, 2048)).backward()
        comm.done()
        clip(model.parameters())
        opt.step()
        opt.zero_grad(set_to_none=True)
    return locals()


@job(
    "Recommender: 26 embedding bags (6.9 million rows of 64) with several values each, a behaviour sequence of varying"
    " length with attention, MLPs, batch 8192, dense Adam; an evaluation after steps 5 and 10; 12 steps"
)
def dlrm_train(rec):
    D, B = 64, 8192
    rows = [int(1000 * 2 ** rec.rng.uniform(0, 10.5)) for _ in range(25)] + [2_000_000]

    def mlp(*d):
        return nn.Sequential(*[m for a, b in zip(d, d[1:]) for m in (nn.Linear(a, b), nn.ReLU())])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(r, D, mode="sum") for r in rows)
            self.bottom, self.top = mlp(13, 512, 256, D), nn.Sequential(
                mlp(D + 27 * 28 // 2 + D, 1024, 1024, 512), nn.Linear(512, 1)
            )
            self.att = nn.Sequential(nn.Linear(4 * D, 80), nn.PReLU(), nn.Linear(80, 1))
            self.register_buffer("pairs", torch.tril_indices(28, 28, -1))

        def forward(self, dense, bags, history, lens):
            x = self.bottom(dense)
            es = [t(i, o) for t, (i, o) in zip(self.tables, bags)]
            h = F.embedding(history, self.tables[-1].weight)
            q = es[-1].unsqueeze(1).expand_as(h)
            s = self.att(torch.cat([q, h, q - h, q * h], -1)).squeeze(-1)
            s = s.masked_fill(torch.arange(h.shape[1], device=CUDA) >= lens.unsqueeze(1), -1e9)
            pooled = torch.bmm(torch.softmax(s, -1).unsqueeze(1), h).squeeze(1)
            f = torch.stack([x, pooled] + es, 1)
            z = torch.bmm(f, f.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([x, z, pooled], 1)).squeeze(-1)

    model = to_gpu(Net())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)

    def batch(b):
        bags = [(ids(int(b * rec.rng.choice([1, 1, 1.3, 2.7, rec.rng.uniform(3, 25)]))), ids(b)) for _ in range(26)]
        return pixels(b, 13), bags, ids(b, rec.rng.randint(10, 120)), ids(b)

    for n in range(1, 13):
        rec.step("train")
        loss = F.binary_cross_entropy_with_logits(model(*batch(B)), pixels(B))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if n in (5, 10):
            rec.step("evaluation")
            with torch.no_grad():
                preds = [torch.sigmoid(model(*batch(2 * B))) for _ in range(4)]
                torch.cat(preds).sort()[0].cpu()
                del preds
    return locals()
