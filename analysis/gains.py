"""What eviction gains over the full cache of the same run, and the paper's claims beside it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .paper import paper_numbers

FULL, STOCK, OFFICIAL = "full", "stock", "official-style"
_RATIOS = {
    "step": ("step_s", False),
    "128: tokens/s": ("tokens_per_s_128", True),
    "512": ("tokens_per_s_512", True),
    "1500": ("tokens_per_s_1500", True),
    "KV": ("kv_prompt_bytes", False),
    "decode peak": ("peak_decode_bytes", False),
    "fits": ("largest_batch", True),
}
"""Figure, and whether more of it is better."""
GAINS_NOTE = (
    "Times better than the full cache at the same N and batch, both as a recorded graph or neither; above 1 is better. "
    "Seconds and bytes: full / this. Tokens per second and what fits: this / full."
)
PAPER_NOTE = "Its model, card and length of answers are not stated in our sources: ratios compare, sizes do not."


def method_name(row: dict[str, Any]) -> str:
    """As the tables call it: `tgv_kv, graph`."""
    return row["method"] + (", graph" if row.get("graph") else "")


def share(row: dict[str, Any]) -> str:
    """What is kept: `5 %`."""
    return f"{100 * row['retention']:g} %"


def gains(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A row per measured configuration that evicts: how many times better than the full cache it is."""
    shown = []
    for row in rows:
        if row["method"] in (FULL, STOCK, OFFICIAL) or "error" in row:
            continue
        full = _full(rows, row)
        cells = {"N": row["length"], "batch": row["batch"], "method": method_name(row), "keep": share(row)}
        for name, (key, more) in _RATIOS.items():
            ratio = _ratio(row, full, key)
            cells[name] = _factor(ratio if more or ratio is None else 1 / ratio)
        cells["note"] = f"full cache: {full.get('error', 'not measured')}" if full.get("step_s") is None else ""
        shown.append(cells)
    found = pd.DataFrame(shown)
    return found if found.empty or found["note"].any() else found.drop(columns="note")


def beside_paper(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The paper's claims on memory and throughput beside TGV-KV's figures at 8k and 5 %; empty without any."""
    mine = [row for row in rows if (row["length"], row["retention"]) == (8192, 0.05) and row["method"] == "tgv_kv"]
    found: dict[str, dict[str, str]] = {}
    for row in mine:
        full = _full(rows, row)
        if "error" in row or full.get("step_s") is None:
            continue
        column = f"batch {row['batch']}{', graph' if row.get('graph') else ''}"
        before, after = full["kv_prompt_bytes"] / 1e9, row["kv_prompt_bytes"] / 1e9
        cells = {"KV cache, full to kept [GB]": f"{before:.3g} to {after:.3g}", "times less": f"{before / after:.1f}"}
        for answer in (128, 512, 1500):
            gain = _ratio(row, full, f"tokens_per_s_{answer}")
            cells[f"tokens/s end to end, {answer} tokens"] = "-" if gain is None else f"{100 * (gain - 1):+.1f} %"
        found[column] = cells
    if not found:
        return pd.DataFrame()
    claims = next(iter(found.values()))
    paper = {claim: _paper().get(claim.split(",")[0], "-") for claim in claims}
    columns = {name: list(cells.values()) for name, cells in found.items()}
    return pd.DataFrame({"N = 8192, 5 %": list(claims), "paper": list(paper.values()), **columns})


def _paper() -> dict[str, str]:
    """The claims that its sources state, by what they are about."""
    table = paper_numbers().query("table == '4'").set_index(["metric", "method"])["value"]
    before, after = (table.get(("KV cache at 8k context", method)) for method in ("full", "tgv_kv"))
    throughput = table.get(("end-to-end throughput gain", "tgv_kv"))
    found = {} if throughput is None else {"tokens/s end to end": f"+{throughput:g} %"}
    if before is not None and after is not None:
        found |= {"KV cache": f"{before:.2f} to {after:.2f}", "times less": f"{before / after:.1f}"}
    return found


def _full(rows: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    """The full cache's row at the same length and batch, and captured as this one is."""
    for other in rows:
        keys = ("length", "batch")
        same = all(other[key] == row[key] for key in keys) and bool(other.get("graph")) == bool(row.get("graph"))
        if other["method"] == FULL and same:
            return other
    return {}


def _ratio(row: dict[str, Any], full: dict[str, Any], key: str) -> float | None:
    ours, theirs = row.get(key), full.get(key)
    return ours / theirs if ours and theirs else None


def _factor(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.1f}"
