"""What every encoder must do, checked against sentence-transformers, which the models were published with."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from structlog.testing import capture_logs

from kbmesh.errors import Misconfigured
from kbmesh.models import bundled_model_path
from services.embedder.adapters import torch as adapter
from services.embedder.adapters.torch import PROBE_TEXTS, TorchEncoder
from services.embedder.domain.encoding import InputType, Vectors

pytestmark = pytest.mark.usefixtures("one_thread")

DOCUMENT = InputType.DOCUMENT
LONG = " ".join(f"{text} Part {number}." for number in range(3) for text in PROBE_TEXTS)
TEXTS = (
    "one",
    *PROBE_TEXTS,
    LONG,
    "Größe, naïve café, 東京 and 🙂",
    "SELECT kind, count(*) FROM chunks GROUP BY kind;",
)


@pytest.fixture(scope="module")
def expected() -> Vectors:
    """The vectors of TEXTS that sentence-transformers gives, in fp32."""
    model = SentenceTransformer(
        str(bundled_model_path()), device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float32}
    )
    model.max_seq_length = 512
    vectors: Vectors = model.encode(list(TEXTS), show_progress_bar=False)
    return vectors


@pytest.fixture(scope="module")
def fp32() -> TorchEncoder:
    return TorchEncoder(bundled_model_path(), device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def bf16() -> TorchEncoder:
    return TorchEncoder(bundled_model_path(), device="cpu", precision="bf16")


@pytest.fixture(scope="module", params=["fp32", "bf16"])
def encoded(request: pytest.FixtureRequest) -> tuple[str, Vectors]:
    """The precision and the vectors of TEXTS."""
    return request.param, vectors_of(request.getfixturevalue(request.param), *TEXTS)


def vectors_of(encoder: TorchEncoder, *texts: str) -> Vectors:
    return encoder.encode(encoder.tokenize(texts, DOCUMENT))


def test_vectors_agree_with_sentence_transformers(encoded: tuple[str, Vectors], expected: Vectors) -> None:
    precision, vectors = encoded
    assert (vectors * expected).sum(axis=1).min() >= {"fp32": 0.99999, "bf16": 0.9995}[precision]
    np.testing.assert_allclose(vectors, expected, atol={"fp32": 1e-5, "bf16": 0.01}[precision])


def test_vectors_have_unit_length_in_float32(encoded: tuple[str, Vectors]) -> None:
    _, vectors = encoded
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_neighbours_and_their_order_do_not_change_a_vector(fp32: TorchEncoder) -> None:
    texts = (*TEXTS[:4], "word " * 200)
    together = vectors_of(fp32, *texts)
    backwards = vectors_of(fp32, *reversed(texts))[::-1]
    alone = np.concatenate([vectors_of(fp32, text) for text in texts])
    np.testing.assert_allclose(together, backwards, atol=1e-5)
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("words", [130, 300, 500])
def test_the_end_of_a_long_text_is_read(words: int, fp32: TorchEncoder) -> None:
    text = "data " * words
    plain, with_end = fp32.tokenize([text, text + "elephants"], DOCUMENT)
    assert (len(plain), plain.truncated) == (words + 2, False)
    assert (len(with_end), with_end.truncated) == (words + 3, False)
    vectors = fp32.encode([plain, with_end])
    assert vectors[0] @ vectors[1] < 0.9999


def test_what_lies_beyond_512_tokens_is_left_out_and_said_so(fp32: TorchEncoder) -> None:
    exact, over, far_over = fp32.tokenize(["data " * 510, "data " * 511, "data " * 5000], DOCUMENT)
    assert (len(exact), exact.truncated) == (512, False)
    assert (len(over), over.truncated) == (512, True)
    assert (len(far_over), far_over.truncated) == (512, True)
    assert over.ids == far_over.ids == exact.ids


def test_precision_is_chosen_by_measure_and_the_choice_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_cpu_multiplies_bf16", lambda: True)
    with capture_logs() as logs:
        encoder = TorchEncoder(bundled_model_path(), device="cpu")
    [chosen] = [entry for entry in logs if entry["event"] == "precision_chosen"]
    faster_and_as_good = chosen["bf16_ms"] < chosen["fp32_ms"] and chosen["min_cosine"] >= 0.9995
    assert chosen["precision"] == encoder.precision == ("bf16" if faster_and_as_good else "fp32")


def test_bf16_that_is_too_far_from_fp32_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_cpu_multiplies_bf16", lambda: True)
    monkeypatch.setattr(adapter, "MIN_COSINE", 1.1)
    assert TorchEncoder(bundled_model_path(), device="cpu").precision == "fp32"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(Misconfigured, match="no GPU"):
        TorchEncoder(bundled_model_path(), device="cuda")
