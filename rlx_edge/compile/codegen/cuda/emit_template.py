"""Template kernels as CUDA C++: contractions by tiles in shared memory.

A workgroup brings ``depth`` steps of k of its rows and columns into shared memory, then every
thread adds 4 × 4 products a step to its chains. Steps beyond the end of a chain are 0 · 0, which
changes no accumulator: none is ever -0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Template

from rlx_edge.compile.codegen.cuda.emit_epilogue import epilogue_lines
from rlx_edge.compile.epilogue_access import BATCH_CHANNEL, CHANNEL, FULL, SCALAR
from rlx_edge.compile.templates.gpu import (
    BLOCKED,
    MATMUL_WORDS,
    GpuTile,
    conv_words,
    extra_slots,
    matmul_slots,
    parse_gpu_tile,
)
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.kernel import TemplateKernel


def emit_template(kernel: TemplateKernel, head: str) -> str:
    """The text of a kernel: ``head`` is its declaration up to the parameters.

    ``RlxError`` ``codegen.template`` for an unknown template.
    """
    return _row(kernel).text(kernel, head)


def template_threads(kernel: TemplateKernel) -> int:
    """Threads of a workgroup."""
    return _row(kernel).threads(kernel)


def template_bounds(kernel: TemplateKernel) -> str:
    """Threads and least blocks a processor, as ``__launch_bounds__`` wants them.

    One block at least: else ptxas spills accumulators to make room for a third one.
    """
    return f"{template_threads(kernel)}, {2 if kernel.template == 'depthwise' else 1}"


def template_words(kernel: TemplateKernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the slots and of the parameters, in the order of the record's words."""
    return _row(kernel).words(kernel)


def template_struct(name: str, kernel: TemplateKernel) -> str:
    """The struct of a template kernel's words."""
    slots, parameters = template_words(kernel)
    return f"struct {name} {{ unsigned {', '.join(slots)}; int {', '.join(parameters)}; }};"


# ---- pieces --------------------------------------------------------------------------------------

_POINTERS = """\
  float* __restrict__ out = at<float>(arena, words.out);
"""
_SHARED = """\
  __shared__ __align__(16) float a_tile[$parts][$depth][$rows + $pad];
  __shared__ __align__(16) float b_tile[$parts][$depth][$columns];
"""
_CHAINS = """\
    float total[4][4], chain[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = chain[i][j] = 0.0f;
    // All parts step together; part p has the p-th chain from base on.
    int base = 0, step = 0;
    float4 a_next[$a_each], b_next[$b_each];
    const auto fetch = [&]() {
      const int start = base + part * $chain, stop = lesser_integer<int>(start + $chain, k);
      const int first = start + step;
      #pragma unroll
      for (int each = 0; each < $a_each; ++each) {
        const int item = lane + each * $part_threads;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
$load_a\
        a_next[each] = four;
      }
      #pragma unroll
      for (int each = 0; each < $b_each; ++each) {
        const int item = lane + each * $part_threads;
        const int column = item % ($columns / 4) * 4, at_k = first + item / ($columns / 4);
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
$load_b\
        b_next[each] = four;
      }
    };
    if (k > 0) fetch();
    while (base < k) {
      #pragma unroll
      for (int each = 0; each < $a_each; ++each) {
        const int item = lane + each * $part_threads;
        const int row = $a_row, quad = $a_quad;
        a_tile[part][quad * 4][row] = a_next[each].x;
        a_tile[part][quad * 4 + 1][row] = a_next[each].y;
        a_tile[part][quad * 4 + 2][row] = a_next[each].z;
        a_tile[part][quad * 4 + 3][row] = a_next[each].w;
      }
      #pragma unroll
      for (int each = 0; each < $b_each; ++each) {
        const int item = lane + each * $part_threads;
        *(float4*)&b_tile[part][item / ($columns / 4)][item % ($columns / 4) * 4] = b_next[each];
      }
      __syncthreads();
      const bool ended = step + $depth >= $chain || base + step + $depth >= k;
      step = ended ? 0 : step + $depth;
      base += ended ? $parts * $chain : 0;
      if (base < k) fetch();
      #pragma unroll
      for (int at = 0; at < $depth; ++at) {
        const float4 left = *(const float4*)&a_tile[part][at][row_at];
        const float4 right = *(const float4*)&b_tile[part][at][column_at];
        const float rows4[4] = {left.x, left.y, left.z, left.w};
        const float columns4[4] = {right.x, right.y, right.z, right.w};
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) chain[i][j] = chain[i][j] + rows4[i] * columns4[j];
      }
      __syncthreads();
      if (ended) {
$join\
      }
    }
"""
_JOIN_ONE = """\
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            total[i][j] = total[i][j] + chain[i][j];
            chain[i][j] = 0.0f;
          }
"""
_JOIN_PARTS = """\
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j)
            if (part > 0) chains[part - 1][i * 4 + j][lane] = chain[i][j];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (part == 0) {
              total[i][j] = total[i][j] + chain[i][j];
              for (int other = 0; other < $parts - 1; ++other)
                total[i][j] = total[i][j] + chains[other][i * 4 + j][lane];
            }
            chain[i][j] = 0.0f;
          }
"""


