"""The registry as a table: name, paper, variants, statistics needed, whether a prefill can be shared, decode rule."""

from __future__ import annotations

from . import registry
from .method import Method

README_COLUMNS = ("name", "paper", "file", "variants", "statistics", "decode rule", "checked against")
COLUMNS = ("name", "paper", "variants", "statistics", "shares prefill", "decode rule", "checked against")
MOST_VARIANTS = 4


def rows() -> list[dict[str, str]]:
    """One row per registered method; statistics are those of the default variant."""
    return [_row(name) for name in registry.method_names()]


def _row(name: str) -> dict[str, str]:
    variants = registry.variants(name)
    built = [registry.build(name, variant) for variant in variants]
    default = built[0]
    more = [f"… {len(variants)} in all"] if len(variants) > MOST_VARIANTS else []
    values = (
        name,
        default.paper,
        ", ".join([*(variants[:2] if more else variants), *more]),
        ", ".join(sorted(statistic.name for statistic in default.needs)) or "none",
        "yes" if all(method.shares_prefill for method in built) else "no",
        _decode_rules(built),
        default.source or "-",
    )
    return dict(zip(COLUMNS, values)) | {"file": registry.module_name(name).replace(".", "/") + ".py"}


def _decode_rules(methods: list[Method]) -> str:
    """'append' when no variant has a rule of its own; a rule of some variants only names them."""
    by_rule: dict[str, list[str]] = {}
    for method in methods:
        if method.decode_rule is not None:
            rule = getattr(method.decode_rule, "name", type(method.decode_rule).__name__)
            by_rule.setdefault(rule, []).append(method.variant)
    return "; ".join(
        rule if len(variants) == len(methods) else f"{rule} ({', '.join(variants)})"
        for rule, variants in by_rule.items()
    ) or ("append only")


def aligned(table: list[dict[str, str]]) -> str:
    """Columns padded to their widest cell."""
    widths = {column: max(len(column), *(len(row[column]) for row in table)) for column in COLUMNS}
    head = {column: column for column in COLUMNS}
    rule = {column: "-" * widths[column] for column in COLUMNS}
    lines = ("  ".join(row[column].ljust(widths[column]) for column in COLUMNS) for row in [head, rule, *table])
    return "\n".join(line.rstrip() for line in lines)


def markdown(table: list[dict[str, str]]) -> str:
    """For the README."""
    rule = ["---"] * len(README_COLUMNS)
    lines = [README_COLUMNS, rule, *([row[column] for column in README_COLUMNS] for row in table)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
