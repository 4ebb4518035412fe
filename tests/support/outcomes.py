"""Outcomes of operations as a capture has them, from plain results."""

from samebits.questions.texts.records import Outcomes, Value


def outcomes(operations, **fields):
    """Return the record of operation -> case -> text, list of numbers, or exception."""
    values = []
    numbers = {}
    for operation, cases in operations.items():
        for case, result in cases.items():
            numbers.setdefault(operation, {})[case] = len(values)
            values.append(value(result))
    return Outcomes(operations=numbers, values=tuple(values), **fields)


def value(result):
    """Return one value."""
    if isinstance(result, Value):
        return result
    if isinstance(result, Exception):
        return Value(raised=type(result).__name__, message=str(result))
    if isinstance(result, str):
        return Value(text=result, size=len(result))
    return Value(items=tuple(result), size=len(result))