def _pointers(slots: Sequence[str]) -> str:
    lines = [
        f"  const float* __restrict__ {slot} = at<const float>(arena, words.{slot});\n"
        for slot in slots[1:]
    ]
    return _POINTERS + "".join(lines)


def _indented(lines: Sequence[str], depth: int) -> str:
    return "".join(f"{'  ' * depth}{line}\n" for line in lines)


def _fill(text: str, values: Mapping[str, object]) -> str:
    return Template(text).substitute({name: str(value) for name, value in values.items()})


# ---- matmul --------------------------------------------------------------------------------------

_MATMUL = (
    """\
$head
{
"""
    + _SHARED
    + """\
$pointers\
  const int m = words.m, n = words.n, k = words.k;
  const int row_tiles = (m + $rows - 1) / $rows, column_tiles = (n + $columns - 1) / $columns;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int part = threadIdx.x / $part_threads, lane = threadIdx.x % $part_threads;
  const int column_at = lane % ($columns / 4) * 4;
  const int row_at = lane / ($columns / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int column_first = tile % column_tiles * $columns;
    const int row_first = tile / column_tiles % row_tiles * $rows;
    const int slice = tile / column_tiles / row_tiles;
    const float* __restrict__ a_slice = a + slice * words.a_slice;
    const float* __restrict__ b_slice = b + slice * words.b_slice;
"""
    + _CHAINS
    + """\
    for (int i = 0; i < 4; ++i) {
      const int row = row_first + row_at + i;
      if (part > 0 || row >= m) break;
      for (int j = 0; j < 4; ++j) {
        const int column = column_first + column_at + j;
        if (column >= n) break;
        const int place = (slice * m + row) * n + column;
        const float acc = total[i][j];
$epilogue\
        out[place] = $result;
      }
    }
  }
}
"""
)
_MATMUL_A = """\
        const int row = row_first + item / ($depth / 4), at_k = first + item % ($depth / 4) * 4;
        const float* from = a_slice + row * k + at_k;
"""
_A_VECTOR = """\
        if (row < m && at_k < stop) four = *(const float4*)from;
"""
_A_SINGLE = """\
        if (row < m && at_k < stop) four.x = from[0];
        if (row < m && at_k + 1 < stop) four.y = from[1];
        if (row < m && at_k + 2 < stop) four.z = from[2];
        if (row < m && at_k + 3 < stop) four.w = from[3];
"""
_MATMUL_B = """\
        const float* from = b_slice + at_k * n + column_first + column;
        const int left = at_k < stop ? n - column_first - column : 0;
"""
_B_VECTOR = """\
        if (left > 0) four = *(const float4*)from;
"""
_B_SINGLE = """\
        if (left > 0) four.x = from[0];
        if (left > 1) four.y = from[1];
        if (left > 2) four.z = from[2];
        if (left > 3) four.w = from[3];
"""


def _tile(kernel: TemplateKernel) -> GpuTile:
    return parse_gpu_tile(str(kernel.option("tile")))


def _contraction(kernel: TemplateKernel, text: str, values: Mapping[str, object]) -> str:
    """``text`` with the tile's numbers; what ``values`` hold may mention them too."""
    tile = _tile(kernel)
    split = tile.parts > 1
    chains = f"chains[{tile.parts - 1}][16][{tile.part_threads}]"
    shared = f"  __shared__ float {chains};\n" if split else ""
    numbers: dict[str, object] = {
        "rows": tile.rows,
        "columns": tile.columns,
        "depth": tile.depth,
        "parts": tile.parts,
        "part_threads": tile.part_threads,
        "threads": tile.threads,
        "a_each": tile.rows * tile.depth // 4 // tile.part_threads,
        "b_each": tile.columns * tile.depth // 4 // tile.part_threads,
        "chain": kernel.option("chain"),
    }
    filled = {
        name: _fill(value, numbers) if isinstance(value, str) else value
        for name, value in {"join": _JOIN_PARTS if split else _JOIN_ONE, **values}.items()
    }
    filled["pointers"] = f"{shared}{filled['pointers']}"
    return _fill(text, numbers | filled)


