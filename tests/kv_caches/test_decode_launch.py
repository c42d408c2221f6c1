"""What the decode kernel launches on a GPU: it depends on no value, and it compiles; no GPU is needed."""

import pytest
import torch

from kv_caches.decode_kernel import attend

from .test_decode_kernel import on_meta, segments

TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    int: "i32",
    float: "fp32",
}


class Launches(list):
    """Stands in for a kernel and keeps (kernel, grid, arguments, options) of its launches."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.append((self.kernel, grid, arguments, options))


@pytest.fixture
def launches(monkeypatch):
    """What `attend` would launch on a GPU, as a function of its arguments."""
    pytest.importorskip("triton")
    from kv_caches import decode_triton

    kernels = [Launches(decode_triton.attend_chunk), Launches(decode_triton.combine_chunks)]
    for kernel in kernels:
        monkeypatch.setattr(decode_triton, kernel.kernel.__name__, kernel)

    def record(*arguments):
        attend(*arguments)
        return [kernel.pop() for kernel in kernels if kernel]

    return record


def test_a_launch_waits_for_no_value(launches):
    arguments = on_meta(segments("float16", 4, 64))
    assert [grid for _, grid, *_ in launches(*arguments)] == [(12, 3), (12, 4)]


def test_short_segments_are_one_split_that_needs_no_combining(launches):
    arguments = segments("float16", 4, 64, lengths=(128, 5))
    [(_, grid, tensors, _)] = launches(*arguments)
    assert grid == (2, 1)
    assert tensors[5].shape == (2, 4, 64)
    assert tensors[5].dtype == torch.float16


def compile_launch(kernel, grid, arguments, options, capability):
    """Compile for a GPU that need not be there, with what the launch fixes at compile time."""
    from triton import compile as build
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = [TYPES[x.dtype if torch.is_tensor(x) else type(x)] for x in arguments]
    signature = dict(zip(kernel.arg_names, kinds)) | dict.fromkeys(kernel.arg_names[len(kinds) :], "constexpr")
    constants = {name: value for name, value in options.items() if name in signature}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(kinds) if kind.startswith("*")}
    source = ASTSource(kernel, signature, constants, aligned)
    stages = {name: value for name, value in options.items() if name not in signature}
    return build(source, target=GPUTarget("cuda", capability, 32), options=stages)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("dtype", "per", "dim"), [("float16", 1, 128), ("bfloat16", 7, 80), ("float32", 4, 128)])
def test_kernels_compile_and_fit_shared_memory(launches, monkeypatch, tmp_path, capability, dtype, per, dim):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = launches(*segments(dtype, per, dim))
    assert len(made) == 2
    for launch in made:
        compiled = compile_launch(*launch, capability)
        assert compiled.asm["cubin"]
        assert compiled.metadata.shared < 41_000  # four, as many as PROGRAMS, share the 164 KB of an A100
