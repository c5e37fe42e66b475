"""The Vulkan memory model, which modules with cooperative matrices must have.

There an access to workgroup memory takes part in what barriers order only where it says so, and a
barrier makes writes available and visible only where it says so. Emitters write for the model
without these words; this adds them to a module that is complete.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.spirv.assembler import Instruction, Module
from rlx_edge.compile.codegen.spirv.opcodes import BY_NUMBER, ENUMS

VULKAN = "Vulkan"
NON_PRIVATE = 0x20
"""Memory operand: the access is ordered with those of other invocations."""
AVAILABLE_VISIBLE = 0x2000 | 0x4000
"""Memory semantics beside acquire and release."""
_POINTERS = {"Load": 3, "Store": 1, "CooperativeMatrixLoadKHR": 3, "CooperativeMatrixStoreKHR": 1}
"""Access → which of its words is the pointer; a memory operand comes last."""


def share_memory(module: Module) -> None:
    """Make the module one of the Vulkan memory model; once, when all kernels are in it."""
    module.memory = VULKAN
    module.capability("VulkanMemoryModel")
    storage = ENUMS["Storage"]["Workgroup"]
    kinds = {
        item[1]
        for item in module.globals
        if BY_NUMBER[item[0]].name == "TypePointer" and item[2] == storage
    }
    pointers = {
        item[2]
        for item in (*module.globals, *module.functions)
        if BY_NUMBER[item[0]].typed and item[1] in kinds
    }
    values = {item[2]: item[3] for item in module.globals if BY_NUMBER[item[0]].name == "Constant"}

    def shared(item: Instruction) -> Instruction:
        name = BY_NUMBER[item[0]].name
        place = _POINTERS.get(name)
        if place is not None and item[place] in pointers:
            return (*item, NON_PRIVATE)
        if name == "ControlBarrier":
            wanted = values[item[3]] | AVAILABLE_VISIBLE
            return (*item[:3], module.integer(wanted, signed=False))
        return item

    module.functions = [shared(item) for item in module.functions]