def _matmul(kernel: TemplateKernel, head: str) -> str:
    places = {FULL: "place", CHANNEL: "column", SCALAR: "0"}
    lines, result = epilogue_lines(kernel.epilogue, kernel.extras, places)
    values = {
        "head": head,
        # Four steps of a row go to one column of shared memory each: padding spreads the banks.
        "pad": 4,
        "pointers": _pointers(matmul_slots(kernel.extras)),
        "load_a": _MATMUL_A + (_A_VECTOR if kernel.option("a_vectors") else _A_SINGLE),
        "load_b": _MATMUL_B + (_B_VECTOR if kernel.option("b_vectors") else _B_SINGLE),
        "a_row": "item / ($depth / 4)",
        "a_quad": "item % ($depth / 4)",
        "epilogue": _indented(lines, 4),
        "result": result,
    }
    return _contraction(kernel, _MATMUL, values)


# ---- conv2d --------------------------------------------------------------------------------------

_CONV = (
    """\
$head
{
"""
    + _SHARED
    + """\
  __shared__ int a_at[$rows];
$pointers\
  const int height = words.height, width = words.width, n = words.n, b_row = words.b_row;
  const int pixels = words.images * height * width, k = words.blocks * $taps * 4;
  const int row_tiles = (pixels + $rows - 1) / $rows, column_tiles = (n + $columns - 1) / $columns;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int part = threadIdx.x / $part_threads, lane = threadIdx.x % $part_threads;
  const int row_at = lane % ($rows / 4) * 4;
  const int column_at = lane / ($rows / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int row_first = tile % row_tiles * $rows;
    const int column_first = tile / row_tiles % column_tiles * $columns;
    const int slice = tile / row_tiles / column_tiles;
    const float* __restrict__ b_slice = b + slice * k * b_row;
    for (int row = threadIdx.x; row < $rows; row += $threads) {
      const int pixel = row_first + row;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
      a_at[row] = pixel >= pixels ? -1
          : words.a_origin + slice * words.a_slice + image * words.a_image + y * words.a_row
              + x * words.a_pixel;
    }
    __syncthreads();
"""
    + _CHAINS
    + """\
    const int column = column_first + column_at;
    for (int i = 0; i < 4; ++i) {
      const int pixel = row_first + row_at + i;
      if (part > 0 || pixel >= pixels || column >= n) break;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
$store\
    }
    __syncthreads();
  }
}
"""
)
_CONV_A = """\
        const int from = a_at[item % $rows], at_k = first + item / $rows * 4;
        const unsigned quad = (unsigned)at_k / 4u;
        const int block = quad / ${taps}u, tap = quad % ${taps}u;
        const int tap_row = tap / $kernel_columns, tap_column = tap % $kernel_columns;
        const int there = from + tap_row * words.a_tap_row + tap_column * words.a_tap_column;
        if (from >= 0 && at_k < stop) {
"""
_QUAD_LOAD = """\
          four = *(const float4*)(a + there + block * words.a_plane);
        }
"""
_PLANES_LOAD = """\
          const int left = words.channels - block * 4;
          const float* plane = a + there + block * 4 * words.a_plane;
          four.x = plane[0];
          if (left > 1) four.y = plane[words.a_plane];
          if (left > 2) four.z = plane[2 * words.a_plane];
          if (left > 3) four.w = plane[3 * words.a_plane];
        }
"""
_CONV_B = """\
        if (at_k < stop && column_first + column < b_row)
          four = *(const float4*)(b_slice + at_k * b_row + column_first + column);
"""
_STORE_BLOCKED = """\
      float four[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int channel = slice * n + column + j;
        const float acc = total[i][j];
        four[j] = 0.0f;
        if (column + j < n) {
$epilogue\
          four[j] = $result;
        }
      }
      *(float4*)(out + $place) = make_float4(four[0], four[1], four[2], four[3]);
"""
_STORE_PLANES = """\
      for (int j = 0; j < 4; ++j) {
        if (column + j >= n) break;
        const int channel = slice * n + column + j;
        const float acc = total[i][j];
$epilogue\
        out[$place] = $result;
      }
"""


def _place(slot: str, plane: str, pixel: str) -> str:
    """The element of an image: ``plane`` and ``pixel`` are offsets in its own units."""
    words = f"words.{slot}_"
    return (
        f"{words}origin + slice * {words}slice + image * {words}image + {plane} * {words}plane"
        f" + y * {words}row + {pixel}"
    )


def _conv(kernel: TemplateKernel, head: str) -> str:
    blocked = kernel.option("output") == BLOCKED
    plane, pixel = ("(column / 4)", "x * 4") if blocked else ("(column + j)", "x")
    lane = " + j" if blocked else ""
    rows, columns = int(kernel.option("rows")), int(kernel.option("columns"))
    lines, result = epilogue_lines(
        kernel.epilogue, kernel.extras, _extra_places(_place("{slot}", plane, pixel) + lane)
    )
    store = _fill(
        _STORE_BLOCKED if blocked else _STORE_PLANES,
        {
            "epilogue": _indented(lines, 5 if blocked else 4),
            "result": result,
            "place": _place("out", plane, pixel),
        },
    )
    taps = {"taps": rows * columns, "kernel_columns": columns}
    load = _CONV_A + (_QUAD_LOAD if kernel.option("input") == BLOCKED else _PLANES_LOAD)
    values = {
        "head": head,
        "pad": 0,
        "pointers": _pointers(matmul_slots(kernel.extras)),
        "load_a": Template(load).safe_substitute(taps),
        "load_b": _CONV_B,
        "a_row": "item % $rows",
        "a_quad": "item / $rows",
        "store": store,
        **taps,
    }
    return _contraction(kernel, _CONV, values)


