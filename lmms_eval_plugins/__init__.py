"""KV-cache eviction inside lmms-eval: wrappers under lmms-eval's own model names, and small tasks without a download.

Installed, the package registers itself: `python -m lmms_eval --model llava_hf ...` uses the wrappers of this package.
The environment says what the cache keeps (`KV_CACHE_TYPE`, `PRUNE_RATIO`, ...); without it the models run as stock.
"""
