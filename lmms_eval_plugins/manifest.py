"""The entry point of the group `lmms_eval.models`: which model names this package serves, if a run asks for it.

lmms-eval loads it while it is being imported, before it reads its command line, finds tasks or loads a model.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from lmms_eval_plugins.asked import asks_for_us

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest

MODELS = {"llava_hf": "LlavaHf", "qwen3_vl": "Qwen3VL", "qwen2_5_vl": "Qwen25VL"}


def model_manifests() -> list[ModelManifest]:
    """Registers the wrappers over lmms-eval's own if a variable asks for them; a run by command line is checked first.

    Raises:
        SystemExit: the run cannot be as asked, or this package cannot even be imported. lmms-eval would take any other
            exception for a plugin that is not there and go on with its own wrapper and the full cache.
    """
    if not asks_for_us(os.environ, sys.argv):
        return []
    try:
        from lmms_eval_plugins import preflight

        preflight.prepare_command_line()
    except Exception as error:
        raise SystemExit(f"error: the KV-cache plugin of lmms-eval cannot start: {error!r}") from error
    return _wrappers()


def register() -> None:
    """Registers the wrappers whatever the environment says, for a program that sets it from run to run."""
    from lmms_eval.models import MODEL_REGISTRY_V2

    for manifest in _wrappers():
        MODEL_REGISTRY_V2.register_manifest(manifest, overwrite=True)


def _wrappers() -> list[ModelManifest]:
    # Nothing of lmms-eval is imported above: its registry imports this module while it is being imported itself.
    from lmms_eval.models.registry_v2 import ModelManifest

    return [
        ModelManifest(
            model_id=name,
            simple_class_path=f"lmms_eval_plugins.models.{name}.{cls}Simple",
            chat_class_path=f"lmms_eval_plugins.models.{name}.{cls}Chat",
        )
        for name, cls in MODELS.items()
    ]
