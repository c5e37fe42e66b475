"""Device names and sets."""

# covers R2

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.ir.devices import KINDS, Device, DeviceSet, device_set, parse_device
from rlx_edge.ir.errors import DeviceError

DEVICES = st.builds(
    Device,
    st.sampled_from(KINDS),
    st.integers(0, 9999),
    st.one_of(st.just(""), st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)),
)


@given(DEVICES)
def test_a_name_reads_back(device: Device) -> None:
    assert parse_device(str(device)) == device


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wasm:0", Device("wasm", 0)),
        ("gpu:1", Device("cuda", 1)),
        ("gpu:0@box-2.lan", Device("cuda", 0, "box-2.lan")),
        ("cpu:0@gateway", Device("cpu", 0, "gateway")),
    ],
)
def test_names(text: str, expected: Device) -> None:
    assert parse_device(text) == expected


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("wasm", "device.name", ("'wasm'", "kind:index[@host]", "wasm:0")),
        ("wasm:", "device.name", ("kind:index",)),
        ("wasm:0@", "device.name", ("kind:index",)),
        ("wasm:-1", "device.name", ("kind:index",)),
        ("wasm:01", "device.name", ("leading zeros",)),
        ("wasm:10000", "device.name", ("9999",)),
        ("wasm:0@a b", "device.name", ("kind:index",)),
        ("Wasm:0", "device.kind", ("Wasm:0", "wasm, browser, cpu, cuda, vulkan")),
        ("abacus:0", "device.kind", ("abacus:0", "wasm, browser, cpu, cuda, vulkan")),
        ("webgpu:0", "device.reserved", ("webgpu", "reserved")),
        ("", "device.name", ("''",)),
    ],
)
def test_what_is_refused(text: str, code: str, words: tuple[str, ...]) -> None:
    with pytest.raises(DeviceError) as caught:
        parse_device(text, where="--device")
    assert caught.value.code == code
    assert str(caught.value).startswith("--device: ")
    for word in words:
        assert word in str(caught.value)


def test_a_set_keeps_its_order() -> None:
    found = device_set(["gpu:1", "cuda:0"])
    assert found == DeviceSet((Device("cuda", 1), Device("cuda", 0)))
    assert found.names() == ("cuda:1", "cuda:0")
    assert str(found) == "cuda:1, cuda:0"
    assert len(found) == 2
    assert Device("cuda", 0) in found
    assert [device.index for device in found] == [1, 0]


@pytest.mark.parametrize("names", [[], ["cuda:0", "gpu:0"]])
def test_a_set_is_not_empty_and_names_each_device_once(names: list[str]) -> None:
    with pytest.raises(DeviceError, match="names") as caught:
        device_set(names)
    assert caught.value.code == "device.set"
