"""Buffers belong to one device, moving invalidates, and closing names whoever still holds one."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.types import BOOL, F32, I64, U8
from rlx_edge.runtime.buffers import DeviceContext, HostStorage, TensorBuffer, host_context
from rlx_edge.runtime.units import NullUnit

# covers R22


def make(context: DeviceContext, name: str = "x", holder: str = "test") -> TensorBuffer:
    return context.allocate(F32, (2, 3), name=name, holder=holder)


def test_a_view_is_the_tensor_itself() -> None:
    context = host_context()
    buffer = make(context)
    buffer.view()[:] = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert buffer.view()[1, 2] == 5
    assert buffer.view().dtype == np.float32
    assert buffer.view().ctypes.data % 64 == 0
    assert (buffer.device, buffer.nbytes, buffer.handles) == ("host", 24, 1)
    buffer.release()
    context.close()


@pytest.mark.parametrize("dtype", [BOOL, I64, U8])
def test_rank_zero(dtype: object) -> None:
    context = host_context()
    buffer = context.allocate(dtype, (), name="s", holder="test")  # type: ignore[arg-type]
    assert buffer.view().shape == ()
    buffer.release()
    context.close()


def test_moving_invalidates_the_source() -> None:
    here, there = host_context(), DeviceContext("host:1", HostStorage)
    source, target = make(here), make(there, "y")
    source.view()[:] = 7
    assert source.move(target) is target
    assert (target.view() == 7).all()
    for use in (source.view, source.release, lambda: source.share("other"), lambda: source.address):
        with pytest.raises(DeviceError) as caught:
            use()
        assert caught.value.code == "buffer.moved"
    assert here.leaks() == []
    assert [leak.name for leak in there.leaks()] == ["y"]


def test_a_shared_buffer_cannot_be_moved() -> None:
    context = host_context()
    source, target = make(context), make(context, "y")
    other = source.share("reader")
    with pytest.raises(DeviceError) as caught:
        source.move(target)
    assert caught.value.code == "buffer.shared"
    assert "test, reader" in str(caught.value)
    source.view()[:] = 3
    other.release()
    assert (source.move(target).view() == 3).all()


def test_moving_needs_the_same_type_and_another_place() -> None:
    context = host_context()
    source = make(context)
    other = context.allocate(F32, (3, 2), name="y", holder="test")
    with pytest.raises(DeviceError, match=r"found f32\[3, 2\]; allowed: f32\[2, 3\]"):
        source.move(other)
    with pytest.raises(DeviceError, match="onto itself"):
        source.move(source)
    assert source.view().shape == (2, 3)


def test_storage_goes_back_with_the_last_handle() -> None:
    context = host_context()
    first = make(context)
    second = first.share("second")
    view = second.view()
    first.release()
    assert second.handles == 1
    second.view()[:] = 1
    assert (view == 1).all()
    second.release()
    with pytest.raises(DeviceError) as caught:
        second.view()
    assert caught.value.code == "buffer.released"
    with pytest.raises(DeviceError):
        second.release()
    context.close()


def test_closing_names_every_holder() -> None:
    context = host_context()
    make(context, "weights", "session a")
    kept = make(context, "logits", "user").share("plot")
    with pytest.raises(DeviceError) as caught:
        context.close()
    assert caught.value.code == "device.leak"
    assert [leak.holder for leak in caught.value.found] == ["session a", "user", "plot"]  # type: ignore[attr-defined]
    for name in ("session a holds weights (24 bytes", "user holds logits", "plot holds logits"):
        assert name in str(caught.value)
    with pytest.raises(DeviceError):
        kept.view()
    context.close()
    with pytest.raises(DeviceError) as caught:
        make(context)
    assert caught.value.code == "device.closed"


def test_planned_devices_adopt_places_and_check_them() -> None:
    unit = NullUnit()
    unit.grow(64)
    context = DeviceContext("null:0")
    with pytest.raises(DeviceError) as caught:
        make(context)
    assert caught.value.code == "buffer.allocate"
    buffer = context.adopt(unit, 40, F32, (2, 3), name="x", holder="plan")
    buffer.view()[:] = 2
    assert unit.bytes_at(40, 24).view("<f4").tolist() == [2.0] * 6
    with pytest.raises(DeviceError) as caught:
        context.adopt(unit, 48, F32, (2, 3), name="y", holder="plan")
    assert caught.value.code == "memory.range"
    buffer.release()
    context.close()
