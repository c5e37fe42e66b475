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
_MULTIPLY = """\
        __syncthreads();
        #pragma unroll
        for (int step = 0; step < $depth; ++step) {
          const float4 left = *(const float4*)&a_tile[step][row_at];
          const float4 right = *(const float4*)&b_tile[step][column_at];
          const float rows4[4] = {left.x, left.y, left.z, left.w};
          const float columns4[4] = {right.x, right.y, right.z, right.w};
          #pragma unroll
          for (int i = 0; i < 4; ++i)
            #pragma unroll
            for (int j = 0; j < 4; ++j) chain[i][j] = chain[i][j] + rows4[i] * columns4[j];
        }
        __syncthreads();
"""
_CLEAR = """\
      float chain[4][4];
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) chain[i][j] = 0.0f;
"""
_ADD_CHAIN = """\
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) total[i][j] = total[i][j] + chain[i][j];
"""
_TOTAL = """\
    float total[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = 0.0f;
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
  __shared__ __align__(16) float a_tile[$depth][$rows + 4];
  __shared__ __align__(16) float b_tile[$depth][$columns];
$pointers\
  const int m = words.m, n = words.n, k = words.k;
  const int row_tiles = (m + $rows - 1) / $rows, column_tiles = (n + $columns - 1) / $columns;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int column_at = threadIdx.x % ($columns / 4) * 4;
  const int row_at = threadIdx.x / ($columns / 4) * 4;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int column_first = tile % column_tiles * $columns;
    const int row_first = tile / column_tiles % row_tiles * $rows;
    const int slice = tile / column_tiles / row_tiles;
    const float* __restrict__ a_slice = a + slice * words.a_slice;
    const float* __restrict__ b_slice = b + slice * words.b_slice;
"""
    + _TOTAL
    + """\
    for (int start = 0; start < k; start += $chain) {
      const int stop = lesser_integer<int>(start + $chain, k);
"""
    + _CLEAR
    + """\
      for (int first = start; first < stop; first += $depth) {
        for (int item = threadIdx.x; item < $rows * $depth / 4; item += $threads) {
          const int step = item % ($depth / 4) * 4, row = item / ($depth / 4);
          const bool inside = row_first + row < m;
          const float* from = a_slice + (row_first + row) * k + first + step;
$load_a\
        }
        for (int item = threadIdx.x; item < $depth * $columns / 4; item += $threads) {
          const int column = item % ($columns / 4) * 4, step = item / ($columns / 4);
          const bool inside = first + step < stop;
          const float* from = b_slice + (first + step) * n + column_first + column;
$load_b\
        }
"""
    + _MULTIPLY
    + """\
      }
"""
    + _ADD_CHAIN
    + """\
    }
    for (int i = 0; i < 4; ++i) {
      const int row = row_first + row_at + i;
      if (row >= m) break;
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
_A_VECTOR = """\
          float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (inside && first + step < stop) four = *(const float4*)from;
          a_tile[step][row] = four.x;
          a_tile[step + 1][row] = four.y;
          a_tile[step + 2][row] = four.z;
          a_tile[step + 3][row] = four.w;
"""
_A_SINGLE = """\
          for (int one = 0; one < 4; ++one)
            a_tile[step + one][row] = inside && first + step + one < stop ? from[one] : 0.0f;
"""
_B_VECTOR = """\
          float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (inside && column_first + column < n) four = *(const float4*)from;
          *(float4*)&b_tile[step][column] = four;
"""
_B_SINGLE = """\
          for (int one = 0; one < 4; ++one)
            b_tile[step][column + one] =
                inside && column_first + column + one < n ? from[one] : 0.0f;
"""


def _tile(kernel: TemplateKernel) -> GpuTile:
    return parse_gpu_tile(str(kernel.option("tile")))


def _tile_values(kernel: TemplateKernel) -> dict[str, object]:
    tile = _tile(kernel)
    return {
        "rows": tile.rows,
        "columns": tile.columns,
        "depth": tile.depth,
        "threads": tile.threads,
        "chain": kernel.option("chain"),
    }


def _matmul(kernel: TemplateKernel, head: str) -> str:
    places = {FULL: "place", CHANNEL: "column", SCALAR: "0"}
    lines, result = epilogue_lines(kernel.epilogue, kernel.extras, places)
    return _fill(
        _MATMUL,
        _tile_values(kernel)
        | {
            "head": head,
            "pointers": _pointers(matmul_slots(kernel.extras)),
            "load_a": _A_VECTOR if kernel.option("a_vectors") else _A_SINGLE,
            "load_b": _B_VECTOR if kernel.option("b_vectors") else _B_SINGLE,
            "epilogue": _indented(lines, 4),
            "result": result,
        },
    )


# ---- conv2d --------------------------------------------------------------------------------------

_CONV = (
    """\
