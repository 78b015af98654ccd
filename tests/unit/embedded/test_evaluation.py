"""What search is evaluated with: judged collections, measures, baselines, and the labelled set for provenance."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from deploy.embedded.evaluation.__main__ import collection_folders
from deploy.embedded.evaluation.baselines import by_bm25, by_cosine, by_rrf
from deploy.embedded.evaluation.beir import Collection, load_collection
from deploy.embedded.evaluation.measures import measure
from deploy.embedded.evaluation.provenance import Reason, load_labelled_set
from kbmesh.provenance import Tier


def write_collection(folder: Path) -> None:
    folder.mkdir()
    documents = [
        {"_id": "d1", "title": "Wings", "text": "Lift of a wing."},
        {"_id": "d2", "title": "", "text": "Drag."},
        {"_id": "d3", "title": " ", "text": ""},
    ]
    queries = [{"_id": "q1", "text": "lift"}, {"_id": "q2", "text": "nobody judged this"}]
    for name, rows in (("corpus", documents), ("queries", queries)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n", encoding="utf-8")


def test_a_collection_is_read_without_blank_documents_and_unjudged_queries(tmp_path: Path) -> None:
    write_collection(tmp_path / "aero")
    assert load_collection(tmp_path / "aero") == Collection(
        name="aero",
        texts={"d1": "Wings\n\nLift of a wing.", "d2": "Drag."},
        queries={"q1": "lift"},
        judgements={"q1": {"d1": 2}},
    )


def test_a_part_of_a_collection_keeps_all_documents_that_its_queries_are_judged_by() -> None:
    texts = {name: name for name in "abcdef"}
    whole = Collection("letters", texts, {"1": "one", "2": "two"}, {"1": {"e": 1, "b": 2}, "2": {"f": 1}})
    part = whole.part(queries=1, others=2)
    assert list(part.texts) == ["a", "b", "c", "e"]
    assert (part.queries, part.judgements) == ({"1": "one"}, {"1": {"e": 1, "b": 2}})


def test_collections_are_found_and_their_absence_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collection_folders(None) == []
    assert collection_folders(str(tmp_path)) == []
    assert capsys.readouterr().err.count("KBMESH_EVAL_DIR") == 2
    write_collection(tmp_path / "aero")
    assert collection_folders(str(tmp_path)) == [tmp_path / "aero"]


def test_the_measures_are_means_over_all_judged_queries_in_the_order_that_was_found() -> None:
    run = {"1": ["z", "b", "a"], "2": [], "3": ["c"]}
    assert measure(run, {"1": {"b": 1}, "2": {"c": 1}}) == pytest.approx(
        {"ndcg10": 0.5 / np.log2(3), "recall10": 0.5, "recall50": 0.5, "mrr": 0.25}
    )


def test_bm25_finds_words_by_their_stems_and_nothing_else() -> None:
    texts = {"a": "flowing water", "b": "dry sand", "c": "water flows and flows past sand"}
    assert by_bm25(texts, {"1": "the flow", "2": "stone"}) == {"1": ["c", "a"], "2": []}


def test_exact_cosine_is_ordered_by_similarity() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    queries = np.array([[0, 1]], np.float32)
    assert by_cosine(["a", "b", "c"], vectors, ["1"], queries) == {"1": ["b", "c", "a"]}


def test_fusion_prefers_what_both_found() -> None:
    assert by_rrf({"1": ["a", "b"]}, {"1": ["c", "b"]}) == {"1": ["b", "a", "c"]}


def test_the_labelled_set_has_questions_of_each_reason_whose_sources_are_what_the_reason_says() -> None:
    labelled = load_labelled_set()
    sources = {source.file: source for source in labelled.sources}
    assert len(labelled.questions) >= 60
    assert len({question.ask for question in labelled.questions}) == len(labelled.questions)
    assert {source.tier for source in labelled.sources} == set(Tier)
    assert any(source.valid_until for source in labelled.sources)
    assert min(Counter(question.because for question in labelled.questions).values()) >= 20
    for question in labelled.questions:
        first = sources[question.first]
        assert first.valid_until is None
        assert (first.tier is Tier.CUSTOMER_FACT) is (question.because is not Reason.RELEVANCE), question.ask
