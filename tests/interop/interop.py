#!/usr/bin/env python3
"""Checks that other programs compute the same from our weights, and we the same from theirs.

usage: interop.py VIT_HYBRID INTEROP_MODELS

INTEROP_MODELS writes small checkpoints with the outputs that vit_hybrid's model computes for given inputs. Exported
files are loaded by safetensors into timm's and torchvision's VisionTransformer and into a plain PyTorch model with the
names of NERSC's ViT; models of these packages are saved, imported and computed by ours. h5py reads the checkpoints.
"""
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy
import safetensors.torch
import timm
import torch
import torchvision
from torch import nn

CHANNELS, PATCH, DIM, DEPTH, HEADS, HIDDEN, CLASSES = 3, 4, 24, 2, 8, 50, 7
FORECAST_SIZE, SQUARE_SIZE, WIDE_SIZE = (12, 20), (12, 12), (12, 16)
LARGEST_ERROR = 1e-5  # of float32: max|a - b| / max|b|


class PlainAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / (DIM // HEADS) ** 0.5, dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, DIM))


class PlainMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(DIM, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class PlainBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM, eps=1e-6)
        self.attn = PlainAttention()
        self.norm2 = nn.LayerNorm(DIM, eps=1e-6)
        self.mlp = PlainMlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PlainForecaster(nn.Module):
    """The names of NERSC's ViT."""

    def __init__(self):
        super().__init__()
        self.grid = FORECAST_SIZE[0] // PATCH, FORECAST_SIZE[1] // PATCH
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(CHANNELS, DIM, PATCH, PATCH)
        self.pos_embed = nn.Parameter(torch.randn(1, self.grid[0] * self.grid[1], DIM))
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CHANNELS * PATCH * PATCH, bias=False)

    def forward(self, x):
        x = self.patch_embed.proj(x).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return fields_of(self.head(self.norm(x)), self.grid)


def fields_of(patches, grid):
    """[batch, tokens, row x column x channel] -> [batch, channel, height, width]"""
    batch = patches.shape[0]
    patches = patches.reshape(batch, grid[0], grid[1], PATCH, PATCH, CHANNELS)
    return patches.permute(0, 5, 1, 3, 2, 4).reshape(batch, CHANNELS, grid[0] * PATCH, grid[1] * PATCH)


class TimmForecaster(nn.Module):
    """timm's model without pooling, whose head predicts patches."""

    def __init__(self):
        super().__init__()
        self.model = timm_model(FORECAST_SIZE, global_pool="", class_token=False, num_classes=CHANNELS * PATCH * PATCH)
        self.model.head = nn.Linear(DIM, CHANNELS * PATCH * PATCH, bias=False)
        self.grid = FORECAST_SIZE[0] // PATCH, FORECAST_SIZE[1] // PATCH

    def forward(self, x):
        return fields_of(self.model(x), self.grid)

    def load_state_dict(self, tensors):
        return self.model.load_state_dict(tensors)

    def state_dict(self):
        return self.model.state_dict()


def timm_model(size, **options):
    return timm.models.VisionTransformer(
        img_size=size, patch_size=PATCH, in_chans=CHANNELS, embed_dim=DIM, depth=DEPTH, num_heads=HEADS,
        mlp_ratio=(HIDDEN + 0.5) / DIM, **options)


def torchvision_model():
    model = torchvision.models.VisionTransformer(
        image_size=SQUARE_SIZE[0], patch_size=PATCH, num_layers=DEPTH, num_heads=HEADS, hidden_dim=DIM,
        mlp_dim=HIDDEN, num_classes=CLASSES)
    nn.init.normal_(model.heads.head.weight)  # zero at the start
    return model


