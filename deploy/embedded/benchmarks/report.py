"""Figures are JSON lines {"metric": NAME, "value": NUMBER, ...} on stdout, all else goes to stderr."""

import json
import sys


def report(metric: str, value: float, **figures: object) -> None:
    print(json.dumps({"metric": metric, "value": round(value, 4), **figures}), flush=True)


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
