"""Naive references of the eviction methods, written from the specification and from nothing else.

Each is `kept(attention, keys, values, vision, retention, **params) -> [layer][set][positions]` on float64
arrays: attention (L, H, N, N), keys and values (L, G, N, d), vision one flag per position. A layer has one
set where all heads share it, else one per KV head.
"""

from tests.reference import (
    ada_kv,
    cake,
    elastic_cache,
    fastv,
    full,
    h2o,
    look_m,
    mix_kv,
    mm_shiftkv,
    prefix_kv,
    pyramid_kv,
    simple,
    snapkv,
    streaming_llm,
    tgv_kv,
    vl_cache,
)

REFERENCES = {
    "full": full.kept,
    "tgv_kv": tgv_kv.kept,
    "streaming_llm": streaming_llm.kept,
    "h2o": h2o.kept,
    "snapkv": snapkv.kept,
    "pyramid_kv": pyramid_kv.kept,
    "ada_kv": ada_kv.kept,
    "elastic_cache": elastic_cache.kept,
    "prefix_kv": prefix_kv.kept,
    "mm_shiftkv": mm_shiftkv.kept,
    "tova": simple.tova,
    "keydiff": simple.keydiff,
    "knorm": simple.knorm,
    "observed_attention": simple.observed_attention,
    "expected_attention": simple.expected_attention,
    "look_m": look_m.kept,
    "vl_cache": vl_cache.kept,
    "cake": cake.kept,
    "mix_kv": mix_kv.kept,
    "fastv": fastv.kept,
}
