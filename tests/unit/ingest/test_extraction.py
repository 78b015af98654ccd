import pickle

from services.ingest.domain.extraction import Block, ExtractionFailed, Part, assemble


def test_blocks_span_their_text_and_are_joined_by_a_blank_line() -> None:
    document = assemble([Part("heading", " Orders ", 1, 2), Part("text", "One row an order.", 1)])
    assert document.text == "Orders\n\nOne row an order."
    assert document.blocks == (Block(0, 6, "heading", 1, 2), Block(8, 25, "text", 1, None))


def test_what_no_database_takes_is_gone_before_spans_are_measured() -> None:
    document = assemble(
        [Part("text", "a\x00b\x07\ud800c\td\r\ne\x0cf"), Part("text", "\x00 \n"), Part("text", "g")]
    )
    assert document.text == "abc\td\ne\nf\n\ng"
    assert [document.text[block.start : block.end] for block in document.blocks] == ["abc\td\ne\nf", "g"]


def test_a_file_without_text_is_a_document_without_blocks() -> None:
    assert assemble([Part("text", " \n\t ")]).blocks == ()
    assert assemble([]).text == ""


def test_a_failure_keeps_its_code_on_its_way_between_processes() -> None:
    failure = pickle.loads(pickle.dumps(ExtractionFailed("needs a password", code="password_required")))  # noqa: S301
    assert isinstance(failure, ExtractionFailed)
    assert (failure.code, failure.detail) == ("password_required", "needs a password")
    assert ExtractionFailed("broken").code == "corrupt_file"
