"""The C++ of attention without matrix units, filled in as ``template_text``.

``TILED``: eight threads share some rows of scores; queries and weights lie in shared memory by
columns, so that a thread reads its rows as vectors. ``FEW``: a workgroup has four queries and some
or all keys, its threads a key each, then columns of values; ``JOIN`` adds up what several had.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.cuda.attention_text import SLICES, TILES

TILED = (
    """\
$head
{
  __shared__ __align__(16) float q_tile[$depth * $rows];
  __shared__ __align__(16) float k_tile[$key_words];
  __shared__ __align__(16) float v_tile[$keys * $width];
$weight_tile\
$pointers\
"""
    + TILES
    + """\
  const int lane = threadIdx.x % 8, rows_of = threadIdx.x / 8;
"""
    + SLICES
    + """\
    const auto keys_at = [&](int first, int each) {
      const int item = threadIdx.x + each * $threads;
      const int column = first + item % ($keys / 4) * 4, row = item / ($keys / 4);
      const float* from = k_slice + (long long)row * keys + column;
      return load_four(from, row < $depth ? keys - column : 0, whole_rows);
    };
    const auto values_at = [&](int first, int each) {
      const int item = threadIdx.x + each * $threads;
      const int column = item % ($width / 4) * 4, row = first + item / ($width / 4);
      return load_four(v_slice + (long long)row * heads * $width + column, keys - row, true);
    };
    float4 k_next[$k_each], v_next[$v_each];
    const auto fetch_keys = [&](int first) {
      #pragma unroll
      for (int each = 0; each < $k_each; ++each) k_next[each] = keys_at(first, each);
    };
    const auto fetch_values = [&](int first) {
      #pragma unroll
      for (int each = 0; each < $v_each; ++each) v_next[each] = values_at(first, each);
    };
$fetch_first\
    __syncthreads();
    for (int item = threadIdx.x; item < $rows * ($depth / 4); item += $threads) {
      const int row = item % $rows, at = item / $rows * 4;
      float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (row_first + row < queries)
        four = *(const float4*)(q_slice + (long long)(row_first + row) * heads * $depth + at);
      q_tile[at * $rows + row] = four.x * $log_scale;
      q_tile[(at + 1) * $rows + row] = four.y * $log_scale;
      q_tile[(at + 2) * $rows + row] = four.z * $log_scale;
      q_tile[(at + 3) * $rows + row] = four.w * $log_scale;
    }
    float most[$row_each], sum[$row_each], total[$row_each][$width_each];
    #pragma unroll
    for (int i = 0; i < $row_each; ++i) {
      most[i] = -infinity_f32();
      sum[i] = 0.0f;
      #pragma unroll
      for (int j = 0; j < $width_each; ++j) total[i][j] = 0.0f;
    }
    const int stop = $stop;
    for (int first = 0; first < stop; first += $keys) {
      __syncthreads();
$store_unroll
      for (int each = 0; each < $k_each; ++each) {
        const int item = threadIdx.x + each * $threads;
        if (item < $depth * ($keys / 4)) *(float4*)&k_tile[item * 4] = $next_keys;
      }
      __syncthreads();
$values_ahead\
      float score[$row_each][$key_each];
      #pragma unroll
      for (int i = 0; i < $row_each; ++i)
        #pragma unroll
        for (int j = 0; j < $key_each; ++j) score[i][j] = 0.0f;
      #pragma unroll 4
      for (int step = 0; step < $depth; ++step) {
        __align__(16) float left[$row_each], right[$key_each];
        #pragma unroll
        for (int i = 0; i < $row_each; i += 4)
          *(float4*)&left[i] = *(const float4*)&q_tile[step * $rows + rows_of * $row_each + i];
        #pragma unroll
        for (int j = 0; j < $key_each; j += 4)
          *(float4*)&right[j] = *(const float4*)&k_tile[step * $keys + j * 8 + lane * 4];
        #pragma unroll
        for (int i = 0; i < $row_each; ++i)
          #pragma unroll
          for (int j = 0; j < $key_each; ++j) score[i][j] = fmaf(left[i], right[j], score[i][j]);
      }
$keys_read\
$change_scores\
      if ($at_edge) {
        #pragma unroll
        for (int i = 0; i < $row_each; ++i)
          #pragma unroll
          for (int j = 0; j < $key_each; ++j) {
            const int column = first + j / 4 * 32 + lane * 4 + j % 4;
            const int row = row_first + rows_of * $row_each + i;
            if ($unseen) score[i][j] = -infinity_f32();
          }
      }
      #pragma unroll
      for (int i = 0; i < $row_each; ++i) {
        float largest = most[i];
        #pragma unroll
        for (int j = 0; j < $key_each; ++j) largest = fmaxf(largest, score[i][j]);
        largest = lanes_most(largest, 8);
        // A row without any key yet: what is below is 2 to -infinity.
        const float base = largest == -infinity_f32() ? 0.0f : largest;
        const float shrink = power_of_two(most[i] - base);
        most[i] = largest;
        float added = 0.0f;
        #pragma unroll
        for (int j = 0; j < $key_each; ++j) {
          score[i][j] = power_of_two(score[i][j] - base);
          added = added + score[i][j];
        }
        sum[i] = fmaf(sum[i], shrink, added);
        #pragma unroll
        for (int j = 0; j < $width_each; ++j) total[i][j] = total[i][j] * shrink;
      }
      // Rows by fours; which four lies where depends on the key, so that threads meet no bank
      // twice.
      #pragma unroll
      for (int j = 0; j < $key_each; ++j)
        #pragma unroll
        for (int i = 0; i < $row_each; i += 4) {
          const int four = (rows_of * $row_each + i) / 4 ^ lane;
          *(float4*)&w_tile[(j / 4 * 32 + lane * 4 + j % 4) * $rows + four * 4] = make_float4(
              score[i][j], score[i + 1][j], score[i + 2][j], score[i + 3][j]);
        }
$store_unroll
      for (int each = 0; each < $v_each; ++each) {
        const int item = threadIdx.x + each * $threads;
        if (item < $keys * ($width / 4)) *(float4*)&v_tile[item * 4] = $next_values;
      }
      __syncthreads();
$keys_ahead\
      #pragma unroll $unroll
      for (int of = 0; of < $keys / 4; ++of)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int key = of * 4 + j;
          __align__(16) float left[$row_each], right[$width_each];
          #pragma unroll
          for (int i = 0; i < $row_each; i += 4) {
            const int four = (rows_of * $row_each + i) / 4 ^ of % 8;
            *(float4*)&left[i] = *(const float4*)&w_tile[key * $rows + four * 4];
          }
          #pragma unroll
          for (int c = 0; c < $width_each; c += $width_step)
            *($width_vector*)&right[c] = *(const $width_vector*)&v_tile[
                key * $width + c * 8 + lane * $width_step];
          #pragma unroll
          for (int i = 0; i < $row_each; ++i)
            #pragma unroll
            for (int c = 0; c < $width_each; ++c)
              total[i][c] = fmaf(left[i], right[c], total[i][c]);
        }
    }
    #pragma unroll
    for (int i = 0; i < $row_each; ++i) {
      const float whole = lanes_sum(sum[i], 8), inverse = 1.0f / whole;
      const int row = row_first + rows_of * $row_each + i;
      if (row >= queries) continue;
      float* into = out_slice + (long long)row * heads * $width + lane * $width_step;
      #pragma unroll
      for (int c = 0; c < $width_each; ++c) {
        const float value = total[i][c];
        into[c / $width_step * $width_step * 8 + c % $width_step] = $result;
      }
    }
  }
}
"""
)
CHANGE_TILED = """\
      #pragma unroll
      for (int i = 0; i < $row_each; ++i)
        #pragma unroll
        for (int j = 0; j < $key_each; ++j) {
          const int column = first + j / 4 * 32 + lane * 4 + j % 4;
          const int row = row_first + rows_of * $row_each + i;
          float x = score[i][j];
$bias\
          score[i][j] = x;
        }
