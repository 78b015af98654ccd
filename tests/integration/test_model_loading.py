"""Unsafe or incomplete model folders end in one clear error; too little memory for a batch ends nothing."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs
from transformers import AutoModel

from kbmesh.errors import Misconfigured, Unavailable
from services.embedder.adapters.torch import PROBE_TEXTS, TorchEncoder
from services.embedder.domain.encoding import InputType, Tokens, Vectors
from tests.support.models import save_model

pytestmark = pytest.mark.usefixtures("one_thread")

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(sound, tmp_path / "model"))


def load(folder: Path) -> TorchEncoder:
    return TorchEncoder(folder, device="cpu", precision="fp32")


def probes(encoder: TorchEncoder) -> list[Tokens]:
    return encoder.tokenize(PROBE_TEXTS, InputType.DOCUMENT)


def refusal(folder: Path) -> str:
    with pytest.raises(Misconfigured) as refused:
        load(folder)
    assert str(folder) in refused.value.detail
    return refused.value.code


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


class _Marks:
    """Unpickling it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.mkdir, (self.mark,)


def test_weights_in_a_pickle_are_refused_and_not_unpickled(folder: Path, tmp_path: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Marks(tmp_path / "mark")))
    assert refusal(folder) == "model_unsafe"
    assert not (tmp_path / "mark").exists()


def test_a_pickle_beside_safetensors_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Marks(tmp_path / "mark")))
    load(folder)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("where", ["config.json", "modules.json"])
def test_code_in_the_folder_is_refused_and_not_run(folder: Path, tmp_path: Path, where: str) -> None:
    (folder / "modeling_own.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'mark')!r}).mkdir()")
    if where == "config.json":
        edit(folder / where, auto_map={"AutoConfig": "modeling_own.Config", "AutoModel": "modeling_own.Model"})
    else:
        modules = json.loads((folder / where).read_text())
        modules[0]["type"] = "modeling_own.Transformer"
        (folder / where).write_text(json.dumps(modules))
    assert refusal(folder) == "model_unsafe"
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_attention_of_somebody_elses_is_not_fetched(folder: Path, key: str) -> None:
    edit(folder / "config.json", **{key: "somebody/attention"})
    load(folder)


def cut_weights(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])


def spoil_a_weight(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["embeddings.LayerNorm.bias"][0] = torch.nan
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda folder: (folder / WEIGHTS).unlink(), "model_missing"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "model_missing"),
        (cut_weights, "model_broken"),
        (spoil_a_weight, "model_broken"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "model_broken"),
        (lambda folder: edit(folder / "config.json", num_hidden_layers=3), "model_broken"),
        (lambda folder: edit(folder / "config.json", intermediate_size=63), "model_broken"),
        (lambda folder: edit(folder / "config.json", vocab_size=7), "model_broken"),
        (lambda folder: edit(folder / "config.json", model_type="of-tomorrow"), "model_broken"),
        (lambda folder: edit(folder / "1_Pooling/config.json", embedding_dimension=31), "model_broken"),
    ],
    ids=[
        "no weights",
        "no tokenizer",
        "weights cut off",
        "a weight not a number",
        "tokenizer empty",
        "layer missing",
        "layer of another size",
        "vocabulary of another size",
        "type unknown",
        "dimensions of another size",
    ],
)
def test_a_broken_folder_is_a_clear_error(folder: Path, spoil: Callable[[Path], None], code: str) -> None:
    spoil(folder)
    assert refusal(folder) == code


def test_a_tokenizer_of_a_larger_model_is_refused(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"][:7].clone()
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    edit(folder / "config.json", vocab_size=7)
    with pytest.raises(Misconfigured, match="its tokenizer knows"):
        load(folder)


def test_weights_in_several_files_are_read_and_none_may_be_missing(sound: Path, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    AutoModel.from_pretrained(sound).save_pretrained(folder, max_shard_size="20KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    whole, parts = load(sound), load(folder)
    np.testing.assert_array_equal(parts.encode(probes(parts)), whole.encode(probes(whole)))
    shards[1].unlink()
    assert refusal(folder) == "model_broken"


def test_a_tokenizer_that_wants_lower_case_gets_it(folder: Path) -> None:
    plain = load(folder)
    edit(folder / "sentence_bert_config.json", do_lower_case=True)
    lower = load(folder)
    assert lower.tokenize(["WORD"], InputType.QUERY) == plain.tokenize(["word"], InputType.QUERY)
    assert plain.tokenize(["WORD"], InputType.QUERY) != plain.tokenize(["word"], InputType.QUERY)


def gpu_is_full() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory.")


def cpu_is_full() -> None:
    torch.empty(2**60, dtype=torch.uint8)


def limit(encoder: TorchEncoder, tokens: int, fail: Callable[[], None]) -> list[tuple[int, ...]]:
    """Makes calls of more than so many padded tokens `fail`; gives the shapes of all calls."""
    shapes: list[tuple[int, ...]] = []

    def before(model: Any, args: Any, kwargs: Any) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))
        if kwargs["input_ids"].numel() > tokens:
            fail()

    encoder._model.register_forward_pre_hook(before, with_kwargs=True)
    return shapes


@pytest.mark.parametrize("fail", [gpu_is_full, cpu_is_full])
def test_a_batch_that_does_not_fit_into_memory_is_halved(sound: Path, fail: Callable[[], None]) -> None:
    encoder = load(sound)
    tokens = encoder.tokenize([f"text number {number}" for number in range(7)], InputType.DOCUMENT)
    expected: Vectors = encoder.encode(tokens)
    length = len(tokens[0])
    shapes = limit(encoder, 2 * length, fail)
    with capture_logs() as logs:
        np.testing.assert_allclose(encoder.encode(tokens), expected, atol=1e-6)
    assert [texts for texts, _ in shapes] == [7, 3, 1, 2, 4, 2, 2]
    assert [(entry["event"], entry["texts"], entry["tokens"]) for entry in logs] == [
        ("out_of_memory", texts, texts * length) for texts in (7, 3, 4)
    ]


def test_a_text_that_does_not_fit_alone_is_an_outage_and_no_fault_of_the_text(sound: Path) -> None:
    encoder = load(sound)
    limit(encoder, 20, gpu_is_full)
    short, long = encoder.tokenize(["short", "a text of more than twenty letters"], InputType.DOCUMENT)
    with pytest.raises(Unavailable) as full:
        encoder.encode([short, long])
    assert full.value.code == "out_of_memory"
    assert encoder.encode([short]).shape == (1, 32)


def test_another_failure_of_the_model_is_not_taken_for_one_of_memory(sound: Path) -> None:
    def fail() -> None:
        raise RuntimeError("something else")

    encoder = load(sound)
    shapes = limit(encoder, 0, fail)
    with pytest.raises(RuntimeError, match="something else"):
        encoder.encode(probes(encoder))
    assert len(shapes) == 1
