"""cuDNN: convolutions of images whose channels lie together, by NVIDIA's Python front end.

``nvidia-cudnn-frontend`` (the module ``cudnn``) takes pointers, so nothing but CuPy is needed
beside it. It is loaded, and the library with it, when a program has a routine for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any

from rlx_edge.gpu_workers.cuda.library import reason
from rlx_edge.gpu_workers.cuda.memory import DeviceMemory
from rlx_edge.ir.attributes import FP16, RELAXED
from rlx_edge.ir.errors import DeviceError, RlxError

EXTRA = "pip install 'rlx-edge[cudnn]'"
WORKSPACE = 64 << 20
"""Bytes beyond which a plan is no candidate."""
LANES = {FP16: 8}
"""Channels of 16 bytes, else 4: groups are padded to them with +0."""
EXCLUDED = (
    *("REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC", "FFT"),
    *("WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13"),
)
"""Numerical notes of plans that do more than round operands and order sums."""
EXCLUDED_F32 = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
"""Further ones where operands are f32."""


@dataclass(frozen=True, slots=True)
class Routine:
    """``cudnn:tf32:3x3:2x2:1x1:2:5``: precision, taps, strides, dilations, which address of a
    record is that of the weights, how many it has. The last one is that of scratch memory."""

    precision: str
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    weights: int
    slots: int


def parse_routine(text: str) -> Routine:
    """What stands in an entry of a program."""
    _, precision, *pairs, weights, slots = text.split(":")
    numbers = [tuple(int(part) for part in pair.split("x")) for pair in pairs]
    taps, stride, dilation = ((row, column) for row, column in numbers)
    return Routine(precision, taps, stride, dilation, int(weights), int(slots))


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a result, and the channels of its groups."""

    groups: int
    images: int
    height: int
    width: int
    n: int
    channels: int


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution. Input, weights and result have their channels together: image, y, x,
    channel, and output, row, column, channel."""

    routine: Routine
    shape: Shape

    @property
    def input(self) -> tuple[int, int, int, int]:
        """Images, channels, height, width: of the pixels that taps reach."""
        height, width = (
            (size - 1) * stride + (taps - 1) * dilation + 1
            for size, stride, taps, dilation in zip(
                (self.shape.height, self.shape.width),
                self.routine.stride,
                self.routine.taps,
                self.routine.dilation,
                strict=True,
            )
        )
        return self.shape.images, self.shape.groups * self._wide(self.shape.channels), height, width

    @property
    def weights(self) -> tuple[int, int, int, int]:
        """Outputs, channels of a group, rows, columns."""
        outputs = self.shape.groups * self._wide(self.shape.n)
        return outputs, self._wide(self.shape.channels), *self.routine.taps

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Images, channels, height, width."""
        return self.shape.images, self.weights[0], self.shape.height, self.shape.width

    @property
    def result_bytes(self) -> int:
        """Of the result in f32."""
        return 4 * prod(self.result)

    def _wide(self, channels: int) -> int:
        lanes = LANES.get(self.routine.precision, 4)
        return -(-channels // lanes) * lanes


class Dnn:
    """A handle on one stream, and a plan for each convolution that was asked for; the stream's
    device is current at every call.

    ``DeviceError`` ``cuda.library`` where cuDNN is absent, refuses, or has no plan.
    """

    def __init__(self, device: str, stream: int) -> None:
        self._cudnn = load()
        self._plans: dict[Convolution, Any | DeviceError] = {}
        self._device = device
        self._workspace: DeviceMemory | None = None
        refusal = self._cudnn.cudnnGraphNotSupportedError
        self._errors = (RuntimeError, ValueError, NotImplementedError, ImportError, refusal)
        try:
            self._handle = self._cudnn.create_handle()
            self._cudnn.set_stream(self._handle, stream)
        except self._errors as error:
            raise _failed(reason(error)) from None

    def convolve(self, wanted: Convolution, pointers: tuple[int, int, int]) -> None:
        """``pointers`` are those of result, input and weights."""
        plan = self._plans.get(wanted)
        if plan is None:
            plan = self._plans[wanted] = self._planned(wanted)
        if isinstance(plan, DeviceError):
            raise plan
        result, image, weights = pointers
        places = {RESULT: result, IMAGE: image, WEIGHTS: weights}
        try:
            plan.execute(places, self._memory(), handle=self._handle)
        except self._errors as error:
            raise _failed(reason(error)) from None

    def close(self) -> None:
        """After everything in the stream."""
        self._plans.clear()
        if self._workspace is not None:
            self._workspace.release()
        try:
            self._cudnn.destroy_handle(self._handle)
        except self._errors as error:
            raise _failed(reason(error)) from None

    def _planned(self, wanted: Convolution) -> Any | DeviceError:
        try:
            return self._plan(wanted)
        except self._errors as error:
            return _failed(reason(error))  # asked for again, the answer is the same

    def _plan(self, wanted: Convolution) -> Any:
        cudnn, routine = self._cudnn, wanted.routine
        full = cudnn.data_type.FLOAT
        operand = cudnn.data_type.HALF if routine.precision == FP16 else full
        graph = cudnn.pygraph(
            io_data_type=operand,
            intermediate_data_type=full,
            compute_data_type=full,
            handle=self._handle,
        )
        image = graph.tensor(**_tensor("image", IMAGE, wanted.input), data_type=operand)
        weights = graph.tensor(**_tensor("weights", WEIGHTS, wanted.weights), data_type=operand)
        result = graph.conv_fprop(
            image=image,
            weight=weights,
            pre_padding=[0, 0],
            post_padding=[0, 0],
            stride=list(routine.stride),
            dilation=list(routine.dilation),
            compute_data_type=full,
        )
        told = _tensor("result", RESULT, wanted.result)
        result.set_output(True).set_data_type(full).set_uid(RESULT)
        result.set_dim(told["dim"]).set_stride(told["stride"])
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        excluded = (*EXCLUDED, *(EXCLUDED_F32 if routine.precision == RELAXED else ()))
        graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in excluded])
        graph.deselect_workspace_greater_than(WORKSPACE)
        graph.check_support()
        graph.build_plans()
        return graph

    def _memory(self) -> int:
        if self._workspace is None:
            self._workspace = DeviceMemory(self._device, WORKSPACE, "cuDNN")
        return self._workspace.pointer


IMAGE, WEIGHTS, RESULT = 1, 2, 3
"""Names of the tensors of a graph."""


def _tensor(name: str, uid: int, sizes: tuple[int, int, int, int]) -> Mapping[str, Any]:
    """A tensor of (outer, channels, rows, columns) whose channels lie together."""
    outer, channels, rows, columns = sizes
    strides = [rows * columns * channels, 1, columns * channels, channels]
    return {"name": name, "uid": uid, "dim": [outer, channels, rows, columns], "stride": strides}


def load() -> Any:
    """The front end with its library; ``DeviceError`` ``cuda.library`` where one is absent."""
    try:
        cudnn = import_module("cudnn")
        cudnn.backend_version()
    except (ImportError, OSError, RuntimeError, AssertionError, AttributeError) as error:
        raise _failed(reason(error)) from None
    return cudnn


def version() -> str:
    """Of library and front end, ``""`` where cuDNN cannot be used."""
    try:
        cudnn = load()
    except RlxError:
        return ""
    return f"{cudnn.backend_version()} {cudnn.__version__}"


def _failed(found: str) -> DeviceError:
    return DeviceError("cuda.library", "cuDNN cannot be used", found=found, allowed=EXTRA)