$head
{
  __shared__ __align__(16) float a_tile[$depth][$rows];
  __shared__ __align__(16) float b_tile[$depth][$columns];
  __shared__ int a_at[$rows];
$pointers\
  const int height = words.height, width = words.width, n = words.n, b_row = words.b_row;
  const int pixels = words.images * height * width, k = words.blocks * $taps * 4;
  const int row_tiles = (pixels + $rows - 1) / $rows, column_tiles = (n + $columns - 1) / $columns;
  const int tiles = words.slices * row_tiles * column_tiles;
  const int row_at = threadIdx.x % ($rows / 4) * 4;
  const int column_at = threadIdx.x / ($rows / 4) * 4;
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
    + _TOTAL
    + """\
    for (int start = 0; start < k; start += $chain) {
      const int stop = lesser_integer<int>(start + $chain, k);
"""
    + _CLEAR
    + """\
      for (int first = start; first < stop; first += $depth) {
        for (int item = threadIdx.x; item < $rows * $depth / 4; item += $threads) {
          const int row = item % $rows, step = item / $rows * 4;
          const int from = a_at[row];
          const unsigned quad = (unsigned)(first + step) / 4u;
          const int block = quad / ${taps}u, tap = quad % ${taps}u;
          const int tap_row = tap / $kernel_columns, tap_column = tap % $kernel_columns;
          const int there = from + tap_row * words.a_tap_row + tap_column * words.a_tap_column;
          float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (from >= 0 && first + step < stop) {
$load_a\
          }
          a_tile[step][row] = four.x;
          a_tile[step + 1][row] = four.y;
          a_tile[step + 2][row] = four.z;
          a_tile[step + 3][row] = four.w;
        }
        for (int item = threadIdx.x; item < $depth * $columns / 4; item += $threads) {
          const int column = item % ($columns / 4) * 4, step = item / ($columns / 4);
          float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (first + step < stop && column_first + column < b_row)
            four = *(const float4*)(b_slice + (first + step) * b_row + column_first + column);
          *(float4*)&b_tile[step][column] = four;
        }
"""
    + _MULTIPLY
    + """\
      }
"""
    + _ADD_CHAIN
    + """\
    }
    const int column = column_first + column_at;
    for (int i = 0; i < 4; ++i) {
      const int pixel = row_first + row_at + i;
      if (pixel >= pixels || column >= n) break;
      const int x = pixel % width, y = pixel / width % height, image = pixel / width / height;
$store\
    }
    __syncthreads();
  }
}
"""
)
_QUAD_LOAD = """\
            four = *(const float4*)(a + there + block * words.a_plane);
"""
_PLANES_LOAD = """\
            const int channel = block * 4, left = words.channels - channel;
            const float* plane = a + there + channel * words.a_plane;
            four.x = plane[0];
            if (left > 1) four.y = plane[words.a_plane];
            if (left > 2) four.z = plane[2 * words.a_plane];
            if (left > 3) four.w = plane[3 * words.a_plane];
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
    return _fill(
        _CONV,
        _tile_values(kernel)
        | {
            "head": head,
            "pointers": _pointers(matmul_slots(kernel.extras)),
            "taps": rows * columns,
            "kernel_columns": columns,
            "load_a": _QUAD_LOAD if kernel.option("input") == BLOCKED else _PLANES_LOAD,
            "store": store,
        },
    )


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
    #pragma unroll
    for (int tap = 0; tap < $taps; ++tap) {
      const int there = tap / $kernel_columns * words.a_tap_row
          + tap % $kernel_columns * words.a_tap_column;
      const float4 pixel = *(const float4*)(from + there);
      const float4 weight = *(const float4*)(weights + tap * 4);
      chain[0] = chain[0] + pixel.x * weight.x;
      chain[1] = chain[1] + pixel.y * weight.y;
      chain[2] = chain[2] + pixel.z * weight.z;
      chain[3] = chain[3] + pixel.w * weight.w;
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
