"""The models that are trained: a transformer, one with a mixture of experts, and a convolutional network."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Experts(nn.Module):
    """Each of four experts gets a part of the tokens, whose length differs by expert."""

    def __init__(self, width):
        super().__init__()
        self.experts = nn.ModuleList(Mlp(width) for _ in range(4))

    def forward(self, x):
        flat = x.flatten(0, 1)
        sizes = [len(flat) * share // 16 for share in (7, 5, 3)]
        parts = flat.split([*sizes, len(flat) - sum(sizes)])
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts)]).view_as(x)


class Language(nn.Module):
    def __init__(self, block, width, layers, words):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.ModuleList(nn.Sequential(Attention(width), block(width)) for _ in range(layers))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def transformer(width, layers, words):
    return Language(Mlp, width, layers, words)


def experts(width, layers, words):
    return Language(Experts, width, layers, words)


def convolution(*widths):
    layers, channels = [], 3
    for wider in widths:
        layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
