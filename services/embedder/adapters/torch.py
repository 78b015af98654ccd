import copy
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

# Read when the libraries below are imported: nothing here may ever reach for the network, the tokenizer's own
# threads would only compete with those of the model, and threads that spin while they wait for one another make
# it several times slower as soon as other processes want the same cores.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

from kbmesh.errors import Misconfigured, Unavailable
from services.embedder.adapters.model_folder import Pooling, read_model_folder
from services.embedder.adapters.model_loading import load_model, load_tokenizer
from services.embedder.domain.encoding import (
    BadVector,
    InputType,
    Tokens,
    Vectors,
    check_vectors,
    shortest_first,
)

log = structlog.get_logger(__name__)

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]
OfWeights = Literal["fp32", "bf16", "fp16"]

MIN_COSINE: Final = 0.9995
PROBE_ROUNDS: Final = 3
PROBE_TEXTS: Final = (
    "How often are the nightly exports checked?",
    "The retention policy keeps raw events for ninety days and monthly aggregates for seven years.",
    "Every table in the reporting schema has a named owner. The owner answers for the meaning of its columns, "
    "approves changes, and is told when a check fails. Tables whose owner has left are listed each Monday, and "
    "a table without an owner for four weeks is made read-only until somebody takes it over.",
    "Orders arrive from the shop, from partners and by telephone. The first two are written by machines and are "
    "complete; the third is typed by people and is corrected later, often more than once. For that reason the "
    "revenue of a day is final only on the tenth day after it. Reports that need a figure sooner use the "
    "estimate, which adds the average correction of the last eight weeks, and say so in their title. Nobody "
    "should compare an estimate with a final figure: the difference between them is no growth and no decline. "
    "The finance team publishes both side by side, together with the share of orders still open, so that a "
    "reader can judge for himself how far the estimate carries.",
)
"""Ordinary sentences from 10 to 150 tokens, to compare speed and vectors of two precisions."""


