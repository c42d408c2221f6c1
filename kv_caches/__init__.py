"""KV-cache eviction for vision-language models, inside transformers' own extension points.

with attach(model, KVConfig(method="tgv_kv", retention=0.05)):
    model.generate(**inputs)
"""

from .config import KVConfig
from .engine import Attachment, attach
from .errors import ConfigError, UnsupportedError

__all__ = ["Attachment", "ConfigError", "KVConfig", "UnsupportedError", "attach"]
