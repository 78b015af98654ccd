import copy
import os
import statistics
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
from tokenizers import Tokenizer
from transformers import AutoModel
from transformers.utils import logging as transformers_logging

from kbmesh.errors import Misconfigured
from services.embedder.adapters.model_folder import ModelFolder, read_model_folder
from services.embedder.domain.encoding import InputType, Tokens, Vectors, shortest_first

log = structlog.get_logger(__name__)

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]

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
    """A sentence-transformers model run by torch. Create and use it in one and the same thread."""

    def __init__(
        self, folder: Path, *, device: Device = "auto", precision: Precision = "auto", threads: int | None = None
    ) -> None:
        """Loads and warms the model; takes seconds.

        Args:
            threads: for one matrix operation; None leaves it to torch (one per core, or OMP_NUM_THREADS).

        Raises:
            Misconfigured: no such model, one of an unsupported kind, or a device that is not there.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        self._folder = read_model_folder(folder)
        self._device = _pick_device(device)
        self._tokenizer = _load_tokenizer(self._folder)
        self._model = _load_model(self._folder).to(self._device)
        self.precision = self._pick_precision(precision)
        """Of the weights: "fp32" or "bf16"; pooling and vectors are fp32 always."""

    @property
    def dimensions(self) -> int:
        return self._folder.dimensions

    @property
    def max_tokens(self) -> int:
        """Special tokens included; the rest of a text is left unread."""
        return self._folder.max_tokens

    def tokenize(self, texts: Sequence[str], input_type: InputType) -> list[Tokens]:
        prompt = self._folder.prompts.get(input_type, "")
        encodings = self._tokenizer.encode_batch([prompt + text for text in texts])
        return [Tokens(tuple(encoding.ids), bool(encoding.overflowing)) for encoding in encodings]

    def encode(self, tokens: Sequence[Tokens]) -> Vectors:
        return self._forward(self._model, tokens)

    @torch.inference_mode()
    def _forward(self, model: Any, tokens: Sequence[Tokens]) -> Vectors:
        lengths = np.fromiter(map(len, tokens), np.int64)
        ids = np.full((len(tokens), lengths.max()), self._folder.pad_token_id, np.int64)
        for row, text in zip(ids, tokens, strict=True):
            row[: len(text)] = text.ids
        input_ids = torch.from_numpy(ids).to(self._device)
        mask = torch.from_numpy(np.arange(ids.shape[1]) < lengths[:, None]).to(self._device)
        hidden = model(input_ids=input_ids, attention_mask=mask.long()).last_hidden_state.float()
        if self._folder.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            weights = mask.unsqueeze(-1).float()
            pooled = (hidden * weights).sum(1) / weights.sum(1)
        vectors: Vectors = torch.nn.functional.normalize(pooled, dim=1).cpu().numpy()
        return vectors

    def _pick_precision(self, wanted: Precision) -> Literal["fp32", "bf16"]:
        if self._device.type == "cuda":
            chosen: Literal["fp32", "bf16"] = "fp32" if wanted == "fp32" else "bf16"
            if chosen == "bf16":
                self._model = self._model.to(torch.bfloat16)
            self.encode(self.tokenize(PROBE_TEXTS, InputType.DOCUMENT))
            log.info("precision_chosen", precision=chosen, device=str(self._device))
            return chosen
        if wanted == "fp32" or (wanted == "auto" and not _cpu_multiplies_bf16()):
            self.encode(self.tokenize(PROBE_TEXTS, InputType.DOCUMENT))
            log.info("precision_chosen", precision="fp32", device="cpu")
            return "fp32"
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

    def _compare(self, candidate: Any) -> tuple[float, float, float]:
        """Smallest cosine of `candidate` to the loaded model, and median milliseconds of each."""
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
        return min(cosines), statistics.median(milliseconds[0]), statistics.median(milliseconds[1])


def _pick_device(wanted: Device) -> torch.device:
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise Misconfigured("device cuda is asked for, but torch sees no GPU", code="device_missing")
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def _cpu_multiplies_bf16() -> bool:
    features = torch.cpu.get_capabilities()
    return any(features.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


def _load_tokenizer(folder: ModelFolder) -> Any:
    file = folder.path / "tokenizer.json"
    if not file.is_file():
        raise Misconfigured(f"the model in {folder.path} has no tokenizer.json", code="model_unsupported")
    tokenizer = Tokenizer.from_file(str(file))
    # The file may bring padding and a limit of its own, often 128 tokens.
    tokenizer.no_padding()
    tokenizer.enable_truncation(folder.max_tokens)
    return tokenizer


def _load_model(folder: ModelFolder) -> Any:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # transformers leaves it untyped
    try:
        model = AutoModel.from_pretrained(
            folder.path,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"the model in {folder.path} cannot be loaded: {error}", code="model_unsupported"
        ) from error
    return model.eval()
