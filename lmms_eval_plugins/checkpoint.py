"""Finding a checkpoint and telling it apart from others, without loading weights."""

import hashlib
import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.utils import HFValidationError, validate_repo_id
from transformers import AutoConfig

from kv_caches import ConfigError
from kv_caches.models import model_rows
from kv_caches.values import text
from lmms_eval_plugins.errors import in_one_line

_SMALL = 1 << 26  # bytes; up to here a file is read whole
_BLOCKS, _BLOCK = 4096, 4096
_NAMED = 5
_OF_ADAPTERS = re.compile(r"\blora_|\bbase_layer\b|\bmodules_to_save\b")
_MERGE = "merge it into its model (peft: PeftModel.merge_and_unload().save_pretrained(FOLDER)) and name the result"
_PACKAGES = Path(__file__).resolve().parents[1]  # the embedded checkpoints lie in a package beside this one


class CheckpointNotThere(ConfigError):
    """A checkpoint that cannot be read, now and on this machine."""


def locate(pretrained: Any, revision: str) -> str:
    """The folder or hub id to load from.

    Raises:
        CheckpointNotThere: there is no such folder, it is no checkpoint, or the hub id is not at hand offline.
        ConfigError: none is named, or it is an adapter.
    """
    if not pretrained:
        raise ConfigError("--model_args has no pretrained=; name a checkpoint folder or a hub id")
    name = text(pretrained)
    folder = Path(name).expanduser()
    if not os.path.isdir(folder) and any(row["checkpoint"] == name for row in model_rows().values()):
        folder = _PACKAGES / name  # an embedded one, from any folder
    if os.path.isdir(folder):
        if (folder / "adapter_config.json").is_file():
            raise ConfigError(f"pretrained={name}: it is an adapter (adapter_config.json) and no whole model; {_MERGE}")
        if not (folder / "config.json").is_file():
            raise CheckpointNotThere(f"pretrained={name}: the folder has no config.json, so it is no checkpoint")
        return str(folder)
    if not _is_hub_id(name):
        raise CheckpointNotThere(f"pretrained={name}: there is no such folder")
    if huggingface_hub.constants.HF_HUB_OFFLINE and not _in_cache(name, revision):
        raise CheckpointNotThere(
            f"pretrained={name}: there is no such folder, and the Hugging Face cache has no such model "
            "(HF_HUB_OFFLINE=1 forbids to download it)"
        )
    return name


def _is_hub_id(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _in_cache(name: str, revision: str) -> str | None:
    """The path of a hub checkpoint's configuration."""
    found = huggingface_hub.try_to_load_from_cache(name, "config.json", revision=revision)
    return found if isinstance(found, str) else None


def check_whole(loaded: Mapping[str, Any], parameters: Container[str]) -> None:
    """Every weight of the model came from the checkpoint; what is tied to another one or computed need not.

    Args:
        loaded: transformers' `output_loading_info`.
        parameters: names of the model's parameters.

    Raises:
        ConfigError: names the weights that would be random numbers.
    """
    wrong = {name: f"{name} {tuple(here)} instead of {tuple(there)}" for name, here, there in loaded["mismatched_keys"]}
    missing = sorted(name for name in loaded["missing_keys"] if name in parameters and name not in wrong)
    found = [*missing, *(wrong[name] for name in sorted(wrong))]
    if not found:
        return
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    adapter = any(_OF_ADAPTERS.search(name) for name in loaded["unexpected_keys"])
    raise ConfigError(
        f"{len(found)} of its weights are missing or of another shape, and random numbers would take their place: "
        f"{', '.join(found[:_NAMED])}{more}."
        + (f" It looks like an adapter that is not merged: {_MERGE}" if adapter else "")
    )


def stored_bytes(pretrained: str, revision: str) -> int:
    """Size of the files with weights, which are at their real bits; 0 if they are not on this machine."""
    config = Path(pretrained).expanduser() / "config.json"
    cached = None if config.is_file() else _in_cache(pretrained, revision)
    folder = Path(cached).parent if cached else config.parent
    found = list(folder.glob("model*.safetensors")) or list(folder.glob("*.bin"))
    return sum(path.stat().st_size for path in found)


def own_arguments(pretrained: str, model_type: str | None) -> dict[str, Any]:
    """Model arguments that a checkpoint was made for: the `model_args` of its row of configs/models, if it has any.

    Args:
        model_type: MODEL_TYPE; without it the row is the one whose checkpoint is this folder.
    """
    rows = model_rows()
    if model_type is not None:
        row = rows.get(model_type)
    else:
        row = next((row for row in rows.values() if _same_folder(row["checkpoint"], pretrained)), None)
    return dict((row or {}).get("model_args", {}))


def _same_folder(in_row: str, pretrained: str) -> bool:
    folder = _PACKAGES / in_row
    return folder.is_dir() and folder.resolve() == Path(pretrained).expanduser().resolve()


def load_config(pretrained: str, revision: str, trust_remote_code: bool) -> Any:
    """The checkpoint's transformers configuration.

    Raises:
        CheckpointNotThere: it cannot be read or fetched.
    """
    try:
        return AutoConfig.from_pretrained(pretrained, revision=revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointNotThere(
            f"pretrained={pretrained}: its configuration cannot be read: {in_one_line(error)}"
        ) from error


def identity(pretrained: str, hf_config: Any) -> str:
    """What is in the checkpoint: the hub commit, or a hash of a folder's content.

    Files count with their content; of very large ones thousands of evenly spaced blocks do, closer together than any
    layer's weights are long, so that this stays fast.
    """
    folder = Path(pretrained)
    if not folder.is_dir():
        return f"{pretrained}@{getattr(hf_config, '_commit_hash', None)}"
    digest = hashlib.sha256()
    for path in sorted(
        p for p in folder.iterdir() if p.suffix in {".json", ".jinja", ".safetensors", ".bin", ".model", ".txt"}
    ):
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}:".encode())
        with path.open("rb") as file:
            if size <= _SMALL:
                digest.update(file.read())
                continue
            for start in range(0, size, size // _BLOCKS):
                file.seek(start)
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:16]
