"""Jobs that train on images."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import CUDA, Ema, amp, clip, ids, job, pixels, to_gpu


@job(
    "ViT-B/16 (timm), fp16 autocast with GradScaler, batch 96 (step 5: 61, the last of an epoch), stochastic depth,"
    " mixup, AdamW, moving average; 8 steps"
)
def vit_amp_train(rec):
    import timm

    model = to_gpu(timm.create_model("vit_base_patch16_224", drop_path_rate=0.1, drop_rate=0.1)).train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    scaler = torch.amp.GradScaler("cuda")
    ema = Ema(model)
    for n in range(8):
        b = 61 if n == 4 else 96
        rec.step(f"batch {b}")
        x = pixels(b, 3, 224, 224)
        y = F.one_hot(torch.zeros(b, dtype=torch.int64), 1000).to(CUDA).float()
        x = x.mul(0.7).add_(x.flip(0).mul_(0.3))
        y = y * 0.7 + y.flip(0) * 0.3
        with amp(torch.float16):
            out = model(x)
            loss = -(y * F.log_softmax(out, -1)).sum(-1).mean()
        opt.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        clip(model.parameters())
        scaler.step(opt)
        scaler.update()
        ema.update()
    return locals()


@job(
    "Swin-T, bf16 autocast, batch 80 of 192..288 pixels (changing every step), SGD; after every 3 steps an evaluation"
    " of 4 batches of 160 and a checkpoint (copies of weights and optimizer on the GPU, then to the host); 9 steps"
)
def swin_train_eval_ckpt(rec):
    import torchvision

    model = to_gpu(torchvision.models.swin_t(weights=None))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True)
    for n in range(1, 10):
        res = rec.rng.choice([192, 224, 256, 288])
        rec.step(f"train {res} pixels")
        model.train()
        y = ids(80)
        with amp():
            loss = F.cross_entropy(model(pixels(80, 3, res, res)), y, label_smoothing=0.1)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        if n % 3 == 0:
            rec.step("evaluation and checkpoint")
            model.eval()
            with torch.no_grad(), amp():
                scores = [model(pixels(b, 3, 256, 256)).float() for b in (160, 160, 160, 93)]
                torch.cat(scores).topk(5)[1].cpu()
                del scores
            with torch.no_grad():
                copy = {k: v.detach().clone() for k, v in model.state_dict().items()}
                moments = [s["momentum_buffer"].clone() for s in opt.state.values()]
                flat = torch.cat([v.reshape(-1) for v in copy.values() if v.is_floating_point()])
                flat.cpu(), [m.cpu() for m in moments]
                del copy, moments, flat
    return locals()


@job(
    "DETR-like detector: ResNet-50 with frozen normalization, 6+6 transformer layers of 256, auxiliary losses, fp32,"
    " batch 8 padded to the largest image (480..800 by up to 1333), AdamW; 10 steps"
)
def detr_train(rec):
    import torchvision

    class Detr(nn.Module):
        def __init__(self):
            super().__init__()
            net = torchvision.models.resnet50(norm_layer=torchvision.ops.FrozenBatchNorm2d)
            self.body = nn.Sequential(*list(net.children())[:-2])
            self.proj = nn.Conv2d(2048, 256, 1)
            self.enc = nn.ModuleList(nn.TransformerEncoderLayer(256, 8, 2048, batch_first=True) for _ in range(6))
            self.dec = nn.ModuleList(nn.TransformerDecoderLayer(256, 8, 2048, batch_first=True) for _ in range(6))
            self.queries, self.cls, self.box = (
                nn.Embedding(100, 256),
                nn.Linear(256, 92),
                nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)),
            )

        def forward(self, x, mask):
            f = self.proj(self.body(x))
            mask = F.interpolate(mask[:, None].float(), size=f.shape[-2:])[:, 0].bool()
            pos = torch.cat(
                [
                    torch.cumsum((~mask).float(), d).unsqueeze(-1).div(torch.arange(64, device=CUDA) + 1.0).sin()
                    for d in (1, 2, 1, 2)
                ],
                -1,
            ).flatten(1, 2)
            h, m = f.flatten(2).transpose(1, 2), mask.flatten(1)
            for l in self.enc:
                h = l(h + pos, src_key_padding_mask=m)
            q = self.queries.weight.expand(x.shape[0], -1, -1)
            outs = []
            for l in self.dec:
                q = l(q, h + pos, memory_key_padding_mask=m)
                outs.append((self.cls(q), self.box(q).sigmoid()))
            return outs

    model = to_gpu(Detr()).train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    for _ in range(10):
        sizes = []
        for _ in range(8):
            short, ratio = rec.rng.randrange(480, 801, 32), rec.rng.uniform(1, 1.8)
            long = min(1333, int(short * ratio))
            sizes.append((short, long) if rec.rng.random() < 0.7 else (long, short))
        h, w = max(s[0] for s in sizes), max(s[1] for s in sizes)
        rec.step(f"{h}x{w}")
        images = [pixels(3, *s) for s in sizes]
        x = torch.zeros(8, 3, h, w, device=CUDA)
        mask = torch.ones(8, h, w, dtype=torch.bool, device=CUDA)
        for i, s in enumerate(sizes):
            x[i, :, : s[0], : s[1]].copy_(images[i])
            mask[i, : s[0], : s[1]] = False
        del images
        loss = 0
        for logits, boxes in model(x, mask):
            n = rec.rng.randint(20, 90)  # objects in the batch
            with torch.no_grad():  # the matching happens on the host
                cost = torch.cdist(boxes.flatten(0, 1), pixels(n, 4), p=1) - logits.flatten(0, 1).softmax(-1)[:, ids(n)]
                cost.cpu()
                del cost
            target = torch.full((8, 100), 91, dtype=torch.int64, device=CUDA)
            src = ids(n)
            target.view(-1)[src] = ids(n)
            loss = (
                loss
                + F.cross_entropy(logits.transpose(1, 2), target)
                + 5 * F.l1_loss(boxes.flatten(0, 1)[src], pixels(n, 4))
            )
        loss.backward()
        clip(model.parameters(), 0.1)
        opt.step()
        opt.zero_grad(set_to_none=True)
        del x, mask, loss, logits, boxes, target, src
    return locals()


@job(
    "Wasserstein GAN with gradient penalty (double backward), growing images: 64, 128, 256 pixels with batch 128, 64,"
    " 24, two critic updates a step, sample images with an averaged generator in between, fp32, Adam; 12 steps"
)
def gan_gp_train(rec):
    def conv(a, b, k=3):
        return nn.Conv2d(a, b, k, padding=k // 2)

    ch = {4: 512, 8: 512, 16: 256, 32: 256, 64: 128, 128: 64, 256: 32}

    class G(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(256, 512 * 16)
            self.blocks = nn.ModuleList(
                nn.ModuleList(
                    [
                        conv(ch[r // 2], ch[r]),
                        nn.BatchNorm2d(ch[r]),
                        conv(ch[r], ch[r]),
                        nn.BatchNorm2d(ch[r]),
                        conv(ch[r], 3, 1),
                    ]
                )
                for r in (8, 16, 32, 64, 128, 256)
            )

        def forward(self, z, res):
            x = self.first(z).view(-1, 512, 4, 4)
            for c1, n1, c2, n2, rgb in self.blocks:
                x = F.interpolate(x, scale_factor=2, mode="nearest")
                x = F.leaky_relu(n1(c1(x)), 0.2)
                x = F.leaky_relu(n2(c2(x)), 0.2)
                if x.shape[-1] == res:
                    return torch.tanh(rgb(x))

    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.ModuleList([conv(3, ch[r], 1), conv(ch[r], ch[r]), conv(ch[r], ch[r // 2])])
                for r in (256, 128, 64, 32, 16, 8)
            )
            self.last = nn.Linear(512 * 16, 1)

        def forward(self, x):
            h = None
            for i, (rgb, c1, c2) in enumerate(self.blocks):
                if h is None:
                    if 256 >> i != x.shape[-1]:
                        continue
                    h = F.leaky_relu(rgb(x), 0.2)
                h = F.leaky_relu(c1(h), 0.2)
                h = F.avg_pool2d(F.leaky_relu(c2(h), 0.2), 2)
            return self.last(h.flatten(1))

    g, d = to_gpu(G()).train(), to_gpu(Critic()).train()
    avg = to_gpu(G()).eval().requires_grad_(False)
    og = torch.optim.Adam(g.parameters(), lr=1e-4, betas=(0.0, 0.9), foreach=True)
    od = torch.optim.Adam(d.parameters(), lr=1e-4, betas=(0.0, 0.9), foreach=True)
    for n in range(12):
        res, b = [(64, 128), (128, 64), (256, 24)][n // 4]
        rec.step(f"{res} pixels batch {b}")
        for _ in range(2):
            real = pixels(b, 3, res, res)
            with torch.no_grad():
                fake = g(torch.randn(b, 256, device=CUDA), res)
            u = torch.rand(b, 1, 1, 1, device=CUDA)
            mid = (u * real + (1 - u) * fake).requires_grad_(True)
            (grad,) = torch.autograd.grad(d(mid).sum(), mid, create_graph=True)
            gp = ((grad.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
            loss = d(fake).mean() - d(real).mean() + 10 * gp
            od.zero_grad(set_to_none=True)
            loss.backward()
            od.step()
            del mid, grad, gp, loss
        loss = -d(g(torch.randn(b, 256, device=CUDA), res)).mean()
        og.zero_grad(set_to_none=True)
        loss.backward(inputs=list(g.parameters()))
        og.step()
        del loss
        with torch.no_grad():
            torch._foreach_lerp_(list(avg.parameters()), list(g.parameters()), 0.01)
            if n % 4 == 3:
                avg(torch.randn(36, 256, device=CUDA), res).mul_(127.5).add_(128).clamp_(0, 255).to(torch.uint8).cpu()
    return locals()