"""
KEYS_READ = """\
      __syncthreads();
      float* const w_tile = k_tile;
"""
"""Where weights lie where the keys have been."""
SCRATCH = """\
  float* __restrict__ scratch = at<float>(arena, words.scratch);
"""
FEW = (
    """\
$head
{
  __shared__ __align__(16) float q_rows[$depth * $rows];
  __shared__ __align__(16) float weights[$threads * $rows];
  __shared__ __align__(16) float warp_most[$warps * $rows];
  __shared__ __align__(16) float parts[$groups * $rows * $width];
  __shared__ float wholes[$warps * $rows];
$pointers\
"""
    + """\
  const int queries = words.queries, keys = words.keys, splits = words.splits;
  const int heads = words.heads;
  const int row_tiles = (queries + $rows - 1) / $rows;
  const int tile_count = words.slices * row_tiles * splits;
  // Keys of a part: as many steps as all others, the last parts maybe fewer.
  const int span = ((keys + $threads - 1) / $threads + splits - 1) / splits * $threads;
  const int warp = threadIdx.x / 32, quad = threadIdx.x % ($width / 4);
  const int group = threadIdx.x / ($width / 4);
"""
    + SLICES.replace("tile % row_tiles", "tile / splits % row_tiles").replace(
        "tile / row_tiles", "tile / splits / row_tiles"
    )
    + """\
    __syncthreads();
    for (int item = threadIdx.x; item < $depth * $rows; item += $threads) {
      const int row = row_first + item % $rows, at = item / $rows;
      const float value = row < queries ? q_slice[(long long)row * heads * $depth + at] : 0.0f;
      q_rows[item] = value * $log_scale;
    }
    __syncthreads();
    float most[$rows], sum[$rows], total[$rows][4];
    #pragma unroll
    for (int i = 0; i < $rows; ++i) {
      most[i] = -infinity_f32();
      sum[i] = 0.0f;
      #pragma unroll
      for (int c = 0; c < 4; ++c) total[i][c] = 0.0f;
    }
    const int begin = tile % splits * span;
    const int stop = lesser_integer<int>($stop, begin + span);
    for (int first = begin; first < stop; first += $threads) {
      const int column = first + threadIdx.x;
      float score[$rows];
      #pragma unroll
      for (int i = 0; i < $rows; ++i) score[i] = 0.0f;
      if (column < stop) {
        const float* from = k_slice + column;
        #pragma unroll $unroll
        for (int step = 0; step < $depth; ++step) {
          const float4 left = *(const float4*)&q_rows[step * $rows];
          const float right = from[(long long)step * keys];
          score[0] = fmaf(left.x, right, score[0]);
          score[1] = fmaf(left.y, right, score[1]);
          score[2] = fmaf(left.z, right, score[2]);
          score[3] = fmaf(left.w, right, score[3]);
        }
      }
      #pragma unroll
      for (int i = 0; i < $rows; ++i) {
        const int row = row_first + i;
        float x = score[i];
$bias\
        score[i] = $unseen ? -infinity_f32() : x;
        const float largest = lanes_most(score[i], 32);
        if (threadIdx.x % 32 == 0) warp_most[warp * $rows + i] = largest;
      }
      __syncthreads();
      #pragma unroll
      for (int i = 0; i < $rows; ++i) {
        float largest = most[i];
        #pragma unroll
        for (int other = 0; other < $warps; ++other)
          largest = fmaxf(largest, warp_most[other * $rows + i]);
        // A row without any key yet: what is below is 2 to -infinity.
        const float base = largest == -infinity_f32() ? 0.0f : largest;
        const float shrink = power_of_two(most[i] - base);
        most[i] = largest;
        const float weight = power_of_two(score[i] - base);
        sum[i] = fmaf(sum[i], shrink, weight);
        weights[threadIdx.x * $rows + i] = weight;
        #pragma unroll
        for (int c = 0; c < 4; ++c) total[i][c] = total[i][c] * shrink;
      }
      __syncthreads();
      const int count = lesser_integer<int>($threads, stop - first);
      if (group < $groups) {
        const float* from = v_slice + (long long)first * heads * $width + quad * 4;
        #pragma unroll $unroll_values
        for (int at = group; at < count; at += $groups) {
          const float4 left = *(const float4*)&weights[at * $rows];
          const float4 right = *(const float4*)(from + (long long)at * heads * $width);
          const float rows_of[4] = {left.x, left.y, left.z, left.w};
          #pragma unroll
          for (int i = 0; i < $rows; ++i) {
            total[i][0] = fmaf(rows_of[i], right.x, total[i][0]);
            total[i][1] = fmaf(rows_of[i], right.y, total[i][1]);
            total[i][2] = fmaf(rows_of[i], right.z, total[i][2]);
            total[i][3] = fmaf(rows_of[i], right.w, total[i][3]);
          }
        }
      }
    }
    #pragma unroll
    for (int i = 0; i < $rows; ++i) {
      const float whole = lanes_sum(sum[i], 32);
      if (threadIdx.x % 32 == 0) wholes[warp * $rows + i] = whole;
      if (group < $groups)
        *(float4*)&parts[(group * $rows + i) * $width + quad * 4]
            = make_float4(total[i][0], total[i][1], total[i][2], total[i][3]);
    }
    __syncthreads();
    float* const part = scratch + (long long)tile * $rows * ($width + 2);
    #pragma unroll
    for (int i = 0; i < $rows; ++i)
      if (splits > 1 && threadIdx.x == i) part[i] = most[i];
    for (int item = threadIdx.x; item < $rows * $width; item += $threads) {
      const int row = item / $width;
      float value = 0.0f, whole = 0.0f;
      #pragma unroll 8
      for (int other = 0; other < $groups; ++other)
        value = value + parts[other * $rows * $width + item];
      #pragma unroll
      for (int other = 0; other < $warps; ++other) whole = whole + wholes[other * $rows + row];
      if (splits > 1) {
        part[2 * $rows + item] = value;
        if (item % $width == 0) part[$rows + row] = whole;
      } else if (row_first + row < queries) {
        const float inverse = 1.0f / whole;
        out_slice[(long long)(row_first + row) * heads * $width + item % $width] = $result;
      }
    }
  }
}
"""
)
JOIN = """\
$head
{
$pointers\
  const int queries = words.queries, splits = words.splits, heads = words.heads;
  const int row_tiles = (queries + $rows - 1) / $rows, count = words.slices * queries * $width;
  for (int place = blockIdx.x * $threads + threadIdx.x; place < count;
       place += gridDim.x * $threads) {
    const int column = place % $width, row = place / $width % queries;
    const int slice = place / $width / queries, head = slice % heads;
    const int tile = slice * row_tiles + row / $rows;
    const float* part = scratch + (long long)tile * splits * $rows * ($width + 2);
    float largest = -infinity_f32();
    for (int at = 0; at < splits; ++at)
      largest = fmaxf(largest, part[at * $rows * ($width + 2) + row % $rows]);
    const float base = largest == -infinity_f32() ? 0.0f : largest;
    float value = 0.0f, whole = 0.0f;
    for (int at = 0; at < splits; ++at, part += $rows * ($width + 2)) {
      const float shrink = power_of_two(part[row % $rows] - base);
      whole = fmaf(part[$rows + row % $rows], shrink, whole);
      value = fmaf(part[2 * $rows + row % $rows * $width + column], shrink, value);
    }
    const float inverse = 1.0f / whole;
    out[((long long)(slice - head) * queries + head + (long long)row * heads) * $width + column]
        = $result;
  }
}
"""