class TorchEncoder:
    """A sentence-transformers model run by torch. Create it in the thread that it encodes in."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
        threads: int | None = None,
    ) -> None:
        """Loads and warms the model; takes seconds.

        Args:
            name: what the model is called where it was published, for prompts that its files lack; None: the name
                of the folder.
            threads: for one matrix operation; None leaves it to torch (one per core, or OMP_NUM_THREADS).

        Raises:
            Misconfigured: no such model, a broken or unsafe one, one of an unsupported kind, or a device that is
                not there.
            Unavailable: no memory for a single text (out_of_memory).
        """
        if threads is not None:
            torch.set_num_threads(threads)
        self._folder = read_model_folder(folder, name=name)
        self._device = _pick_device(device)
        self._tokenizer = load_tokenizer(self._folder)
        self._model = load_model(self._folder, tokens=self._tokenizer.get_vocab_size()).to(self._device)
        self.precision = self._pick_precision(precision)
        """Of the weights; pooling and vectors are fp32 always."""
        self._warm_up()

    @property
    def dimensions(self) -> int:
        return self._folder.dimensions

    @property
    def max_tokens(self) -> int:
        """Special tokens included; the rest of a text is left unread."""
        return self._folder.max_tokens

    def tokenize(self, texts: Sequence[str], input_type: InputType) -> list[Tokens]:
        prompt = self._folder.prompts.get(input_type, "")
        # The fast one leaves out where in the text a token stands, and nothing else.
        encodings = self._tokenizer.encode_batch_fast([prompt + text for text in texts])
        return [Tokens(tuple(encoding.ids), bool(encoding.overflowing)) for encoding in encodings]

    def encode(self, tokens: Sequence[Tokens]) -> Vectors:
        """Halves what does not fit into memory, and goes on.

        Raises:
            Unavailable: one text alone does not fit (out_of_memory).
        """
        try:
            return self._forward(self._model, tokens)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
        # Not before the exception is gone: its traceback holds what the attempt has allocated.
        torch.cuda.empty_cache()
        log.warning("out_of_memory", texts=len(tokens), tokens=sum(map(len, tokens)), device=str(self._device))
        if len(tokens) == 1:
            raise Unavailable(
                f"the memory of {self._device} does not hold one text of {len(tokens[0])} tokens",
                code="out_of_memory",
            )
        middle = len(tokens) // 2
        return np.concatenate([self.encode(tokens[:middle]), self.encode(tokens[middle:])])

    @torch.inference_mode()
    def _forward(self, model: Any, tokens: Sequence[Tokens]) -> Vectors:
        lengths = np.fromiter(map(len, tokens), np.int64)
        # Padding is on the right, whatever the tokenizer's file says: no token before it sees it or moves for it.
        ids = np.full((len(tokens), lengths.max()), self._folder.pad_token_id, np.int64)
        for row, text in zip(ids, tokens, strict=True):
            row[: len(text)] = text.ids
        mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
        hidden = model(
            input_ids=self._on_device(ids), attention_mask=self._on_device(mask)
        ).last_hidden_state.float()
        weights = self._on_device(_pooling_weights(self._folder.pooling, lengths, ids.shape[1]))
        pooled = (weights.unsqueeze(1) @ hidden).squeeze(1)
        vectors: Vectors = torch.nn.functional.normalize(pooled, dim=1).cpu().numpy()
        return vectors

    def _on_device(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if self._device.type == "cuda":
            # Pinned memory is copied while both sides go on with other work.
            return tensor.pin_memory().to(self._device, non_blocking=True)
        return tensor

    def _pick_precision(self, wanted: Precision) -> OfWeights:
        on_gpu = self._device.type == "cuda"
        if wanted == "fp32" or (wanted == "auto" and not on_gpu and not _cpu_multiplies_bf16()):
            log.info("precision_chosen", precision="fp32", device=str(self._device))
            return "fp32"
        chosen: OfWeights
        if on_gpu:
            bf16 = wanted == "bf16" or torch.cuda.is_bf16_supported(including_emulation=False)
            chosen = "bf16" if bf16 else "fp16"
            self._model = self._model.to(torch.bfloat16 if bf16 else torch.float16)
            log.info("precision_chosen", precision=chosen, device=str(self._device))
            return chosen
        candidate = copy.deepcopy(self._model).to(torch.bfloat16)
        cosine, fp32_ms, bf16_ms = self._compare(candidate)
        chosen = "bf16" if wanted == "bf16" or (bf16_ms < fp32_ms and cosine >= MIN_COSINE) else "fp32"
        if chosen == "bf16":
            self._model = candidate
        log.info(
            "precision_chosen",
            precision=chosen,
            device="cpu",
            threads=torch.get_num_threads(),
            fp32_ms=round(fp32_ms, 1),
            bf16_ms=round(bf16_ms, 1),
            min_cosine=round(cosine, 6),
        )
        return chosen

    def _warm_up(self) -> None:
        vectors = self.encode(self.tokenize(PROBE_TEXTS, InputType.DOCUMENT))
        try:
            check_vectors(vectors, dimensions=self.dimensions)
        except BadVector as error:
            raise Misconfigured(
                f"the model in {self._folder.path} does not work: {error.detail}", code="model_broken"
            ) from error

    def _compare(self, candidate: Any) -> tuple[float, float, float]:
        """Smallest cosine of `candidate` to the loaded model, and milliseconds of each, undisturbed by others."""
        tokens = self.tokenize(PROBE_TEXTS, InputType.DOCUMENT)
        slices = [[tokens[index] for index in indices] for indices in shortest_first(tokens, 1)]
        milliseconds: dict[int, list[float]] = {0: [], 1: []}
        cosines: list[float] = []
        for warmed in range(PROBE_ROUNDS + 1):
            rows = []
            for which, model in enumerate((self._model, candidate)):
                started = time.perf_counter()
                rows.append(np.concatenate([self._forward(model, part) for part in slices]))
                if warmed:
                    milliseconds[which].append((time.perf_counter() - started) * 1000)
            cosines.append(float((rows[0] * rows[1]).sum(1).min()))
        return min(cosines), min(milliseconds[0]), min(milliseconds[1])


def _pick_device(wanted: Device) -> torch.device:
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise Misconfigured("device cuda is asked for, but torch sees no GPU", code="device_missing")
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def _cpu_multiplies_bf16() -> bool:
    features = torch.cpu.get_capabilities()
    return any(features.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


def _pooling_weights(pooling: Pooling, lengths: NDArray[np.int64], longest: int) -> NDArray[np.float32]:
    """What each token counts for in the vector of its text, shape (texts, longest); each row sums to 1, that of
    a text without tokens to 0."""
    positions = np.arange(longest)
    if pooling == "mean":
        weights = (positions < lengths[:, None]) / np.maximum(lengths, 1)[:, None]
    else:
        chosen = np.zeros_like(lengths) if pooling == "cls" else lengths - 1
        weights = positions == chosen[:, None]
    return weights.astype(np.float32)


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
