"""What the benchmarks measure with: the same files in every run, and memory at its highest."""

import asyncio
from pathlib import Path

import pytest

from deploy.embedded.benchmarks.corpus import Corpus, topic_words
from deploy.embedded.benchmarks.files import make_file
from deploy.embedded.benchmarks.memory import PeakMemory
from deploy.embedded.benchmarks.upload import make_text
from services.ingest.domain.content_type import HEAD_BYTES, ContentType, sniff_head


@pytest.mark.parametrize(
    "content_type",
    [ContentType.CSV, ContentType.HTML, ContentType.MARKDOWN, ContentType.TEXT],
)
def test_a_file_is_the_same_in_every_run_and_what_it_claims_to_be(
    content_type: ContentType, tmp_path: Path
) -> None:
    first = make_file(tmp_path, content_type, 3).read_bytes()
    assert make_file(tmp_path, content_type, 3).read_bytes() == first
    suffix = {ContentType.MARKDOWN: "md"}.get(content_type, content_type.name.lower())
    assert sniff_head(first[:HEAD_BYTES], f"a.{suffix}") is content_type


@pytest.mark.parametrize("size", [1, 1_000_000, 3_000_001])
def test_an_uploaded_text_has_the_size_that_the_figures_name(size: int, tmp_path: Path) -> None:
    assert make_text(tmp_path, size).stat().st_size == size


async def test_memory_is_measured_at_its_highest() -> None:
    risen = asyncio.Event()

    def resident() -> int:
        size = next(sizes, 5)
        if size == 5:
            loop.call_soon_threadsafe(risen.set)
        return size

    loop = asyncio.get_running_loop()
    sizes = iter([10, 30, 20])
    async with PeakMemory(resident) as memory:
        await risen.wait()
    assert (memory.idle, memory.peak) == (10, 30)


def test_a_corpus_is_the_same_in_every_run_and_a_topic_has_its_own_words_and_direction() -> None:
    corpus = Corpus(20, 64)
    (questions, vectors), (again, same) = corpus.questions(40), Corpus(20, 64).questions(40)
    assert questions == again
    assert (vectors == same).all()
    similarity = vectors @ corpus.centres.T
    nearest = set(similarity.argmax(axis=1).tolist())
    assert len(nearest) > 30
    own = [set(topic_words(topic)) for topic in similarity.argmax(axis=1).tolist()]
    assert sum(len(words & set(text.split())) >= 3 for words, text in zip(own, questions, strict=True)) >= 38
