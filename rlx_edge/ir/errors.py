"""The one error hierarchy of rlx-edge.

    RlxError
    ├── ParseError          text IR that does not follow the grammar (carries a span)
    ├── VerifyError         well-formed IR that breaks a rule (carries all findings)
    ├── ModelError          an ONNX file that cannot be read or imported
    ├── InputError          a feed with the wrong name, shape, dtype or value
    ├── GuardError          a shape outside what a compiled module covers
    ├── DigestError         IR, kernels, plan or weights that do not belong together
    ├── DeviceError         an unknown, absent or failed device
    ├── LimitError          memory, size or time beyond what is allowed
    └── PeerError           what a peer sent or did breaks the protocol, or it may not ask

Every message says what happened, what was found, what is allowed and where. ``code`` is stable
and is what tests, the command line and JavaScript look at; ``str(error)`` is for people.
"""

from __future__ import annotations


class RlxError(Exception):
    """A failure that the user can act on.

    ``code`` names the rule (``"input.shape"``), ``what`` is one sentence, ``found`` and
    ``allowed`` are the offending and the legal values, ``where`` is a location such as
    ``model.onnx: node 'Conv_3'`` or ``file.rlx:5:34``. ``excerpt`` holds further lines for people:
    the source line with carets, or the operations around the culprit; ``""`` where there are none.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        found: object = None,
        allowed: object = None,
        where: str | None = None,
        hint: str | None = None,
        excerpt: str = "",
    ) -> None:
        self.code = code
        self.what = what
        self.found = found
        self.allowed = allowed
        self.where = where
        self.hint = hint
        self.excerpt = excerpt
        super().__init__(self.render())

    def render(self) -> str:
        """One line: ``where: what; found …; allowed …; hint``."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.found is not None:
            text += f"; found {_show(self.found)}"
        if self.allowed is not None:
            text += f"; allowed: {_show(self.allowed)}"
        if self.hint is not None:
            text += f"; {self.hint}"
        return text


class ParseError(RlxError):
    """Text IR that does not follow the grammar."""


class VerifyError(RlxError):
    """IR that breaks rules of the language; ``findings`` are all of them, itself the first."""

    findings: tuple[VerifyError, ...] = ()


class ModelError(RlxError):
    """An ONNX file that cannot be read or imported."""


class InputError(RlxError):
    """A feed with the wrong name, shape, dtype or value."""


class GuardError(RlxError):
    """Sizes or values outside what a compiled module covers."""


class DigestError(RlxError):
    """IR, kernels, plan or weights that do not belong together."""


class DeviceError(RlxError):
    """An unknown, absent or failed device."""


class LimitError(RlxError):
    """Memory, size or time beyond what is allowed."""


class PeerError(RlxError):
    """What a peer sent or did breaks the protocol, or it is not allowed to ask."""


def _show(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return str(value)
