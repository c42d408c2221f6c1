"""Training goes on after the last whole stage."""

import sys
from types import SimpleNamespace

import torch

from tiny_vlm import stagewise

STAGES = [SimpleNamespace(name="first", add=1.0), SimpleNamespace(name="second", add=10.0)]


def trained(monkeypatch, out, *arguments):
    """Which stages ran, and the weight that was exported last."""
    ran, exported = [], []

    def train(model, processor, stage):
        ran.append(stage.name)
        model.weight.data += stage.add

    def build():
        model = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(model.weight)
        return "processor", model

    monkeypatch.setattr(stagewise, "export", lambda model, processor, folder: exported.append(model.weight.item()))
    monkeypatch.setattr(sys, "argv", ["train", "--out", str(out), *arguments])
    stagewise.run("about", STAGES, build, train)
    return ran, exported


def test_stages_run_in_order_and_are_not_repeated(monkeypatch, tmp_path):
    assert trained(monkeypatch, tmp_path, "--until", "first") == (["first"], [1.0])
    (tmp_path / "second.tmp").write_text("torn")
    assert trained(monkeypatch, tmp_path) == (["second"], [11.0])
    assert trained(monkeypatch, tmp_path) == ([], [])
