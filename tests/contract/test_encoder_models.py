"""Each kind of model reads a text as sentence-transformers does; what must not be loaded is not."""

from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from services.embedder.adapters.torch import PROBE_TEXTS, TorchEncoder
from services.embedder.domain.encoding import InputType, Vectors
from tests.support.models import POSITIONS, save_model

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ("one", "a few words of text", "Größe, 東京 and 🙂", *PROBE_TEXTS)
PROMPTS = {"query": "find what answers: ", "document": "text: "}
MODELS: dict[str, dict[str, Any]] = {
    "mean": {},
    "mean-prompts": {"prompts": PROMPTS},
    "mean-mpnet": {"family": "mpnet"},
    "mean-xlm-roberta": {"family": "xlm-roberta"},
    "cls": {"pooling": "cls"},
    "cls-query-prompt": {"pooling": "cls", "prompts": {"query": "find what answers: "}},
    "lasttoken": {"family": "qwen3", "pooling": "lasttoken", "prompts": {"query": "Instruct: find\nQuery:"}},
    "lasttoken-left": {"family": "qwen3", "pooling": "lasttoken", "padding_side": "left", "prompts": PROMPTS},
}


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TorchEncoder, Any]:
    """Ours and that of sentence-transformers, of the same folder."""
    folder = save_model(tmp_path_factory.mktemp("model"), **MODELS[request.param])
    reference = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    reference.max_seq_length = POSITIONS
    return TorchEncoder(folder, device="cpu", precision="fp32"), reference


def vectors_of(encoder: TorchEncoder, *texts: str, as_: InputType = InputType.DOCUMENT) -> Vectors:
    return encoder.encode(encoder.tokenize(texts, as_))


def test_documents_and_queries_agree_with_sentence_transformers(both: tuple[TorchEncoder, Any]) -> None:
    encoder, reference = both
    assert max(map(len, encoder.tokenize(TEXTS, InputType.DOCUMENT))) == POSITIONS
    documents = reference.encode_document(list(TEXTS), show_progress_bar=False)
    np.testing.assert_allclose(vectors_of(encoder, *TEXTS), documents, atol=1e-5)
    queries = reference.encode_query(list(TEXTS), show_progress_bar=False)
    np.testing.assert_allclose(vectors_of(encoder, *TEXTS, as_=InputType.QUERY), queries, atol=1e-5)


def test_a_text_alone_has_the_vector_that_it_has_among_others(both: tuple[TorchEncoder, Any]) -> None:
    encoder, _ = both
    alone = np.concatenate([vectors_of(encoder, text) for text in TEXTS])
    np.testing.assert_allclose(vectors_of(encoder, *TEXTS), alone, atol=1e-5)
    assert np.abs(alone @ alone.T - np.eye(len(TEXTS))).max() < 0.999, "the models tell texts apart"
