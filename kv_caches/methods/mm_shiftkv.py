"""MM-ShiftKV: queries drawn wider than the prompt's vote, in groups, for the keys that cover most of their
attention.

Shu et al., "MM-ShiftKV", Findings of ACL 2026 (arXiv 2607.22586). Generated queries vary more than prompt
queries, so proxies are drawn around the layer's attention input with a widened spread and placed at future
positions. Checked against zjuDBxAI/MM-ShiftKV mmshift/utils/mmshift_util.py and
statistical_query_predictor.py; defaults are those of its Qwen2.5-VL path, 512 proxies in 32 groups, for every
model. ``paper`` takes mean and spread per feature, ``official`` two scalars over all tokens and features. The
widening acts on the attention input, before the query projection and, in Qwen3-VL, before its q_norm, as the
formulas say; q_norm then removes the scale and only directions differ. The paper does not state the widening;
10 is the code's, and the variants ``paper_gamma1``, ``2`` and ``5`` sweep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import LayerView
from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..rope import later, rotate
from ..scorers import Measured

VARIANTS = ("paper", "official", "paper_gamma1", "paper_gamma2", "paper_gamma5")


class Ballot(NamedTuple):
    """What the groups of proxies say about keys 0..N-2: votes (G, N-1), keys named by each group (G, groups), and the
    last prompt query's attention (G, N-1), which breaks ties."""

    votes: Tensor
    named: Tensor
    anchor: Tensor


@dataclass(frozen=True)
class ProxyVotes:
    """votes + anchor per KV head, (G, N).

    Attributes:
        per_feature: mean and spread per feature, or two scalars. proxies: P. groups: Gamma, of P / Gamma each.
        widening: gamma, factor on the spread. coverage: share of a group's attention that its named keys stay within.
    """

    per_feature: bool = True
    proxies: int = 512
    groups: int = 32
    widening: float = 10.0
    coverage: float = 0.95
    name: str = "proxy votes"
    module_inputs: ClassVar[bool] = True

    @torch.no_grad()
    def collect(self, layer: LayerView) -> Tensor:
        ballot = self.vote(self.draw(layer), layer)
        return F.pad(ballot.votes + ballot.anchor, (0, 1))  # the last token is kept by the retention rule

    def draw(self, layer: LayerView) -> Tensor:
        """Proxy queries (H, P, d): x ~ N(mean, (gamma std)^2), projected, and placed at last + Gamma (i mod z + 1)."""
        module, hidden = layer.module, layer.hidden
        assert module is not None
        assert hidden is not None
        values = hidden.float() if self.per_feature else hidden.float().reshape(-1, 1)
        mean, std = values.mean(0), values.std(0, correction=min(1, len(values) - 1))
        noise = torch.randn(
            self.proxies,
            hidden.shape[1],
            generator=layer.prompt.generator(int(module.layer_idx)),  # type: ignore
        )
        inputs = mean + self.widening * std * noise.to(hidden.device)
        queries = module.q_proj(inputs.to(hidden.dtype)).view(self.proxies, layer.heads, -1)  # type: ignore[operator]
        if hasattr(module, "q_norm"):
            queries = module.q_norm(queries)  # type: ignore[operator]
        step = torch.arange(self.proxies) % (self.proxies // self.groups) + 1
        return rotate(queries.float().transpose(0, 1), *later(layer, self.groups * step))

    def vote(self, queries: Tensor, layer: LayerView) -> Ballot:
        """Each group: m = (sum of its proxies' attention + the anchor) / (1 + z); the leading entries of m whose
        cumulative sum stays within ``coverage`` of its total get one vote each."""
        size = queries.shape[1] // self.groups
        anchor = layer.rows(torch.tensor([layer.length - 1]))[:, 0, :-1].unflatten(0, (layer.kv_heads, -1)).mean(1)
        votes, named = torch.zeros_like(anchor), []
        for head, (keys, last) in enumerate(zip(layer.keys.float(), anchor)):
            mass = self._attention(queries.unflatten(0, (layer.kv_heads, -1))[head], keys, layer.scaling)
            mass = (mass.unflatten(0, (self.groups, size)).sum(1) + last) / (1 + size)  # (groups, N-1)
            ordered = mass.double().sort(dim=-1, descending=True, stable=True)
            covered = ordered.values.cumsum(-1) <= self.coverage * ordered.values.sum(-1, keepdim=True)
            votes[head] = torch.zeros_like(mass).scatter(1, ordered.indices, covered.to(mass.dtype)).sum(0)
            named.append(covered.sum(-1))
        return Ballot(votes, torch.stack(named), anchor)

    @staticmethod
    def _attention(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
        """(P, N-1): mean over the group's query heads of softmax over all N keys, the last key left out afterwards."""
        total = torch.zeros(queries.shape[1], keys.shape[0] - 1, device=keys.device)
        for query in queries:
            total += (query @ keys.T * scaling).softmax(-1)[:, :-1]
        return total / queries.shape[0]


def build(variant: str) -> Method:
    """The best b - 1 by votes, ties by the last query's attention, and the last token; one set per KV head."""
    widening = float(variant.removeprefix("paper_gamma")) if variant.startswith("paper_") else 10.0
    votes = ProxyVotes(variant != "official", widening=widening)
    return Method(
        name="mm_shiftkv",
        paper="Shu et al., Findings of ACL 2026",
        budget=Uniform(),
        scorer=Measured(votes),
        retention=Protected(last=1),
        variant=variant,
        needs=frozenset({votes}),
        source="zjuDBxAI/MM-ShiftKV mmshift/utils/mmshift_util.py",
    )
