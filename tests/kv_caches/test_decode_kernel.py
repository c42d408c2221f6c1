"""The decode kernel in Triton's interpreter, its plain reference and its self-test; no GPU is needed.

Run as a module with TRITON_INTERPRET=1, this file prints by how much the interpreted kernel is off in every case. The
tests run it so in a process of its own, because Triton reads the variable once, when it is imported.
"""

import json
import logging
import os
import subprocess
import sys
from itertools import product

import pytest
import torch

from kv_caches import decode_kernel
from kv_caches.decode_kernel import attend, reference

HEADS, DIMS = (1, 2, 4, 7), (16, 64, 80, 128)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TOLERANCES = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}
#: PROGRAMS and CHUNK, so that 300 slots are one split, a few of several blocks each, or one for every block
SPLITS = {"one": (0, 2048), "few": (0, 150), "many": (4, 2048)}
#: before, at and after the borders of blocks (32, 64 or 128 slots) and of splits (160, 192 or 256 slots, or a block)
LENGTHS = (1, 17, 127, 128, 129, 160, 161, 192, 193, 256, 257, 300)
CASES = {
    f"{dtype} R={per} d={dim} {splits}": (dtype, per, dim, splits)
    for dtype, per, dim, splits in (
        *product(["float32"], HEADS, DIMS, ["few"]),
        *product(["float16", "bfloat16"], (1, 7), (16, 128), ["few"]),
        *product(DTYPES, (1, 4), (80,), ["one", "many"]),
    )
}
OTHERS = {
    "float32 self-test": 1e-5,
    "bfloat16 self-test": 2e-2,
    "lengths changed in place": 1e-5,
    "38 splits": 1e-5,
    "far offsets": 1e-3,
}


def segments(dtype, per, dim, lengths=LENGTHS):
    """Arguments of `attend`: segments in shuffled order, with gaps of what is not a number between them."""
    numbers = torch.Generator().manual_seed(per * dim)
    lengths = torch.tensor(lengths)
    starts, end = torch.zeros_like(lengths), 3
    for segment in torch.randperm(len(lengths), generator=numbers).tolist():
        starts[segment] = end
        end += int(lengths[segment]) + 5
    keys, values = torch.full((2, end, dim), torch.nan)
    for start, length in zip(starts.tolist(), lengths.tolist()):
        for storage in (keys, values):
            storage[start : start + length] = torch.randn(length, dim, generator=numbers)
    query = torch.randn(len(lengths), per, dim, generator=numbers)
    tensors = [tensor.to(DTYPES[dtype]) for tensor in (query, keys, values)]
    return *tensors, starts, lengths, int(lengths.max()), dim**-0.5


def exact(query, keys, values, starts, lengths, longest, scaling):
    """Softmax attention in float64, one segment after another."""
    rows = []
    for q, start, length in zip(query.double(), starts.tolist(), lengths.tolist()):
        held = slice(start, start + length)
        weights = (q @ keys[held].double().T * scaling).exp()
        rows.append(weights @ values[held].double() / weights.sum(-1, keepdim=True))
    return torch.stack(rows)


def difference(function, arguments):
    """Largest difference from the exact result, infinite for what is not a number."""
    result = function(*arguments)
    assert result.dtype == arguments[0].dtype
    return (result - exact(*arguments)).abs().nan_to_num(nan=torch.inf).max().item()


def interpreted_case(dtype, per, dim, splits):
    decode_kernel.PROGRAMS, decode_kernel.CHUNK = SPLITS[splits]
    return difference(attend, segments(dtype, per, dim))


