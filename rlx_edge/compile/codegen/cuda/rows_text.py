"""Reductions by several threads of a workgroup, as C++ functions that kernels by rows call.

They keep the numerics contract bit for bit. ``own`` is whether each team has a row of its own;
otherwise the workgroup has one, and its teams take chunks of it side by side. Between any two
accesses of shared memory by different threads there is a barrier, also from one call to the next:
``stage`` is written before a call's first barrier and read after it, ``parts`` the other way round.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.kernel_form import CHUNK, PARTIALS
from rlx_edge.compile.workgroups import PIECE, PITCH, TEAM, TEAMS

STAGE = TEAMS * PITCH
"""Elements of ``stage``."""
PARTS = TEAMS * PARTIALS
"""Elements of ``parts``."""

FUNCTIONS = (
    """\
// Rows: of each team's elements in shared memory, four threads add up one partial each.
constexpr unsigned TEAMS = {TEAMS}, TEAM = {TEAM}, CHUNK = {CHUNK}, PIECE = {PIECE};
constexpr unsigned PITCH = {PITCH};

static __device__ __forceinline__ unsigned own_team() { return threadIdx.x / TEAM; }
static __device__ __forceinline__ unsigned own_place() { return threadIdx.x % TEAM; }

template <typename T, typename Join>
static __device__ __forceinline__ T added(T part, unsigned length, const T* stage, Join join)
{
  const T* mine = stage + threadIdx.x / 4 * PITCH;
#pragma unroll 8
  for (unsigned item = threadIdx.x % 4; item < length; item += 4) part = join(part, mine[item]);
  return part;
}

template <typename T, typename Join>
static __device__ __forceinline__ T joined(const T* parts, unsigned team, Join join)
{
  const T* p = parts + 4 * team;
  return join(join(p[0], p[2]), join(p[1], p[3]));
}

// Any order gives the same bits: each thread its share, then the shares.
template <bool own, typename T, typename Element, typename Join>
static __device__ __forceinline__ T reduce_freely(
  unsigned count, T start, T* stage, T* parts, Element element, Join join)
{
  T share = start;
  const unsigned width = own ? TEAM : TEAMS * TEAM;
  for (unsigned item = own ? own_place() : threadIdx.x; item < count; item += width)
    share = join(share, element(item));
  stage[own_team() * PITCH + own_place()] = share;
  __syncthreads();
  if (threadIdx.x < 4 * TEAMS) parts[threadIdx.x] = added(start, TEAM, stage, join);
  __syncthreads();
  if (own) return joined(parts, own_team(), join);
  T total = joined(parts, 0, join);
  for (unsigned team = 1; team < TEAMS; ++team) total = join(total, joined(parts, team, join));
  return total;
}

// Chunks in order, in each four partials in order.
template <bool own, typename T, typename Element, typename Join>
static __device__ __forceinline__ T reduce_in_order(
  unsigned count, T start, T* stage, T* parts, Element element, Join join)
{
  const unsigned chunk = own ? 0 : threadIdx.x / 4 * CHUNK;
  T total = start;
  for (unsigned first = 0; first == 0 || first < count; first += own ? CHUNK : TEAMS * CHUNK) {
    const unsigned left = count - first, chunks = (left + CHUNK - 1) / CHUNK;
    T part = start;
    for (unsigned piece = 0; piece == 0 || (piece < CHUNK && piece < left); piece += PIECE) {
      if (own) {
        for (unsigned item = own_place(); item < PIECE && piece + item < left; item += TEAM)
          stage[own_team() * PITCH + item] = element(first + piece + item);
      } else {
        const unsigned present = (chunks < TEAMS ? chunks : TEAMS) * PIECE;
        for (unsigned item = threadIdx.x; item < present; item += TEAMS * TEAM) {
          const unsigned at = item / PIECE * CHUNK + piece + item % PIECE;
          if (at < left) stage[item / PIECE * PITCH + item % PIECE] = element(first + at);
        }
      }
      __syncthreads();
      if (threadIdx.x < 4 * TEAMS) {
        const unsigned begin = chunk + piece;
        const unsigned rest = begin < left ? left - begin : 0;
        part = added(part, rest < PIECE ? rest : PIECE, stage, join);
        parts[threadIdx.x] = part;
      }
      __syncthreads();
    }
    const T sum = joined(parts, own ? own_team() : 0, join);
    total = first == 0 ? sum : join(total, sum);
    for (unsigned team = 1; !own && team < TEAMS && team < chunks; ++team)
      total = join(total, joined(parts, team, join));
  }
  return total;
}
""".replace("{TEAMS}", str(TEAMS))
    .replace("{TEAM}", str(TEAM))
    .replace("{PIECE}", str(PIECE))
    .replace("{PITCH}", str(PITCH))
    .replace("{CHUNK}", str(CHUNK))
)
