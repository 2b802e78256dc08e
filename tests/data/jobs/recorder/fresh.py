"""Fresh jobs: training programs that differ in kind from those of the other files."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import CUDA, amp, clip, ids, job, pixels, to_gpu
from recorder import aten


@job(
    "Speech recognition: convolutional front end, Conformer (12 layers of 512), CTC loss, batches of about 24,000"
    " frames from buckets of 200..1600 frames, masked features, bf16 autocast, AdamW, clip; 8 steps"
)
def speech_ctc_train(rec):
    D, H, V = 512, 8, 1024

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(5))
            self.feed = nn.ModuleList(
                nn.Sequential(nn.Linear(D, 4 * D), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * D, D)) for _ in range(2)
            )
            self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
            self.wide, self.narrow = nn.Conv1d(D, 2 * D, 1), nn.Conv1d(D, D, 1)
            self.depth, self.batch_norm = nn.Conv1d(D, D, 31, padding=15, groups=D), nn.BatchNorm1d(D)
            self.drop = nn.Dropout(0.1)

        def forward(self, x, pad):
            x = x + 0.5 * self.drop(self.feed[0](self.norms[0](x)))
            q, k, v = self.qkv(self.norms[1](x)).unflatten(-1, (3, H, D // H)).permute(2, 0, 3, 1, 4).unbind(0)
            a = F.scaled_dot_product_attention(q, k, v, ~pad[:, None, None], dropout_p=0.1)
            x = x + self.drop(self.o(a.transpose(1, 2).flatten(2)))
            c = self.norms[2](x).masked_fill(pad.unsqueeze(-1), 0.0).transpose(1, 2)
            c = self.narrow(F.silu(self.batch_norm(self.depth(F.glu(self.wide(c), 1)))))
            x = x + self.drop(c.transpose(1, 2))
            return self.norms[4](x + 0.5 * self.drop(self.feed[1](self.norms[3](x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Sequential(nn.Conv2d(1, D, 3, 2, 1), nn.ReLU(), nn.Conv2d(D, D, 3, 2, 1), nn.ReLU())
            self.proj, self.out = nn.Linear(D * 20, D), nn.Linear(D, V)
            self.layers = nn.ModuleList(Layer() for _ in range(12))

        def forward(self, x, lengths):
            x = self.proj(self.front(x.unsqueeze(1)).transpose(1, 2).flatten(2))
            pad = torch.arange(x.shape[1], device=CUDA) >= lengths.unsqueeze(1)
            for l in self.layers:
                x = l(x, pad)
            return F.log_softmax(self.out(x).float(), -1)

    # The loss does not run on fake tensors. These functions request what its CUDA code does.
    def ctc(lp, targets, *rest):
        rec.see(loss := lp.new_empty(lp.shape[1]))
        rec.see(alpha := lp.new_empty(lp.shape[1], lp.shape[0], 2 * targets.shape[1] + 1))
        return loss, alpha

    def ctc_backward(grad, lp, targets, input_lengths, target_lengths, loss, alpha, *rest):
        rec.temporary(alpha.numel() * 4)  # the same table, from the end
        rec.see(out := torch.empty_like(lp))
        return out

    rec.answers[aten._ctc_loss.Tensor] = ctc
    rec.answers[aten._ctc_loss_backward.Tensor] = ctc_backward
    model = to_gpu(Net()).train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    for _ in range(8):
        bucket = rec.rng.randrange(200, 1501, 100)
        frames = rec.rng.randint(bucket, bucket + 100)  # the longest of the batch
        b, words = 24000 // frames, rec.rng.randint(frames // 24, frames // 12)
        rec.step(f"batch {b} frames {frames} target {words}")
        x = pixels(b, frames, 80)
        for dim in (1, 2, 2):
            where = torch.arange(x.shape[dim], device=CUDA).expand(b, -1)
            start, width = (torch.rand(2, b, 1, device=CUDA) * x.shape[dim] * 0.2).unbind(0)
            x = x.masked_fill(((where >= start) & (where < start + width)).unsqueeze(3 - dim), 0.0)
        lengths = ids(b)
        with amp():
            lp = model(x, (lengths + 3) // 4)
        loss = F.ctc_loss(lp.transpose(0, 1), ids(b, words), (lengths + 3) // 4, ids(b), zero_infinity=True)
        del lp, x, where, start, width
        loss.backward()
        clip(model.parameters(), 5.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        del loss
    return locals()


@job(
    "Segmentation: U-Net on ResNet-34, 40 classes, fp16 autocast with GradScaler, batch 12 of 256..640 by 256..640"
    " pixels, cross entropy, Dice and auxiliary losses, SGD; after steps 5 and 10 an evaluation of 3 whole images, each"
    " at 4 sizes with mirror images; 10 steps"
)
def segmentation_unet_train(rec):
    import torchvision

    C = 40

    def block(a, b):
        convs = [(a, b), (b, b)]
        return nn.Sequential(
            *[m for i, o in convs for m in (nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())]
        )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            r = torchvision.models.resnet34(weights=None)
            self.first = nn.Sequential(r.conv1, r.bn1, r.relu)
            self.downs = nn.ModuleList([nn.Sequential(r.maxpool, r.layer1), r.layer2, r.layer3, r.layer4])
            wide = [(512 + 256, 256), (256 + 128, 128), (128 + 64, 96), (96 + 64, 64)]
            self.ups = nn.ModuleList(block(*w) for w in wide)
            self.aux = nn.ModuleList([nn.Conv2d(256, C, 1), nn.Conv2d(128, C, 1)])
            self.last = nn.Conv2d(64, C, 1)

        def forward(self, x):
            size, skips, outs = x.shape[-2:], [self.first(x)], []
            for d in self.downs:
                skips.append(d(skips[-1]))
            h = skips.pop()
            for i, up in enumerate(self.ups):
                s = skips.pop()
                h = F.interpolate(h, size=s.shape[-2:], mode="bilinear", align_corners=False)
                h = up(torch.cat([h, s], 1))
                if self.training and i < 2:
                    outs.append(self.aux[i](h))
            return [F.interpolate(o, size=size, mode="bilinear", align_corners=False) for o in [self.last(h)] + outs]

    def dice(logits, y):
        p, t = torch.softmax(logits.float(), 1), F.one_hot(y, C).permute(0, 3, 1, 2).float()
        return 1 - ((2 * (p * t).sum((0, 2, 3)) + 1) / ((p + t).sum((0, 2, 3)) + 1)).mean()

    model = to_gpu(Net())
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4, foreach=True)
    scaler = torch.amp.GradScaler("cuda")
    for n in range(1, 11):
        h, w = (rec.rng.randrange(256, 641, 32) for _ in range(2))
        rec.step(f"train {h}x{w}")
        model.train()
        x, y = pixels(12, 3, h, w, dtype=torch.uint8), ids(12, h, w)
        x = x.float().div_(255).sub_(0.45).div_(0.22).contiguous(memory_format=torch.channels_last)
        with amp(torch.float16):
            out, *aux = model(x)
            loss = F.cross_entropy(out, y) + dice(out, y) + sum(0.3 * F.cross_entropy(a, y) for a in aux)
        del x, out, aux
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        del y, loss
        if n % 5 == 0:
            rec.step("evaluation")
            model.eval()
            confusion = torch.zeros(C * C, device=CUDA)
            with torch.no_grad(), amp(torch.float16):
                for _ in range(3):
                    h, w = rec.rng.randint(700, 1100), rec.rng.randint(900, 1600)
                    x, y, total = pixels(1, 3, h, w), ids(1, h, w), 0
                    for scale in (0.5, 0.75, 1.0, 1.25):
                        size = [int(s * scale) // 32 * 32 for s in (h, w)]
                        z = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
                        p = model(z)[0].softmax(1) + model(z.flip(-1))[0].flip(-1).softmax(1)
                        total = total + F.interpolate(p, size=(h, w), mode="bilinear", align_corners=False)
                    at = (y * C + total.argmax(1)).flatten()
                    confusion.index_add_(0, at, torch.ones_like(at, dtype=torch.float32))
            confusion.cpu()
            del confusion, x, y, z, p, total, at
    return locals()


@job(
    "Language model with selective state spaces (Mamba-like, 6 layers of 768), the recurrence stepped token by token,"
    " truncated backpropagation over 16..56 tokens with the state carried on, batch 32, bf16 autocast, Muon and AdamW;"
    " 6 steps"
)
def ssm_tbptt_train(rec):
    D, E, N, R, V, B = 768, 1536, 16, 48, 32000, 32

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.wide, self.narrow = nn.RMSNorm(D), nn.Linear(D, 2 * E, False), nn.Linear(E, D, False)
            self.conv = nn.Conv1d(E, E, 4, groups=E)
            self.select, self.rate = nn.Linear(E, R + 2 * N, False), nn.Linear(R, E)
            self.decay, self.skip = nn.Parameter(torch.zeros(E, N)), nn.Parameter(torch.ones(E))

        def forward(self, x, keep, state):
            tail, h = state
            u, z = self.wide(self.norm(x)).chunk(2, -1)
            u = torch.cat([tail, u], 1)
            tail = u[:, -3:].detach().clone()
            u = F.silu(self.conv(u.transpose(1, 2))).transpose(1, 2)
            rate, into, out = self.select(u).split([R, N, N], -1)
            rate, a, ys = F.softplus(self.rate(rate).float()), -self.decay.exp(), []
            parts = (t.unbind(1) for t in (rate, rate * u, into.float(), out.float(), keep))
            for r, ru, i, o, k in zip(*parts):
                h = torch.exp(r.unsqueeze(-1) * a) * (h * k[:, None, None]) + ru.unsqueeze(-1) * i.unsqueeze(1)
                ys.append((h * o.unsqueeze(1)).sum(-1))
            y = (torch.stack(ys, 1) + u * self.skip) * F.silu(z)
            return x + self.narrow(y), (tail, h.detach())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.norm, self.drop = nn.Embedding(V, D), nn.RMSNorm(D), nn.Dropout(0.1)
            self.layers = nn.ModuleList(Layer() for _ in range(6))

        def forward(self, x, y, states):
            keep, h = (x != 0).float(), self.drop(self.emb(x))  # token 0 starts a document
            for n, l in enumerate(self.layers):
                h, states[n] = l(h, keep, states[n])
            return F.cross_entropy(F.linear(self.norm(h), self.emb.weight).float().flatten(0, 1), y.flatten())

    model = to_gpu(Net()).train()
    matrices = [p for l in model.layers for p in (l.wide.weight, l.narrow.weight, l.select.weight, l.rate.weight)]
    others = [p for p in model.parameters() if all(p is not m for m in matrices)]
    opts = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=1e-3, foreach=True)]
    states = [
        (torch.zeros(B, 3, E, device=CUDA, dtype=torch.bfloat16), torch.zeros(B, E, N, device=CUDA)) for _ in range(6)
    ]
    for _ in range(6):
        t = rec.rng.randint(16, 56)
        rec.step(f"{t} tokens")
        with amp():
            loss = model(ids(B, t), ids(B, t), states)
        loss.backward()
        clip(model.parameters(), 0.5)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        del loss
    return locals()
