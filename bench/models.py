"""The stored models against onnxruntime in this process, one thread each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench.timing import Times, interleave
from rlx_edge import InferenceSession
from rlx_edge.model_store import model_path
from tests import sample_inputs
from tests.oracles import Oracle, assert_close


@dataclass(frozen=True)
class ModelResult:
    """One model at one input: our times and onnxruntime's, in the same rounds."""

    name: str
    ours: Times
    onnxruntime: Times

    @property
    def ratio(self) -> float:
        """How many times as fast as onnxruntime: above 1 we are the faster one (medians)."""
        return self.onnxruntime.median / self.ours.median


SUBJECTS = {
    "digits, batch 1": ("digits", partial(sample_inputs.digits, 0, 1)),
    "digits, batch 64": ("digits", partial(sample_inputs.digits, 0, 64)),
    "orientation, batch 1": ("orientation", partial(sample_inputs.orientation, 0, 1)),
    "ppocr_rec, width 320": ("ppocr_rec", partial(sample_inputs.ppocr_rec, 0, 1, 320)),
    "silero_vad, 16 kHz": ("silero_vad", partial(sample_inputs.silero_vad, 0, 1, 16000)),
}


def measure_models(rounds: int, device: str = "wasm:0") -> list[ModelResult]:
    """Copies of inputs and outputs are part of the time on both sides."""
    results = []
    for title, (name, feeds_of) in SUBJECTS.items():
        path = model_path(name)
        session, oracle = InferenceSession(str(path), providers=[device]), Oracle(path)
        feeds = feeds_of()
        names = [output.name for output in session.get_outputs()]
        assert_close(dict(zip(names, session.run(None, feeds), strict=True)), oracle.run(feeds))
        ours, theirs = interleave(
            [partial(session.run, None, feeds), partial(oracle.session.run, None, feeds)], rounds
        )
        results.append(ModelResult(title, ours, theirs))
    return results
