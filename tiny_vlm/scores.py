"""How answers are scored, in 0..1: the usual metric of each kind of question."""

from collections.abc import Sequence

from tiny_vlm.data import Sample


def score(sample: Sample, prediction: str) -> float:
    """The metric of the sample's kind (the part of its id before the first hyphen)."""
    kind = sample.id.split("-", 1)[0]
    if kind == "caption":
        return object_f1(prediction, sample.objects)
    metric = {"document": anls, "chart": relaxed_accuracy, "scene": exact_match}[kind]
    return max(metric(prediction, answer) for answer in sample.answers)


def exact_match(prediction: str, answer: str) -> float:
    return float(_plain(prediction) == _plain(answer))


def relaxed_accuracy(prediction: str, answer: str, tolerance: float = 0.05) -> float:
    """Numbers may differ by 5 % (ChartQA); anything else must match exactly."""
    try:
        return float(abs(float(prediction) - float(answer)) <= tolerance * abs(float(answer)))
    except ValueError:
        return exact_match(prediction, answer)


def anls(prediction: str, answer: str, threshold: float = 0.5) -> float:
    """Normalised Levenshtein similarity, 0 below the threshold (DocVQA)."""
    first, second = _plain(prediction), _plain(answer)
    similarity = 1 - _edits(first, second) / max(len(first), len(second), 1)
    return similarity if similarity >= threshold else 0.0


def object_f1(prediction: str, objects: Sequence[str]) -> float:
    """F1 of named objects ("red circle"), each counted once."""
    named = {part.strip().removeprefix("a ") for part in _plain(prediction).split(",")} - {""}
    hits = len(named & set(objects))
    return 2 * hits / (len(named) + len(set(objects)))


def _plain(text: str) -> str:
    return " ".join(text.lower().strip().rstrip(".").replace(",", " , ").split())


def _edits(first: str, second: str) -> int:
    """Levenshtein distance."""
    row = list(range(len(second) + 1))
    for i, left in enumerate(first, 1):
        previous, row = row, [i]
        for j, right in enumerate(second, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (left != right)))
    return row[-1]
