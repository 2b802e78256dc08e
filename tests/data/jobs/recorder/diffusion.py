"""Jobs with a model that makes images from text."""

import torch
import torch.nn.functional as F

from common import CUDA, Ema, amp, clip, ids, job, pixels, to_gpu, transformers


def sd_parts(dtype, vae_dtype, train):
    from diffusers import AutoencoderKL, UNet2DConditionModel

    hf = transformers()
    unet = to_gpu(UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8), dtype)
    vae = to_gpu(
        AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            latent_channels=4,
            down_block_types=["DownEncoderBlock2D"] * 4,
            up_block_types=["UpDecoderBlock2D"] * 4,
        ),
        vae_dtype,
    )
    text = to_gpu(
        hf.CLIPTextModel(
            hf.CLIPTextConfig(
                hidden_size=768,
                intermediate_size=3072,
                num_hidden_layers=12,
                num_attention_heads=12,
                max_position_embeddings=77,
            )
        ),
        vae_dtype,
    )
    for m in (vae, text):
        m.requires_grad_(False).eval()
    return unet.train(train).requires_grad_(train), vae, text


@job(
    "Stable Diffusion 1.5 sized UNet, training with frozen VAE and text encoder, bf16 autocast, batch 4 in buckets of"
    " aspect ratios, AdamW, moving average; 5 steps"
)
def unet_train(rec):
    unet, vae, text = sd_parts(torch.float32, torch.bfloat16, True)
    opt = torch.optim.AdamW(unet.parameters(), lr=1e-4, foreach=True)
    ema = Ema(unet)
    for _ in range(5):
        h, w = rec.rng.choice([(512, 512), (448, 576), (384, 640), (640, 384), (576, 448)])
        rec.step(f"{h}x{w}")
        with torch.no_grad():
            ctx = text(input_ids=ids(4, 77))[0]
            lat = vae.encode(pixels(4, 3, h, w, dtype=torch.bfloat16)).latent_dist
            lat = (lat.mean + lat.std * torch.randn_like(lat.mean)) * 0.18215
            noise = torch.randn_like(lat)
            t = torch.randint(0, 1000, (4,), device=CUDA)
            a = torch.rand(1000, device=CUDA)[t].view(4, 1, 1, 1)
            noisy = a.sqrt() * lat + (1 - a).sqrt() * noise
        with amp():
            loss = F.mse_loss(unet(noisy, t, encoder_hidden_states=ctx).sample.float(), noise.float())
        loss.backward()
        clip(unet.parameters())
        opt.step()
        opt.zero_grad(set_to_none=True)
        ema.update()
    return locals()


@job(
    "Stable Diffusion 1.5 sized pipeline, fp16 sampling with guidance (3 denoising steps) and VAE decoding; 8 requests"
    " of varying resolution and number of images"
)
def unet_sample(rec):
    unet, vae, text = sd_parts(torch.float16, torch.float16, False)
    sizes = [
        (512, 512, 1),
        (768, 768, 2),
        (512, 768, 4),
        (640, 640, 1),
        (896, 1152, 1),
        (512, 512, 8),
        (1024, 1024, 2),
        (576, 704, 3),
    ]
    with torch.no_grad():
        for h, w, n in sizes:
            rec.step(f"{n} of {h}x{w}")
            cond = text(input_ids=ids(n, 77))[0]
            uncond = text(input_ids=ids(n, 77))[0]
            ctx = torch.cat([uncond, cond])
            del cond, uncond
            lat = torch.randn(n, 4, h // 8, w // 8, device=CUDA, dtype=torch.float16)
            for i in range(3):
                both = torch.cat([lat] * 2)
                pred = unet(both, torch.full((), i, device=CUDA), encoder_hidden_states=ctx).sample
                u, c = pred.chunk(2)
                pred = u + 7.5 * (c - u)
                x0 = (lat - 0.3 * pred) / 0.9
                lat = 0.95 * x0 + 0.2 * pred
            img = vae.decode(lat / 0.18215).sample
            img = (img / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).float().cpu()
            del ctx, lat, both, pred, u, c, x0
    return locals()
