"""Reductions by several threads of a workgroup, as C++ functions that kernels by rows call.

They keep the numerics contract bit for bit. Between any two accesses of shared memory by different
threads there is a barrier, also from one call to the next: ``stage`` and ``shares`` are written
before a call's first barrier and read after it, ``parts`` the other way round. What a thread has
put into ``stage`` is there until it puts something else.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.kernel_form import CHUNK, PARTIALS
from rlx_edge.compile.workgroups import SHARES, TEAM, Spread


def shared_arrays(form: Spread) -> dict[str, int]:
    """The arrays of one element type by their names, and their lengths."""
    return {
        "stage": form.teams * form.pitch,
        "shares": form.teams * SHARES,
        "parts": form.teams * PARTIALS,
    }


FUNCTIONS = """\
// Rows by teams of TEAM threads. `own`: each team has a row, which fits a piece; else the workgroup
// has one, of any length, and the teams have chunks of it. Of each team's piece of elements in
// shared memory, four threads add up one partial each.
template <bool own, unsigned teams, unsigned piece>
struct Rows {
  static constexpr unsigned TEAM = {TEAM}, CHUNK = {CHUNK};
  static constexpr unsigned pitch = piece + 4, shares_pitch = TEAM + 4;
  static constexpr unsigned width = own ? TEAM : teams * TEAM;

  static __device__ __forceinline__ unsigned team() { return threadIdx.x / TEAM; }
  static __device__ __forceinline__ unsigned place()
  {
    return own ? threadIdx.x % TEAM : threadIdx.x;
  }
  // An item that is there: threads take four at once, and leave out what is beyond the last.
  static __device__ __forceinline__ unsigned inside(unsigned item, unsigned count)
  {
    return item < count ? item : count - 1;
  }
  // Where an item of an own row is staged.
  static __device__ __forceinline__ unsigned at(unsigned item) { return team() * pitch + item; }

  template <typename T, typename Join>
  static __device__ __forceinline__ T added(T part, unsigned length, const T* first, Join join)
  {
#pragma unroll 8
    for (unsigned item = threadIdx.x % 4; item < length; item += 4) part = join(part, first[item]);
    return part;
  }

  template <typename T, typename Join>
  static __device__ __forceinline__ T joined(const T* parts, unsigned team, Join join)
  {
    const T* p = parts + 4 * team;
    return join(join(p[0], p[2]), join(p[1], p[3]));
  }

  // Any order gives the same bits: each thread its share, then the shares. Elements stay in `kept`.
  template <typename T, typename Element, typename Join>
  static __device__ __forceinline__ T freely(
    unsigned count, T start, T* shares, T* parts, Element element, Join join, T* kept = nullptr)
  {
    T share = start;
    for (unsigned item = place(); item < count; item += 4 * width) {
      T value[4];
#pragma unroll
      for (unsigned n = 0; n < 4; ++n) value[n] = element(inside(item + n * width, count));
#pragma unroll
      for (unsigned n = 0; n < 4; ++n) {
        if (kept) kept[at(item + n * width)] = value[n];
        if (item + n * width < count) share = join(share, value[n]);
      }
    }
    shares[team() * shares_pitch + threadIdx.x % TEAM] = share;
    __syncthreads();
    if (threadIdx.x < 4 * teams)
      parts[threadIdx.x] = added(start, TEAM, shares + threadIdx.x / 4 * shares_pitch, join);
    __syncthreads();
    if (own) return joined(parts, team(), join);
    T total = joined(parts, 0, join);
    for (unsigned other = 1; other < teams; ++other)
      total = join(total, joined(parts, other, join));
    return total;
  }

  // Chunks in order, in each four partials in order.
  template <typename T, typename Element, typename Join>
  static __device__ __forceinline__ T in_order(
    unsigned count, T start, T* stage, T* parts, Element element, Join join)
  {
    const T* mine = stage + threadIdx.x / 4 * pitch;
    if (own) {
      for (unsigned item = place(); item < count; item += 4 * width) {
        T value[4];
#pragma unroll
        for (unsigned n = 0; n < 4; ++n) value[n] = element(inside(item + n * width, count));
#pragma unroll
        for (unsigned n = 0; n < 4; ++n) stage[at(item + n * width)] = value[n];
      }
      __syncthreads();
      if (threadIdx.x < 4 * teams) parts[threadIdx.x] = added(start, count, mine, join);
      __syncthreads();
      return joined(parts, team(), join);
    }
    T total = start;
    for (unsigned first = 0; first == 0 || first < count; first += teams * CHUNK) {
      const unsigned left = count - first, chunks = (left + CHUNK - 1) / CHUNK;
      const unsigned present = chunks < teams ? chunks : teams;
      T part = start;
      for (unsigned done = 0; done == 0 || (done < CHUNK && done < left); done += piece) {
        for (unsigned item = place(); item < present * piece; item += 4 * width) {
          T value[4];
#pragma unroll
          for (unsigned n = 0; n < 4; ++n) {
            const unsigned k = item + n * width, from = k / piece * CHUNK + done + k % piece;
            value[n] = element(first + inside(from, left));
          }
#pragma unroll
          for (unsigned n = 0; n < 4; ++n) {
            const unsigned k = item + n * width;
            stage[k / piece * pitch + k % piece] = value[n];
          }
        }
        __syncthreads();
        if (threadIdx.x < 4 * teams) {
          const unsigned begin = threadIdx.x / 4 * CHUNK + done;
          const unsigned rest = begin < left ? left - begin : 0;
          part = added(part, rest < piece ? rest : piece, mine, join);
          parts[threadIdx.x] = part;
        }
        __syncthreads();
      }
      const T sum = joined(parts, 0, join);
      total = first == 0 ? sum : join(total, sum);
      for (unsigned other = 1; other < present; ++other)
        total = join(total, joined(parts, other, join));
    }
    return total;
  }
};
""".replace("{TEAM}", str(TEAM)).replace("{CHUNK}", str(CHUNK))
