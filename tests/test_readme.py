"""The README does what it says: its table is the registry's, its commands run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from analysis.table import main
from kv_caches import listing

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BASH = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def run(command: str, timeout: int = 300, **env: str) -> subprocess.CompletedProcess:
    """A command line as a reader of the README types it, in this interpreter's environment."""
    bin_dir = str(Path(sys.executable).parent)
    base = {k: v for k, v in os.environ.items() if not k.startswith(("KV_", "PRUNE_", "MODEL_TYPE", "MAX_GEN"))}
    path = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "VIRTUAL_ENV": sys.prefix, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=base | path | env, text=True, capture_output=True, timeout=timeout
    )


def test_the_methods_table_is_the_registry_s():
    shown = re.search(r"<!-- methods-table -->\n(.*?)\n<!-- /methods-table -->", README, flags=re.DOTALL)
    assert shown, "the README has no methods table"
    assert shown.group(1) == listing.markdown(listing.rows()), "update it with: python -m kv_caches list --markdown"


def test_the_quickstart_table_is_the_reference_result():
    shown = re.search(r"<!-- quickstart-table -->\n(.*?)\n<!-- /quickstart-table -->", README, flags=re.DOTALL)
    assert shown, "the README has no quickstart table"
    assert shown.group(1) == (ROOT / "results" / "reference" / "quickstart.md").read_text().strip()


def test_every_linked_file_exists():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_python_example_evicts():
    names = {}
    exec(PYTHON[0], names)
    entries = names["proof"][0]["prompt_tokens"] * names["model"].config.get_text_config().num_hidden_layers
    assert names["proof"][0]["retention_achieved"] == int(0.05 * entries + 1e-9) / entries
    assert isinstance(names["output"], torch.Tensor)


def test_the_two_commands_explain_themselves():
    commands = [line.split("#")[0].strip() for line in BASH[0].splitlines()]
    assert commands == ["bash scripts/quickstart.sh", "bash scripts/test.sh"]
    for command in commands:
        result = run(f"{command} --help")
        assert result.returncode == 0
        assert result.stdout.startswith(f"usage: {command}")


def test_one_configuration_by_hand_runs(tmp_path):
    command = next(block for block in BASH if "by-hand" in block)
    assert command.startswith("source .venv/bin/activate\n")
    command = (
        command.split("\n", 1)[1].replace("results/runs/by-hand", f"{tmp_path}/out").replace("--limit 8", "--limit 1")
    )
    result = run(command, KV_RECORDS_DIR=str(tmp_path / "some" / "where"))
    assert result.returncode == 0, result.stderr[-3000:]
    assert "tgv_kv (official) keeps 10 % of the prompt's entries" in result.stdout
    assert main([str(tmp_path / "out")]) == 0
    assert "| tgv_kv (official) |     10 % |" in (tmp_path / "out" / "table.md").read_text()


def test_quickstart_makes_the_table_and_the_plot(tmp_path):
    result = run(f"bash scripts/quickstart.sh --limit 2 --output {tmp_path}/quick", timeout=900)
    assert result.returncode == 0, result.stderr
    table = (tmp_path / "quick" / "table.md").read_text()
    for budget in ("100 %", "50 %", "20 %", "10 %", "5 %"):
        assert f" {budget} |" in table
    for column in ("document", "chart", "scene", "caption", "KV / sample"):
        assert column in table
    assert (tmp_path / "quick" / "score_vs_retention.png").stat().st_size > 10_000
    assert "KV / sample" in result.stdout


def run_on_the_embedded_model(marker: str, folder: Path, **replaced: str) -> subprocess.CompletedProcess:
    """The README's GPU command that contains ``marker``, verbatim but for checkpoint, device, task and output."""
    command = next(block for block in BASH if marker in block)
    embedded = {
        "MODEL_TYPE=llava-7B": "MODEL_TYPE=tiny-vlm",
        "HF_HUB_OFFLINE=0": "HF_HUB_OFFLINE=1",
        "llava-hf/llava-1.5-7b-hf": "tiny_vlm/weights",
        "device_map=auto": "device_map=cpu",
        "--tasks chartqa": f"--tasks mini_chart {replaced['options']}",
        replaced["output"]: f"{folder}/out",
    }
    for old, new in embedded.items():
        assert old in command, f"the README's command no longer says {old}"
        command = command.replace(old, new)
    result = run(command, timeout=600, KV_RECORDS_DIR=str(folder / "records"))
    assert result.returncode == 0, result.stderr[-3000:]
    return result


def test_the_gpu_command_runs(tmp_path):
    result = run_on_the_embedded_model(
        "accelerate launch --num_processes=2 -m lmms_eval ",
        tmp_path,
        options="--limit 2",
        output="results/runs/llava-tgv-95",
    )
    assert "keeps 5 % of the prompt's entries" in result.stdout
    assert "1 process runs on cpu" in result.stdout
    assert list(tmp_path.glob("out/*/*_results.json"))


def test_the_sweep_command_runs(tmp_path):
    options = "--limit 1 --methods tgv_kv,snapkv --retention 0.1,0.05"
    run_on_the_embedded_model("lmms_eval_plugins.sweep", tmp_path, options=options, output="results/runs/llava-paper")
    runs = {path.parent.name for path in tmp_path.glob("out/*/result.mini_chart.json")}
    assert runs == {"full", "tgv_kv-0.90", "tgv_kv-0.95", "snapkv-0.90", "snapkv-0.95"}
