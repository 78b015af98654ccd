import threading
from collections.abc import Sequence

import numpy as np
import pytest

from services.embedder.domain.encoding import InputType, Tokens, Vectors


class WordEncoder:
    """One token per word, its value the word's length; a gate holds each call until the test opens it."""

    dimensions = 2

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.threads: set[int] = set()
        self.gate = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)
        self.gated = False

    def tokenize(self, texts: Sequence[str], input_type: InputType) -> list[Tokens]:
        return [Tokens(tuple(len(word) for word in text.split())) for text in texts]

    def encode(self, tokens: Sequence[Tokens]) -> Vectors:
        self.calls.append([len(text) for text in tokens])
        self.threads.add(threading.get_ident())
        if self.gated:
            self.entered.release()
            assert self.gate.acquire(timeout=10)
        if any(666 in text.ids for text in tokens):
            raise RuntimeError("no vector for this one")
        return np.array([[len(text), sum(text.ids)] for text in tokens], np.float32)


@pytest.fixture
def word_encoder() -> WordEncoder:
    return WordEncoder()
