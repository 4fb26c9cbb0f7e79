"""The published upsampling U-Net in PyTorch, to compare ours with: modules nested and named as
those of guided diffusion are, so that the names of its tensors are the published ones."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, n, m, width, sampling=None):
        super().__init__()
        self.in_layers = nn.Sequential(norm(n), nn.SiLU(), nn.Conv2d(n, m, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * m))
        conv = nn.Conv2d(m, m, 3, padding=1)
        self.out_layers = nn.Sequential(norm(m), nn.SiLU(), nn.Dropout(0.0), conv)
        self.skip_connection = nn.Identity() if n == m else nn.Conv2d(n, m, 1)
        self.sampling = sampling or (lambda x: x)

    def forward(self, x, told):
        h = self.in_layers[2](self.sampling(self.in_layers[:2](x)))
        scale, shift = self.emb_layers(told)[:, :, None, None].chunk(2, 1)
        h = self.out_layers[1:](self.out_layers[0](h) * (1 + scale) + shift)
        return self.skip_connection(self.sampling(x)) + h


class Attention(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.norm = norm(channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)
        self.heads = heads

    def forward(self, x, told):
        places = x.flatten(2)
        heads = self.qkv(self.norm(places)).unflatten(1, (self.heads, 3, -1))
        q, k, v = heads.unbind(2)
        weights = torch.softmax(q.transpose(2, 3) @ k / q.shape[2] ** 0.5, -1)
        out = self.proj_out((v @ weights.transpose(2, 3)).flatten(1, 2))
        return (places + out).view_as(x)


class Upsampler(nn.Module):
    """Of 3 colours, two numbers each; attention at the levels named."""

    def __init__(self, channels, multipliers, blocks, attention, heads, classes):
        super().__init__()
        width, deepest = 4 * channels, len(multipliers) - 1
        self.channels = channels
        self.time_embed = nn.Sequential(
            nn.Linear(channels, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.label_emb = nn.Embedding(classes, width)
        n = channels * multipliers[0]
        self.input_blocks = nn.ModuleList([nn.ModuleList([nn.Conv2d(6, n, 3, padding=1)])])
        skips = [n]
        for level, multiplier in enumerate(multipliers):
            m = channels * multiplier
            for _ in range(blocks):
                attends = [Attention(m, heads)] if level in attention else []
                self.input_blocks.append(nn.ModuleList([Residual(n, m, width), *attends]))
                n = m
                skips.append(n)
            if level < deepest:
                halved = Residual(n, n, width, lambda x: F.avg_pool2d(x, 2))
                self.input_blocks.append(nn.ModuleList([halved]))
                skips.append(n)
        middle = [Residual(n, n, width), Attention(n, heads), Residual(n, n, width)]
        self.middle_block = nn.ModuleList(middle)
        self.output_blocks = nn.ModuleList([])
        for level in range(deepest, -1, -1):
            m = channels * multipliers[level]
            for i in range(blocks + 1):
                layers = [Residual(n + skips.pop(), m, width)]
                n = m
                if level in attention:
                    layers.append(Attention(m, heads))
                if level and i == blocks:
                    doubled = Residual(m, m, width, lambda x: F.interpolate(x, scale_factor=2))
                    layers.append(doubled)
                self.output_blocks.append(nn.ModuleList(layers))
        self.out = nn.Sequential(norm(n), nn.SiLU(), nn.Conv2d(n, 6, 3, padding=1))

    def forward(self, x, step, low, label):
        half = self.channels // 2
        phases = step[:, None] * 10_000 ** (-torch.arange(half) / half)
        told = self.time_embed(torch.cat([phases.cos(), phases.sin()], 1)) + self.label_emb(label)
        large = F.interpolate(low, x.shape[2:], mode="bilinear")
        h, skips = torch.cat([x, large], 1), []
        for first, *rest in self.input_blocks:
            h = first(h, told) if skips else first(h)
            for layer in rest:
                h = layer(h, told)
            skips.append(h)
        for layer in self.middle_block:
            h = layer(h, told)
        for layers in self.output_blocks:
            h = torch.cat([h, skips.pop()], 1)
            for layer in layers:
                h = layer(h, told)
        return self.out(h)


def norm(channels):
    return nn.GroupNorm(32, channels)


def awake(model, seed):
    """The model with every tensor at random, those that start at zero or one too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            inputs = tensor[0].numel() if tensor.ndim > 1 else 25
            noise = torch.randn(tensor.shape, generator=generator) / inputs**0.5
            tensor.copy_(noise + (1.0 if tensor.ndim == 1 and torch.all(tensor == 1) else 0.0))
    return model
