"""Training through compact bilinear pooling: a small convolutional network on Fashion-MNIST with four heads.

Average pooling, full bilinear pooling (all products of channels, summed over positions), and compact bilinear pooling
with Argand, all before one linear layer. Everything is trained end to end with the same settings. `make data` downloads
the images.

    python examples/torch/pooling.py            # on a GPU: everything, less than two minutes
    python examples/torch/pooling.py --small    # a look on any computer
"""

from __future__ import annotations

import torch
from argand.torch import CompactBilinearPooling, signed_sqrt
from common import Memory, arguments, data_set, images, machine, now, print_table, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize


class AveragePooling(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))


class BilinearPooling(nn.Module):
    """All products of two channels, with the same square root and norm as the compact one."""

    def forward(self, maps: Tensor) -> Tensor:
        positions = maps.flatten(2)
        return normalize(signed_sqrt((positions @ positions.transpose(1, 2)).flatten(1)))


def network(channels: int, head: nn.Module, width: int) -> nn.Sequential:
    def block(before: int, after: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]

    half = channels // 2
    layers = [*block(1, half, 1), *block(half, half, 2), *block(half, channels, 1), *block(channels, channels, 2)]
    return nn.Sequential(*layers, head, nn.Linear(width, 10))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "pooling.csv")
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    rows, device = None, options.device
    if options.small:
        rows, options.channels, options.features, options.epochs, options.seeds = 1500, 32, 256, 2, 1
    folder = data_set(options, "fashion-mnist")
    x, y = (part[:rows] for part in images(folder, "train", device))
    test_x, test_y = (part[:rows] for part in images(folder, "t10k", device))
    channels_last = {"memory_format": torch.channels_last}
    x, test_x = x.contiguous(**channels_last), test_x.contiguous(**channels_last)

    d, D = options.channels, options.features
    heads = {
        "average pooling": (AveragePooling, d),
        "full bilinear pooling": (BilinearPooling, d * d),
        "compact, ctr-product-srht": (lambda: CompactBilinearPooling(d, D, "ctr-product-srht", seed=0), D),
        "compact, tensor-sketch": (lambda: CompactBilinearPooling(d, D, "tensor-sketch", seed=0), D),
    }
    table, curves = [], {}
    for name, (head, width) in heads.items():
        accuracies, seconds, used = [], [], ("", "")
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            model = network(d, head(), width).to(device, **channels_last)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
            decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
            memory, history = Memory(device), []
            for epoch in range(options.epochs):
                model.train()
                start = now(device)
                order = torch.randperm(len(x), device=device)
                for chosen in order[: len(x) // options.batch * options.batch].view(-1, options.batch):
                    loss = cross_entropy(model(x[chosen]), y[chosen])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                decay.step()
                seconds += [now(device) - start] if epoch or options.epochs == 1 else []
                used = memory.used() if epoch == 0 and seed == 0 else used
                model.eval()
                with torch.no_grad():
                    hits = sum((model(a).argmax(1) == b).sum() for a, b in zip(test_x.split(1000), test_y.split(1000)))
                history.append(100 * float(hits) / len(test_x))
            accuracies.append(history[-1])
            curves.setdefault(name, []).append(history)
        spread = f"{min(accuracies):.2f} – {max(accuracies):.2f}" if options.seeds > 1 else f"{accuracies[0]:.2f}"
        row = [name, str(width), str(10 * width + 10), spread, f"{sum(seconds) / len(seconds):.2f}", *used]
        table.append(row)
    print(
        f"{len(x)} images, {d} channels at 7 x 7 positions, {options.epochs} epochs, batches of {options.batch}, ",
        end="",
    )
    print(f"{options.seeds} seeds, on {machine(device)}.")
    print_table(
        ["head", "features", "weights of the head", "accuracy, %", "s per epoch", "MB, PyTorch", "MB, Argand beside"],
        table,
    )

    rows = [
        [name, str(seed), str(epoch), f"{accuracy:.2f}"]
        for name, histories in curves.items()
        for seed, history in enumerate(histories)
        for epoch, accuracy in enumerate(history, 1)
    ]
    save(options.csv, ["head", "seed", "epoch", "accuracy"], rows)


if __name__ == "__main__":
    main()
