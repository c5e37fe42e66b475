"""SPIR-V instructions and enumerants in use, by the names of the specification (unified, 1.3).

An instruction's layout says what its words are: ``t`` result type, ``r`` result, then a kind an
operand: ``id``, ``lit`` (one word), ``str``, the name of an enumerant table, or one of them with
``*`` for all that remain.
"""

from __future__ import annotations

from dataclasses import dataclass

MAGIC = 0x07230203
VERSION = 0x00010300


@dataclass(frozen=True, slots=True)
class Opcode:
    """One instruction: its number, whether it has a result type and a result, its operands."""

    name: str
    number: int
    typed: bool
    result: bool
    operands: tuple[str, ...]


def _table(text: str) -> dict[str, Opcode]:
    found: dict[str, Opcode] = {}
    for line in text.strip().splitlines():
        number, name, *layout = line.split()
        operands = tuple(item for item in layout if item not in ("t", "r"))
        found[name] = Opcode(name, int(number), "t" in layout, "r" in layout, operands)
    return found


OPCODES = _table("""
5 Name id str
6 MemberName id lit str
10 Extension str
11 ExtInstImport r str
12 ExtInst t r id GLSL id*
14 MemoryModel Addressing Memory
15 EntryPoint Execution id str id*
16 ExecutionMode id Mode lit*
17 Capability Capability
19 TypeVoid r
20 TypeBool r
21 TypeInt r lit lit
22 TypeFloat r lit
23 TypeVector r id lit
28 TypeArray r id id
29 TypeRuntimeArray r id
30 TypeStruct r id*
32 TypePointer r Storage id
33 TypeFunction r id id*
41 ConstantTrue t r
42 ConstantFalse t r
43 Constant t r lit*
44 ConstantComposite t r id*
46 ConstantNull t r
54 Function t r lit id
56 FunctionEnd
59 Variable t r Storage id*
61 Load t r id lit*
62 Store id id lit*
65 AccessChain t r id id*
71 Decorate id Decoration lit*
72 MemberDecorate id lit Decoration lit*
80 CompositeConstruct t r id*
81 CompositeExtract t r id lit*
109 ConvertFToU t r id
110 ConvertFToS t r id
111 ConvertSToF t r id
112 ConvertUToF t r id
113 UConvert t r id
114 SConvert t r id
115 FConvert t r id
120 ConvertUToPtr t r id
124 Bitcast t r id
126 SNegate t r id
127 FNegate t r id
128 IAdd t r id id
129 FAdd t r id id
130 ISub t r id id
131 FSub t r id id
132 IMul t r id id
133 FMul t r id id
134 UDiv t r id id
135 SDiv t r id id
136 FDiv t r id id
137 UMod t r id id
164 LogicalEqual t r id id
165 LogicalNotEqual t r id id
166 LogicalOr t r id id
167 LogicalAnd t r id id
168 LogicalNot t r id
169 Select t r id id id
170 IEqual t r id id
171 INotEqual t r id id
172 UGreaterThan t r id id
173 SGreaterThan t r id id
174 UGreaterThanEqual t r id id
175 SGreaterThanEqual t r id id
176 ULessThan t r id id
177 SLessThan t r id id
178 ULessThanEqual t r id id
179 SLessThanEqual t r id id
180 FOrdEqual t r id id
183 FUnordNotEqual t r id id
184 FOrdLessThan t r id id
186 FOrdGreaterThan t r id id
188 FOrdLessThanEqual t r id id
190 FOrdGreaterThanEqual t r id id
194 ShiftRightLogical t r id id
195 ShiftRightArithmetic t r id id
196 ShiftLeftLogical t r id id
197 BitwiseOr t r id id
198 BitwiseXor t r id id
199 BitwiseAnd t r id id
200 Not t r id
224 ControlBarrier id id id
240 AtomicAnd t r id id id id
241 AtomicOr t r id id id id
245 Phi t r id*
246 LoopMerge id id lit
247 SelectionMerge id lit
248 Label r
249 Branch id
250 BranchConditional id id id
253 Return
4456 TypeCooperativeMatrixKHR r id id id id id
4457 CooperativeMatrixLoadKHR t r id id id lit*
4458 CooperativeMatrixStoreKHR id id id id lit*
4459 CooperativeMatrixMulAddKHR t r id id id
""")
BY_NUMBER = {opcode.number: opcode for opcode in OPCODES.values()}

ENUMS: dict[str, dict[str, int]] = {
    "Addressing": {"Logical": 0, "PhysicalStorageBuffer64": 5348},
    "Memory": {"GLSL450": 1, "Vulkan": 3},
    "Execution": {"GLCompute": 5},
    "Mode": {
        "LocalSize": 17,
        "DenormPreserve": 4459,
        "SignedZeroInfNanPreserve": 4461,
        "RoundingModeRTE": 4462,
    },
    "Capability": {
        "Shader": 1,
        "Float16": 9,
        "Float64": 10,
        "Int64": 11,
        "Int16": 22,
        "Int8": 39,
        "GroupNonUniform": 61,
        "StorageBuffer16BitAccess": 4433,
        "StorageBuffer8BitAccess": 4448,
        "DenormPreserve": 4464,
        "SignedZeroInfNanPreserve": 4466,
        "RoundingModeRTE": 4467,
        "VulkanMemoryModel": 5345,
        "PhysicalStorageBufferAddresses": 5347,
        "CooperativeMatrixKHR": 6022,
    },
    "Storage": {
        "Input": 1,
        "Workgroup": 4,
        "Private": 6,
        "Function": 7,
        "PushConstant": 9,
        "StorageBuffer": 12,
        "PhysicalStorageBuffer": 5349,
    },
    "Decoration": {
        "Block": 2,
        "ArrayStride": 6,
        "BuiltIn": 11,
        "Aliased": 20,
        "NonWritable": 24,
        "Binding": 33,
        "DescriptorSet": 34,
        "Offset": 35,
        "NoContraction": 42,
    },
    "GLSL": {
        "RoundEven": 2,
        "Trunc": 3,
        "FAbs": 4,
        "Floor": 8,
        "Ceil": 9,
        "Sqrt": 31,
        "Fma": 50,
    },
}
"""Enumerant table → name → number."""
BUILT_INS = {"NumWorkgroups": 24, "WorkgroupId": 26, "LocalInvocationId": 27,
             "GlobalInvocationId": 28, "SubgroupId": 40,
             "SubgroupLocalInvocationId": 41}  # fmt: skip
EXTENSIONS = {
    "StorageBuffer8BitAccess": "SPV_KHR_8bit_storage",
    "DenormPreserve": "SPV_KHR_float_controls",
    "SignedZeroInfNanPreserve": "SPV_KHR_float_controls",
    "RoundingModeRTE": "SPV_KHR_float_controls",
    "VulkanMemoryModel": "SPV_KHR_vulkan_memory_model",
    "PhysicalStorageBufferAddresses": "SPV_KHR_physical_storage_buffer",
    "CooperativeMatrixKHR": "SPV_KHR_cooperative_matrix",
}
"""Capability → the extension that defines it for version 1.3."""
