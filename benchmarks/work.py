"""What operations do, counted: the same on every machine, whatever its caches, its speed and its load."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

_aten = torch.ops.aten
_CHOOSE = {_aten.embedding.default, _aten.index_select.default, _aten.index.Tensor}
_CHOOSE |= {_aten.gather.default, _aten.gather.out}
_NOTHING = {_aten._unsafe_view.default, _aten.detach.default, _aten.empty.memory_format, _aten.new_empty.default}


class Work:
    """Context manager that counts.

    Attributes:
        flops: of matrix products and attention; above the diagonal of a causal attention nothing is computed.
        bytes: that operations read and write, as if no cache held anything from one operation to the next.
    """

    def __init__(self) -> None:
        self._flops = FlopCounterMode(
            display=False, custom_mapping={_aten._scaled_dot_product_flash_attention_for_cpu: _attention}
        )
        self._bytes = _Bytes()

    def __enter__(self) -> Work:
        self._flops.__enter__()
        self._bytes.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._bytes.__exit__(*exc)
        self._flops.__exit__(*exc)
        self.flops, self.bytes = self._flops.get_total_flops(), self._bytes.total


def _attention(queries: Any, keys: Any, values: Any, dropout: float = 0, causal: bool = False, **_: Any) -> int:
    """FLOPs of scaled dot-product attention, from shapes."""
    return sdpa_flop_count(queries, keys, values) // (2 if causal else 1)


class _Bytes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.is_view or func in _NOTHING:
            return result
        written, given = _size(result), {name: value for name, value in kwargs.items() if name != "out"}
        self.total += 2 * written if func in _CHOOSE else written + _size((args, given))
        return result


def _size(tensors: Any) -> int:
    """Bytes of elements; one that is repeated by a stride of 0 counts once."""
    total = 0
    for tensor in tree_leaves(tensors):
        if isinstance(tensor, torch.Tensor):
            shape = [n for n, stride in zip(tensor.shape, tensor.stride()) if stride]
            total += tensor.element_size() * torch.Size(shape).numel() * bool(tensor.numel())
    return total
