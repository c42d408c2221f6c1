"""A method that declares that no other may share its prefill; it keeps the last positions."""

from kv_caches.budgets import Uniform
from kv_caches.method import Method
from kv_caches.retention import Protected
from kv_caches.scorers import Recency

VARIANTS = ("plain",)


def build(variant: str) -> Method:
    return Method("own_pass", "a test", Uniform(), Recency(), Protected(), variant, shares_prefill=False)
