"""The entry point of the group `lmms_eval.models`: which model names this package serves.

lmms-eval loads it while it is being imported, before it reads its command line, finds tasks or loads a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest

MODELS = {"llava_hf": "LlavaHf", "qwen3_vl": "Qwen3VL", "qwen2_5_vl": "Qwen25VL"}


def model_manifests() -> list[ModelManifest]:
    """Registers the wrappers over lmms-eval's own; from the command line the run is checked first.

    Raises:
        SystemExit: the run cannot be as asked, or this package cannot even be imported. lmms-eval would take any other
            exception for a plugin that is not there and go on with its own wrapper and the full cache.
    """
    # Nothing of lmms-eval is imported above: its registry imports this module while it is being imported itself.
    from lmms_eval.models.registry_v2 import ModelManifest

    try:
        from lmms_eval_plugins import preflight

        preflight.prepare_command_line()
    except Exception as error:
        raise SystemExit(f"error: the KV-cache plugin of lmms-eval cannot start: {error!r}") from error
    return [
        ModelManifest(
            model_id=name,
            simple_class_path=f"lmms_eval_plugins.models.{name}.{cls}Simple",
            chat_class_path=f"lmms_eval_plugins.models.{name}.{cls}Chat",
        )
        for name, cls in MODELS.items()
    ]
