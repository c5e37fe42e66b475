"""Modules and functions under construction: index spaces, locals by name, section order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from rlx_edge.compile.codegen.wasm import encoder, sections
from rlx_edge.compile.codegen.wasm.encoder import Body
from rlx_edge.compile.codegen.wasm.sections import Limits, Section


class FunctionBuilder(Body):
    """A function body with typed, named locals.

    Attributes:
        index: function index in the module, usable in `call` before the body is complete.
        name: debug name.
    """

    __slots__ = ("_free", "_local_types", "_names", "_parameter_count", "index", "name")

    def __init__(self, index: int, name: str, parameters: Sequence[tuple[str, int]]) -> None:
        super().__init__()
        self.index = index
        self.name = name
        self._parameter_count = len(parameters)
        self._local_types = [value_type for _, value_type in parameters]
        self._names = [parameter for parameter, _ in parameters]
        self._free: dict[int, list[int]] = {}

    def parameter(self, name: str) -> int:
        """Local index of a parameter.

        Raises:
            ValueError: the function has no parameter of that name.
        """
        return self._names.index(name, 0, self._parameter_count)

    def local(self, value_type: int, name: str | None = None) -> int:
        """Declare a local of a type; an unnamed one may reuse a released local.

        A fresh local holds zero at function entry; a reused one holds whatever was left in it.
        """
        free = self._free.get(value_type)
        if name is None and free:
            return free.pop()
        self._local_types.append(value_type)
        self._names.append(f"t{len(self._names)}" if name is None else name)
        return len(self._local_types) - 1

    def local_array(self, value_type: int, name: str, count: int) -> list[int]:
        """Declare `count` locals named `name0`, `name1`, ..."""
        return [self.local(value_type, f"{name}{number}") for number in range(count)]

    def release(self, *indices: int) -> None:
        """Give locals back for reuse by later unnamed `local` calls of the same type."""
        for index in indices:
            self._free.setdefault(self._local_types[index], []).append(index)

    def local_type(self, index: int) -> int:
        """Value type of a local or parameter."""
        return self._local_types[index]

    @property
    def declared_types(self) -> list[int]:
        """Types of the locals beyond the parameters."""
        return self._local_types[self._parameter_count :]

    @property
    def local_names(self) -> list[tuple[int, str]]:
        """(index, name) of every parameter and local."""
        return list(enumerate(self._names))


class ModuleBuilder:
    """Collects the parts of a module and encodes them in the order of the specification.

    Imports come before definitions in each index space, so every import must be made before the
    first definition of its kind.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._types: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        self._imports = sections.ImportSection()
        self._import_names: list[str] = []
        self._functions: list[FunctionBuilder] = []
        self._function_types: list[int] = []
        self._imported = {sections.MEMORY: 0, sections.TABLE: 0, sections.GLOBAL: 0}
        self._tables = sections.TableSection()
        self._memories = sections.MemorySection()
        self._globals = sections.GlobalSection()
        self._exports = sections.ExportSection()
        self._elements = sections.ElementSection()
        self._data = sections.DataSection()
        self._start: int | None = None
        self._once: dict[Hashable, int] = {}

    def type(self, parameters: Sequence[int], results: Sequence[int] = ()) -> int:
        """Index of a function type, added once."""
        return self._types.setdefault((tuple(parameters), tuple(results)), len(self._types))

    def import_function(
        self, module: str, name: str, parameters: Sequence[int], results: Sequence[int] = ()
    ) -> int:
        """Import a function and return its index.

        Raises:
            ValueError: a function was already defined.
        """
        if self._functions:
            raise ValueError(f"import of {module}.{name} after the first defined function")
        self._imports.function(module, name, self.type(parameters, results))
        self._import_names.append(f"{module}.{name}")
        return len(self._import_names) - 1

    def import_memory(self, module: str, name: str, limits: Limits) -> int:
        """Import a memory and return its index."""
        self._imports.memory(module, name, limits)
        return self._next_import(sections.MEMORY, module, name, self._memories)

    def import_table(self, module: str, name: str, limits: Limits) -> int:
        """Import a table of functions and return its index."""
        self._imports.table(module, name, encoder.FUNCREF, limits)
        return self._next_import(sections.TABLE, module, name, self._tables)

    def _next_import(self, kind: int, module: str, name: str, defined: Section) -> int:
        if len(defined):
            raise ValueError(f"import of {module}.{name} after the first definition of its kind")
        self._imported[kind] += 1
        return self._imported[kind] - 1

    def memory(self, limits: Limits) -> int:
        """Define a memory and return its index."""
        self._memories.memory(limits)
        return self._imported[sections.MEMORY] + len(self._memories) - 1

    def table(self, limits: Limits) -> int:
        """Define a table of functions and return its index."""
        self._tables.table(limits)
        return self._imported[sections.TABLE] + len(self._tables) - 1

    def global_i32(self, initial: int, mutable: bool = True) -> int:
        """Define an i32 global and return its index."""
        self._globals.global_(encoder.I32, mutable, encoder.i32_expression(initial))
        return self._imported[sections.GLOBAL] + len(self._globals) - 1

    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str, int]] = (),
        results: Sequence[int] = (),
    ) -> FunctionBuilder:
        """Start a function; its index is fixed at once, its body may be completed later."""
        type_index = self.type([value_type for _, value_type in parameters], results)
        function = FunctionBuilder(len(self._import_names) + len(self._functions), name, parameters)
        self._functions.append(function)
        self._function_types.append(type_index)
        return function

    def once(self, key: Hashable, emit: Callable[[], FunctionBuilder]) -> int:
        """Index of the function that `emit` builds the first time a key is asked for."""
        found = self._once.get(key)
        if found is None:
            found = self._once[key] = emit().index
        return found

    def export_function(self, name: str, index: int) -> None:
        """Export a function."""
        self._exports.export(name, sections.FUNCTION, index)

    def export_memory(self, name: str, index: int = 0) -> None:
        """Export a memory."""
        self._exports.export(name, sections.MEMORY, index)

    def export_table(self, name: str, index: int = 0) -> None:
        """Export a table."""
        self._exports.export(name, sections.TABLE, index)

    def elements(self, offset: int, functions: Sequence[int]) -> None:
        """Fill table 0 from `offset` with functions."""
        self._elements.active(encoder.i32_expression(offset), functions)

    def data(self, offset: int, data: bytes) -> None:
        """Place bytes in memory 0 at instantiation."""
        self._data.active(encoder.i32_expression(offset), data)

    def passive_data(self, data: bytes) -> int:
        """Add bytes for `memory.init` and return the segment's index."""
        self._data.passive(data)
        return len(self._data) - 1

    def start(self, function_index: int) -> None:
        """Run a function at instantiation."""
        self._start = function_index

    def encode(self, debug_names: bool = True) -> bytes:
        """The module's bytes; the name section is left out without `debug_names`.

        Raises:
            ValueError: a function has a block that is not closed.
        """
        types = sections.TypeSection()
        for parameters, results in self._types:
            types.function(parameters, results)
        functions = sections.FunctionSection()
        code = sections.CodeSection()
        for function, type_index in zip(self._functions, self._function_types, strict=True):
            if function.open_blocks:
                raise ValueError(
                    f"function {function.name} has {function.open_blocks} blocks without end"
                )
            functions.function(type_index)
            code.function(function.declared_types, function.code)
        ordered: list[Section] = [
            types,
            self._imports,
            functions,
            self._tables,
            self._memories,
            self._globals,
            self._exports,
        ]
        present = [section for section in ordered if len(section)]
        if self._start is not None:
            present.append(sections.StartSection(self._start))
        if len(self._elements):
            present.append(self._elements)
        if len(self._data):
            present.append(sections.DataCountSection(len(self._data)))
        present += [section for section in (code, self._data) if len(section)]
        if debug_names:
            present.append(self._names())
        return sections.encode_module(present)

    def _names(self) -> sections.NameSection:
        functions = [*enumerate(self._import_names)]
        functions += [(function.index, function.name) for function in self._functions]
        local_names = [
            (function.index, function.local_names)
            for function in self._functions
            if function.local_names
        ]
        return sections.NameSection(self.name, functions, local_names)