def lengths_changed_in_place():
    """The same tensors, at the same addresses, hold other segments in a later call."""
    decode_kernel.PROGRAMS, decode_kernel.CHUNK = SPLITS["many"]
    arguments = segments("float32", 4, 64)
    before = difference(attend, arguments)
    arguments[4].sub_(arguments[4] // 3)
    arguments[3].add_(arguments[4] // 3)
    return max(before, difference(attend, arguments))


def many_splits():
    """More than are combined at once."""
    decode_kernel.PROGRAMS, decode_kernel.CHUNK = SPLITS["many"]
    return difference(attend, segments("float32", 1, 256, lengths=(600, 1, 513)))


def far_offsets():
    """A segment behind 2^31 elements; nothing else of its storage is touched, so no memory is taken for it."""
    torch.use_deterministic_algorithms(False)
    storage = torch.empty(2**24 + 4096, 128, dtype=torch.float16)
    storage[2**24 + 100 :][:70] = torch.randn(70, 128)
    query, start, length = torch.randn(1, 4, 128).half(), torch.tensor([2**24 + 100]), torch.tensor([70])
    return difference(attend, (query, storage, storage, start, length, 100, 0.1))


def repair_bfloat16_dot():
    """Triton's interpreter keeps bfloat16 as integers and multiplies those; it must multiply what they stand for."""
    from triton import language
    from triton.runtime.interpreter import InterpreterBuilder

    plain = InterpreterBuilder.create_dot

    def create_dot(self, *operands):
        operands = [
            self.create_fp_ext(x, language.float32) if getattr(x, "dtype", None) == language.bfloat16 else x
            for x in operands
        ]
        return plain(self, *operands)

    InterpreterBuilder.create_dot = create_dot


def interpret():
    """Differences of all cases in Triton's interpreter, by name."""
    repair_bfloat16_dot()
    torch.use_deterministic_algorithms(True)  # fills fresh memory, such as scratch, with NaN
    found = {name: interpreted_case(*case) for name, case in CASES.items()}
    for dtype in ("float32", "bfloat16"):
        found[f"{dtype} self-test"] = decode_kernel._difference(torch.device("cpu"), DTYPES[dtype], 80, 4)
    found |= {"lengths changed in place": lengths_changed_in_place(), "38 splits": many_splits()}
    return found | {"far offsets": far_offsets()}


def test_the_kernel_is_exact():
    pytest.importorskip("triton")
    command = [sys.executable, "-m", __name__]
    run = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    allowed = {name: TOLERANCES[case[0]] for name, case in CASES.items()} | OTHERS
    assert found.keys() == allowed.keys()
    assert {name: off for name, off in found.items() if off > allowed[name]} == {}


@pytest.mark.parametrize(("dtype", "per", "dim"), list(product(DTYPES, HEADS, DIMS)))
def test_the_reference_is_exact(dtype, per, dim):
    assert difference(reference, segments(dtype, per, dim)) < TOLERANCES[dtype]


def on_meta(arguments):
    """The arguments without values: what waits for one, or depends on it, fails."""
    return [argument.to("meta") if torch.is_tensor(argument) else argument for argument in arguments]


def test_the_reference_waits_for_no_value():
    assert reference(*on_meta(segments("float16", 4, 64))).shape == (12, 4, 64)


def test_views_with_other_strides_are_refused():
    query, keys, values, *others = segments("float32", 1, 16)
    with pytest.raises(ValueError, match="contiguous"):
        attend(query, keys[:, :8], values, *others)


@pytest.mark.parametrize(
    ("found", "expected", "reason"),
    [(1e-6, True, ""), (1e-3, False, "differs by 1.0e-03"), (float("inf"), False, "inf"), (None, False, "OSError: no")],
)
def test_the_self_test_decides_whether_the_kernel_is_used(monkeypatch, caplog, found, expected, reason):
    def self_test(*arguments):
        if found is None:
            raise OSError("no driver")
        return found

    monkeypatch.setattr(decode_kernel, "_difference", self_test)
    decode_kernel.usable.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert decode_kernel.usable(torch.device("cuda", 0), torch.float32, 64, 1) is expected
    decode_kernel.usable.cache_clear()
    assert len(caplog.records) == (not expected)
    assert all("not used on cuda:0" in record.message and reason in record.message for record in caplog.records)


def test_triton_is_imported_only_for_cuda():
    code = """if True:
        import sys, torch
        sys.modules["triton"] = None  # importing it fails
        from kv_caches.decode_kernel import usable
        assert not usable(torch.device("cpu"), torch.float32, 64, 1)
        assert not usable(torch.device("cuda"), torch.float32, 64, 1)
        assert "kv_caches.decode_triton" not in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    print(json.dumps(interpret()))
