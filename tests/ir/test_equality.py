"""The path of the first mismatch, and what digests depend on."""

# covers R10, R11

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.ir.core import Binding, Guard, Module
from rlx_edge.ir.digest import bytes_digest, check_digest, module_digest
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.equality import differences, first_difference, structurally_equal
from rlx_edge.ir.errors import DigestError
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from tests.strategies import modules

TEXT = """rlx.module version = "1.0"

func @net(%x: f32[n, 4], %k: i64[2]) -> (f32[n, 4]) {
  bind rate = %k[0]
  guard rate == 16000
  %c = tensor::splat() { value = 0.1 } : f32[]
  %a = rlxc::leaky_relu(%x) { alpha = 0.5 } : f32[n, 4]
  %b = rlxc::fused_relu_add(%a, %c) { epilogue = "acc + %c[]" } : f32[n, 4]
  %y = rlxc::reshape(%b) { shape = [n, 4] } : f32[n, 4]
  return %y
}
"""


def module(old: str = "", new: str = "") -> Module:
    assert old in TEXT
    return parse_module(TEXT.replace(old, new) if old else TEXT)


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("@net", "@other", "name: net and other"),
        ("%x: f32[n, 4]", "%x: f32[n, 2 * 2]", None),
        ("%k: i64[2]", "%k: i32[2]", "parameter 1: %k: i64[2] and %k: i32[2]"),
        (", %k: i64[2]) ->", ", %k: i64[2], %z: f32[]) ->", "number of parameters: 2 and 3"),
        ("%k[0]", "%k[1]", "binding 0: bind rate = %k[0] and bind rate = %k[1]"),
        ("16000", "8000", "guard 0: guard rate == 16000 and guard rate == 8000"),
        ("0.1 }", "0.2 }", "operation 0 (%c), attribute value: 0.1 and 0.2"),
        ("0.1 }", "0.100000001 }", None),
        ("0.5", "0.25", "operation 1 (%a), attribute alpha: 0.5 and 0.25"),
        (
            "acc + %c",
            "acc - %c",
            'operation 2 (%b), attribute epilogue: "acc + %c[]" and "acc - %c[]"',
        ),
        (
            "rlxc::reshape(%b) { shape",
            "rlxc::expand(%b) { shape",
            "operation 3 (%y), operator: rlxc::reshape and rlxc::expand",
        ),
        ("reshape(%b)", "reshape(%a)", "operation 3 (%y), operand 0: %b and %a"),
        (
            " { shape = [n, 4] }",
            ' { shape = [n, 4], phase = "compile" }',
            "operation 3 (%y), attribute phase: missing in the first",
        ),
        ("%y", "%z", "operation 3 (%y), result 0: %y: f32[n, 4] and %z: f32[n, 4]"),
        ("return %y", "return %a", "output 0: %y: f32[n, 4] and %a: f32[n, 4]"),
        ("-> (f32", "-> (y: f32", "number of output names: 0 and 1"),
    ],
)
def test_first_difference(old: str, new: str, path: str | None) -> None:
    changed = module(old, new)
    assert first_difference(module(), changed) == path
    assert structurally_equal(module(), changed) == (path is None)
    assert (module_digest(module()) == module_digest(changed)) == (path is None)


def test_a_missing_operation_is_named() -> None:
    shorter = module()
    shorter.function.ops.pop()
    shorter.function.returns = [shorter.function.ops[-1].result]
    assert "operation 3: %y = rlxc::reshape(%b) is missing in the second" in list(
        differences(module(), shorter)
    )
    assert "operation 3: %y = rlxc::reshape(%b) is missing in the first" in list(
        differences(shorter, module())
    )


def test_an_attribute_may_be_missing_in_the_second() -> None:
    found = first_difference(module("4] }", '4], phase = "execute" }'), module())
    assert found == "operation 3 (%y), attribute phase: missing in the second"


def test_version_counts() -> None:
    other = module()
    other.version = "2.0"
    assert first_difference(module(), other) == "version: 1.0 and 2.0"


def test_a_number_and_the_same_dim_are_one_value() -> None:
    other = module()
    other.function.ops[3].attrs["shape"] = (as_dim("n"), 4)  # type: ignore[assignment]
    assert first_difference(module(), other) is None


_EDITS: tuple[Callable[[Module], object], ...] = (
    lambda module: module.function.guards.append(Guard(as_dim(1), "<=", as_dim(2))),
    lambda module: module.function.bindings.append(Binding("zz", "k", 0)),
    lambda module: module.function.ops.pop(),
    lambda module: module.function.returns.append(module.function.params[0]),
    lambda module: setattr(module.function, "name", module.function.name + "_"),
    lambda module: module.function.ops[0].attrs.update(border=(9, 9, 9, 9)),
)


@given(modules(), st.sampled_from(_EDITS))
def test_every_edit_changes_the_digest_and_has_a_path(
    edited: Module, edit: Callable[[Module], object]
) -> None:
    before = parse_module(print_module(edited))
    edit(edited)
    assert first_difference(before, edited) is not None
    assert module_digest(before) != module_digest(edited)


def test_comments_and_layout_do_not_count() -> None:
    loose = TEXT.replace("  %", "\n   // words\n\t%").replace(", ", " ,  ").replace("\n", "\r\n")
    assert module_digest(parse_module(loose)) == module_digest(module())


def test_the_digest_is_pinned() -> None:
    """The same text has the same digest in every version and on every machine."""
    expected = "sha256:69ff5f0d02d1e637"
    assert module_digest(module()).startswith(expected)
    assert bytes_digest(b"") == (
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    assert bytes_digest([b"a", b"b"]) == bytes_digest(b"ab")


def test_a_mismatch_names_both_digests() -> None:
    check_digest("text and program", "sha256:1", "sha256:1")
    with pytest.raises(DigestError) as caught:
        check_digest("text and program", "sha256:1", "sha256:2", where="net.rlx")
    assert str(caught.value) == (
        "net.rlx: text and program do not belong together; found sha256:2; allowed: sha256:1"
    )


def test_locations_are_comments_on_request() -> None:
    parsed = parse_module(TEXT, "net.rlx")
    text = print_module(parsed, locations=True)
    assert "  %c = tensor::splat() { value = 0.1 } : f32[]  // net.rlx:6:3\n" in text
    assert print_module(parse_module(text)) == TEXT