def _extra_places(full: str) -> dict[str, str]:
    return {
        FULL: full,
        CHANNEL: "channel",
        BATCH_CHANNEL: "image * words.slices * words.n + channel",
        SCALAR: "0",
    }


# ---- depthwise -----------------------------------------------------------------------------------

_DEPTHWISE = """\
$head
{
$pointers\
  const int height = words.height, width = words.width, channels = words.channels;
  const unsigned items = words.images * words.blocks * height * width;
  const int slice = 0;
  for (unsigned item = blockIdx.x * ${threads}u + threadIdx.x; item < items;
       item += gridDim.x * ${threads}u) {
    const int x = item % (unsigned)width;
    const unsigned lines = item / (unsigned)width;
    const int y = lines % (unsigned)height;
    const unsigned planes = lines / (unsigned)height;
    const int block = planes % (unsigned)words.blocks, image = planes / (unsigned)words.blocks;
    const float* from = a + words.a_origin + image * words.a_image + block * words.a_plane
        + y * words.a_row + x * words.a_pixel;
    const float* weights = b + block * $taps * 4;
    float chain[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    #pragma unroll 1
    for (int row = 0; row < $kernel_rows; ++row) {
      #pragma unroll
      for (int column = 0; column < $kernel_columns; ++column) {
        const int there = row * words.a_tap_row + column * words.a_tap_column;
        const float4 pixel = *(const float4*)(from + there);
        const float4 weight = *(const float4*)(weights + (row * $kernel_columns + column) * 4);
        chain[0] = chain[0] + pixel.x * weight.x;
        chain[1] = chain[1] + pixel.y * weight.y;
        chain[2] = chain[2] + pixel.z * weight.z;
        chain[3] = chain[3] + pixel.w * weight.w;
      }
    }
    float four[4];
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int channel = block * 4 + j;
      const float acc = chain[j];
      four[j] = 0.0f;
      if (channel < channels) {
$epilogue\
        four[j] = $result;
      }
    }
    *(float4*)(out + $place) = make_float4(four[0], four[1], four[2], four[3]);
  }
}
"""


def _depthwise(kernel: TemplateKernel, head: str) -> str:
    rows, columns = int(kernel.option("rows")), int(kernel.option("columns"))
    full = _place("{slot}", "block", "x * 4") + " + j"
    places = _extra_places(full) | {BATCH_CHANNEL: "image * channels + channel"}
    lines, result = epilogue_lines(kernel.epilogue, kernel.extras, places)
    return _fill(
        _DEPTHWISE,
        {
            "head": head,
            "pointers": _pointers(matmul_slots(kernel.extras)),
            "threads": FLAT_THREADS,
            "taps": rows * columns,
            "kernel_rows": rows,
            "kernel_columns": columns,
            "epilogue": _indented(lines, 4),
            "result": result,
            "place": _place("out", "block", "x * 4"),
        },
    )


# ---- table ---------------------------------------------------------------------------------------

Words = tuple[tuple[str, ...], tuple[str, ...]]


class _Row:
    """How one template is written, its threads, its words."""

    def __init__(
        self,
        text: Callable[[TemplateKernel, str], str],
        threads: Callable[[TemplateKernel], int],
        words: Callable[[TemplateKernel], Words],
    ) -> None:
        self.text, self.threads, self.words = text, threads, words


def _conv_words(kernel: TemplateKernel) -> Words:
    return ("out", "a", "b", *extra_slots(kernel.extras)), conv_words(kernel.extras)


_TEMPLATES: dict[str, _Row] = {
    "matmul": _Row(
        _matmul,
        lambda kernel: _tile(kernel).threads,
        lambda kernel: (matmul_slots(kernel.extras), MATMUL_WORDS),
    ),
    "conv2d": _Row(_conv, lambda kernel: _tile(kernel).threads, _conv_words),
    "depthwise": _Row(_depthwise, lambda kernel: FLAT_THREADS, _conv_words),
}


def _row(kernel: TemplateKernel) -> _Row:
    found = _TEMPLATES.get(kernel.template)
    if found is None:
        raise RlxError(
            "codegen.template",
            "no such template",
            found=kernel.template,
            allowed=list(_TEMPLATES),
        )
    return found
