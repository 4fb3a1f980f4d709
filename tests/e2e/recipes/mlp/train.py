"""Two spirals told apart by a small network."""
import argparse
import math
import os

import torch


def spirals(path, n=400):
    if os.path.exists(path):
        print("data: found in the cache", flush=True)
        return torch.load(path)
    turn = torch.rand(n) * 3 * math.pi
    label = torch.arange(n) % 2
    points = torch.stack([turn * torch.cos(turn + math.pi * label), turn * torch.sin(turn + math.pi * label)], 1) / 10
    torch.save((points, label), path)
    print("data: made", flush=True)
    return points, label


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int)
    p.add_argument("--data")
    p.add_argument("--output")
    a = p.parse_args()
    torch.manual_seed(1)
    points, label = spirals(a.data)
    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, a.epochs + 1):
        for _ in range(50):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(points), label)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        folder = os.path.join(a.output, f"checkpoint-{epoch}")
        os.makedirs(folder)
        torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "state.pt"))


main()
