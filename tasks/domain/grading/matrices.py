r"""Vectors and matrices against each other and against tuples: one notation of a vector answers another."""

from __future__ import annotations

from tasks.domain.grading.shapes import Shape


def alike(prediction: Shape, gold: Shape) -> tuple[Shape, Shape]:
    """(prediction, gold) as tuples where one of them is a vector or matrix and the other can be read as one.

    A vector is a tuple however it is written, unless both sides say whether it is a row or a column. Square brackets
    around numbers are a vector where the gold is one.
    """
    if gold.kind == "matrix":
        if prediction.kind == "relation" and prediction.marks[-1] == "=":
            prediction = prediction.items[-1]
        if prediction.kind == "scalar":
            return prediction, gold
        if prediction.kind == "matrix":
            return _tuple(prediction, prediction.items), _tuple(gold, gold.items)
        entries = _vector(gold)
        return _bracketed(prediction), _tuple(gold, gold.items if entries is None else entries)
    if gold.kind == "tuple" and prediction.kind == "matrix" and (entries := _vector(prediction)) is not None:
        return _tuple(prediction, entries), gold
    return prediction, gold


def _vector(matrix: Shape) -> tuple[Shape, ...] | None:
    """Entries of a single row or column."""
    if len(matrix.items) == 1:
        return matrix.items[0].items
    return tuple(row.items[0] for row in matrix.items) if all(len(row.items) == 1 for row in matrix.items) else None


def _bracketed(found: Shape) -> Shape:
    r"""`[1,2]` and `[[1,2],[3,4]]` as tuples."""
    if found.kind == "tuple" or (found.kind == "interval" and found.marks == ("[", "]")):
        return _tuple(found, tuple(_bracketed(item) for item in found.items))
    return found


def _tuple(found: Shape, items: tuple[Shape, ...]) -> Shape:
    return Shape("tuple", found.text, items)
