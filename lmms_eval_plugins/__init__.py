"""KV-cache eviction inside lmms-eval: wrappers under lmms-eval's own model names, and small tasks without a download.

Installed, the package registers itself: `KV_CACHE_TYPE=... python -m lmms_eval --model llava_hf ...` uses its wrappers.
The environment says what the cache keeps (`KV_CACHE_TYPE`, `PRUNE_RATIO`, ...). With none of these variables set,
lmms-eval runs as if the package were not installed.
"""
