"""How much one gateway gives to its clients, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Counts, bytes and seconds; bytes are of one client unless said otherwise."""

    clients: int = 32
    shards: int = 8
    runs: int = 4
    """Runs of one client that have begun or wait."""
    jobs: int = 64
    """Jobs of all clients that wait for one device."""
    ir_bytes: int = 4 << 20
    upload_bytes: int = 1 << 30
    """IR and weights."""
    tensor_bytes: int = 256 << 20
    """One tensor."""
    stored_bytes: int = 512 << 20
    """Tensors under way, in either direction."""
    outgoing_bytes: int = 32 << 20
    """Frames that wait for a client that does not read."""
    memory_bytes: int = 1 << 30
    """Linear memory of one shard."""
    hello_seconds: float = 5.0
    heartbeat_seconds: float = 2.0
    silence_seconds: float = 20.0
    """How long a client may say nothing; a page that computes answers late."""
    body_seconds: float = 60.0
    """The same while the body of a tensor is under way, and how long that body may stand still."""
    compile_seconds: float = 30.0
    """Of the processor, for one shard."""
    compile_bytes: int = 2 << 30
    """Address space of one compiler process."""
    compilers: int = 2
    """Compiler processes at a time, of all clients."""
    run_seconds: float = 60.0
    """Time in kernels of one step of a run."""

    def told(self) -> dict[str, int]:
        """What a client has to know."""
        names = ("shards", "runs", "ir_bytes", "upload_bytes", "tensor_bytes", "stored_bytes")
        return {name: getattr(self, name) for name in names}
