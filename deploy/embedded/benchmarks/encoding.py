"""The encoder of the embedder against sentence-transformers, on the same texts of mixed length.

Sentence-transformers runs as it comes, in fp32 with batches of 32, but for its limit: both read 512 tokens. Both
run in this process with the same number of threads, one after the other in each round; the first is not counted.
The fraction of the matrix rate counts the operations that the texts need, padding left out.
"""

import statistics
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from deploy.embedded.benchmarks.prose import make_texts
from deploy.embedded.benchmarks.report import log, report, report_ratio
from deploy.embedded.benchmarks.throughput import (
    SLICE,
    SLICE_TOKENS,
    encode_all,
    kept_share,
    matrix_flops_per_s,
    useful_flops,
)
from kbmesh.models import BUNDLED_MODEL, bundled_model_path
from services.embedder.adapters.model_folder import MAX_TOKENS
from services.embedder.adapters.torch import Device, TorchEncoder
from services.embedder.domain.encoding import InputType, Vectors

TEXTS: Final = 256
ROUNDS: Final = 5
BATCH: Final = 32  # of sentence-transformers; its default too


def bench(*, quick: bool) -> None:
    texts = make_texts(24 if quick else TEXTS, seed=1)
    measure(bundled_model_path(), texts, rounds=1 if quick else ROUNDS, device="cpu", model=BUNDLED_MODEL)


def measure(
    folder: Path,
    texts: list[str],
    *,
    rounds: int,
    device: Device,
    model: str,
    slice_size: int = SLICE,
    slice_tokens: int = SLICE_TOKENS,
    prefix: str = "",
) -> None:
    """
    Args:
        prefix: of the names of the figures.
    """
    encoder = TorchEncoder(folder, device=device)
    baseline = _sentence_transformer(folder, device)
    tokens = encoder.tokenize(texts, InputType.DOCUMENT)
    flops = useful_flops(folder, tokens)
    ours: list[float] = []
    theirs: list[float] = []
    fractions: list[float] = []
    cosine = 1.0
    for number in range(rounds + 1):
        matrix = matrix_flops_per_s(folder, device, encoder.precision, slice_tokens)
        started = time.perf_counter()
        vectors = encode_all(encoder, texts, slice_size, slice_tokens)
        seconds = time.perf_counter() - started
        started = time.perf_counter()
        expected: Vectors = baseline.encode(texts, batch_size=BATCH, show_progress_bar=False)
        their_seconds = time.perf_counter() - started
        cosine = min(cosine, _min_cosine(vectors, expected))
        log(f"round {number}: {len(texts)} texts in {seconds:.2f} s, sentence-transformers {their_seconds:.2f} s")
        if number:
            ours.append(len(texts) / seconds)
            theirs.append(len(texts) / their_seconds)
            fractions.append(flops / seconds / matrix)
    lengths = [len(text) for text in tokens]
    figures = {
        "model": model,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "precision": encoder.precision,
        "slice": [slice_size, slice_tokens],
        "texts": len(texts),
        "tokens": [min(lengths), round(statistics.mean(lengths)), max(lengths)],
    }
    report(f"{prefix}encode_chunks_per_s", statistics.median(ours), **figures)
    as_it_comes = figures | {"precision": "fp32", "slice": BATCH}
    report(f"{prefix}sentence_transformers_chunks_per_s", statistics.median(theirs), **as_it_comes)
    report_ratio(f"{prefix}encode_vs_sentence_transformers", ours, theirs, min_cosine=round(cosine, 6), **figures)
    report(f"{prefix}encode_tokens_kept", kept_share(tokens, slice_size, slice_tokens), **figures)
    report(f"{prefix}encode_fraction_of_matrix_rate", statistics.median(fractions), gflops=flops / 1e9, **figures)


def _sentence_transformer(folder: Path, device: Device) -> Any:
    # Of the development dependencies, and slow to import.
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        str(folder), device=device, local_files_only=True, model_kwargs={"dtype": torch.float32}
    )
    model.max_seq_length = MAX_TOKENS
    return model


def _min_cosine(vectors: Vectors, others: Vectors) -> float:
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
    return float(((vectors * others).sum(1) / norms).min())