MODELS = [
    # case of ours, names, how to make the model there, options that an import needs
    ("forecast", "nersc", PlainForecaster, ["--num-heads", HEADS, "--image-size", "12x20"]),
    ("forecast", "timm", TimmForecaster, ["--num-heads", HEADS, "--image-size", "12x20"]),
    ("token", "timm", lambda: timm_model(SQUARE_SIZE, num_classes=CLASSES), ["--num-heads", HEADS]),
    ("token", "torchvision", torchvision_model, ["--num-heads", HEADS]),
    ("mean", "timm", lambda: timm_model(WIDE_SIZE, num_classes=CLASSES, class_token=False, global_pool="avg"),
     ["--num-heads", HEADS, "--image-size", "12x16"]),
]


def error_of(a, b):
    return float((a.double() - b.double()).abs().max() / b.double().abs().max())


def compute(model, inputs):
    with torch.no_grad():
        return model.eval()(inputs)


class Check:
    def __init__(self, program, models, folder):
        self.program, self.models, self.folder = program, models, pathlib.Path(folder)
        self.num_failed = 0

    def run(self, *words):
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)

    def read(self, name):
        return torch.from_numpy(numpy.load(self.folder / name))

    def say(self, what, passed, detail):
        self.num_failed += not passed
        print(f"{'passed' if passed else 'FAILED'}: {what}: {detail}")

    def export(self, case, names, dtype="fp32"):
        path = self.folder / f"{case}-{names}-{dtype}.safetensors"
        self.run(self.program, "checkpoint", "export", self.folder / f"{case}.h5", "--out", path, "--overwrite",
                 "--names", names, "--dtype", dtype)
        return safetensors.torch.load_file(path)

    def ours_there(self, case, names, make):
        """Our weights in their model."""
        model = make()
        model.load_state_dict(self.export(case, names))
        error = error_of(compute(model, self.read(f"{case}_inputs.npy")), self.read(f"{case}_outputs.npy"))
        self.say(f"{case}: exported, computed with the names of {names}", error <= LARGEST_ERROR, f"error {error:.1e}")

    def theirs_here(self, case, names, make, options):
        """Their weights, of another seed, in our model."""
        torch.manual_seed(5)
        model = make()
        file, checkpoint = self.folder / "theirs.safetensors", self.folder / "theirs.h5"
        safetensors.torch.save_file({k: v.contiguous() for k, v in model.state_dict().items()}, file)
        self.run(self.program, "checkpoint", "import", file, "--out", checkpoint, "--overwrite", "--names", names,
                 *options)
        self.run(self.program, "checkpoint", "verify", checkpoint)
        self.run(self.models, "run", checkpoint, self.folder / f"{case}_inputs.npy", self.folder / "theirs.npy")
        error = error_of(self.read("theirs.npy"), compute(model, self.read(f"{case}_inputs.npy")))
        self.say(f"{case}: of {names}, imported and computed here", error <= LARGEST_ERROR, f"error {error:.1e}")

    def types(self):
        exact = self.export("token", "timm")
        for dtype, torch_type in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp64", torch.float64)):
            tensors = self.export("token", "timm", dtype)
            same = all(torch.equal(tensors[name], values.to(torch_type)) for name, values in exact.items())
            self.say(f"exported as {dtype}", same, "as PyTorch rounds")

    def h5py_reads(self):
        exact = self.export("token", "timm")
        with h5py.File(self.folder / "token.h5") as file:
            names = []
            file["parameters"].visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
            same = sorted(names) == sorted(exact) and all(
                numpy.array_equal(file["parameters"][name][...], exact[name].numpy()) for name in names)
            self.say("h5py reads the parameters", same, f"{len(names)} tensors")
            attributes = file.attrs["step"] == 12 and b"seed" in numpy.bytes_(file.attrs["config"])
            self.say("h5py reads the attributes", bool(attributes), f"step {file.attrs['step']}")


def main():
    program, models = sys.argv[1:3]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        check = Check(program, models, folder)
        check.run(models, "make", folder)
        for case, names, make, options in MODELS:
            check.ours_there(case, names, make)
            check.theirs_here(case, names, make, options)
        check.types()
        check.h5py_reads()
    print(f"timm {timm.__version__}, torchvision {torchvision.__version__}, torch {torch.__version__}, "
          f"{check.num_failed} failed")
    return 1 if check.num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
