// The bodies of free_order.h over a vector `V` of 8 or 16 lanes. Included by one file per
// instruction set; everything has internal linkage, as in tile_loop.h.
#ifndef BATON_BENCHMARKS_FREE_ORDER_KERNELS_H_
#define BATON_BENCHMARKS_FREE_ORDER_KERNELS_H_

#include "benchmarks/free_order.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::benchmarks {
namespace {

using kernels::cpu::kBlock;
using kernels::cpu::kPanel;
using kernels::cpu::PanelQ4_1;

constexpr size_t kAhead = 3072;  // bytes of weights

// Blocks in turns go to two sums of each output.
template <typename V, int kRows>
BATON_INLINE void LinearTile(const kernels::cpu::QuantizedPanel<int8_t>& args, uint32_t row) {
  const auto* panel = reinterpret_cast<const PanelQ4_1*>(args.panel);
  const int8_t* q = args.in.q + row * args.in.q_stride;
  const float* scale = args.in.scale + row * args.in.scale_stride;
  const float* scaled_sum = args.in.scaled_sum + row * args.in.scale_stride;
  for (uint32_t lane = 0; lane < kPanel; lane += V::kLanes) {
    typename V::Floats sum[kRows][2];
    UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = V::Zero();
    for (uint32_t pair = 0; pair < args.blocks; pair += 2) {
      UNROLL for (uint32_t turn = 0; turn < 2; ++turn) {
        const uint32_t b = pair + turn;
        if (b >= args.blocks) break;
        if (lane == 0) {
          const char* next = reinterpret_cast<const char*>(panel + b) + kAhead;
          UNROLL for (size_t line = 0; line < sizeof(PanelQ4_1); line += 64) {
            __builtin_prefetch(next + line);
          }
        }
        typename V::Floats dot[kRows];
        V::template NibbleDots<kRows>(panel[b].nibbles, lane, q + b * kBlock, args.in.q_stride,
                                      dot);
        const auto d = V::LoadHalf(panel[b].scale + lane);
        const auto m = V::LoadHalf(panel[b].min + lane);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const size_t at = r * args.in.scale_stride + b;
          sum[r][turn] = V::Fma(V::Multiply(d, V::Broadcast(scale + at)), dot[r], sum[r][turn]);
          sum[r][turn] = V::Fma(m, V::Broadcast(scaled_sum + at), sum[r][turn]);
        }
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) {
      float* out = args.out + (row + r) * args.out_stride + lane;
      const auto total = V::Add(sum[r][0], sum[r][1]);
      V::Store(out, args.add ? V::Add(V::Load(out), total) : total);
    }
  }
}

// Eight sums of a single row, at least two of each of several.
template <typename V, int kRows>
BATON_INLINE void DenseTile(const kernels::cpu::DensePanel<uint16_t>& args, uint32_t row) {
  constexpr int kSums = kRows >= 4 ? 2 : 8 / kRows;
  constexpr int kParts = kPanel / V::kLanes;
  const float* a = args.a + row * args.a_stride;
  const uint16_t* b = *args.runs;
  for (int part = 0; part < kParts; ++part) {
    typename V::Floats sum[kRows][kSums];
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int s = 0; s < kSums; ++s) sum[r][s] = V::Zero();
    }
    for (uint32_t k = 0; k < args.k; k += kSums) {
      UNROLL for (int s = 0; s < kSums; ++s) {
        const auto values = V::LoadHalf(b + (k + s) * args.b_stride + part * V::kLanes);
        UNROLL for (int r = 0; r < kRows; ++r) {
          sum[r][s] = V::Fma(V::Broadcast(a + r * args.a_stride + k + s), values, sum[r][s]);
        }
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) {
      auto total = sum[r][0];
      UNROLL for (int s = 1; s < kSums; ++s) total = V::Add(total, sum[r][s]);
      float* out = args.out + (row + r) * args.out_stride + part * V::kLanes;
      V::Store(out,
               args.store == kernels::cpu::DenseStore::kAdd ? V::Add(V::Load(out), total) : total);
    }
  }
}

template <typename V>
struct FreeLinear {
  static constexpr int kMostRows = V::kTileRows;
  template <int kRows>
  static __attribute__((noinline)) void Tile(const kernels::cpu::QuantizedPanel<int8_t>& args,
                                             uint32_t row) {
    LinearTile<V, kRows>(args, row);
  }
};

template <typename V>
struct FreeDense {
  static constexpr int kMostRows = 6;
  template <int kRows>
  static __attribute__((noinline)) void Tile(const kernels::cpu::DensePanel<uint16_t>& args,
                                             uint32_t row) {
    DenseTile<V, kRows>(args, row);
  }
};

template <typename Kernel, int kRows, typename Args>
BATON_INLINE void RunFreeRows(const Args& args, uint32_t row, uint32_t rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return RunFreeRows<Kernel, kRows - 1>(args, row, rows);
  }
  Kernel::template Tile<kRows>(args, row);
}

template <typename Kernel, typename Args>
BATON_INLINE void RunFree(const Args& args) {
  for (uint32_t row = 0; row < args.rows; row += Kernel::kMostRows) {
    RunFreeRows<Kernel, Kernel::kMostRows>(args, row, args.rows - row);
  }
}

BATON_INLINE void PrefetchBlock(const uint16_t* block) {
  for (uint32_t i = 0; i < kFreeDim * kFreeBlock; i += 32) __builtin_prefetch(block + i, 0, 2);
}

// Two vectors of keys at a time, two sums for each query.
template <typename V>
BATON_INLINE void FreeScores(const FreeKeys& args) {
  constexpr uint32_t kStep = 2 * V::kLanes / kFreeBlock;  // blocks
  for (uint32_t block = 0; block < args.count; block += kStep) {
    const uint32_t second = block + kStep / 2 < args.count ? block + kStep / 2 : block;
    const uint16_t* keys[2] = {args.blocks[block],
                               args.blocks[second] + (kStep == 1 ? V::kLanes : 0)};
    for (uint32_t i = kStep; i < 2 * kStep && block + i < args.count; ++i) {
      PrefetchBlock(args.blocks[block + i]);
    }
    typename V::Floats sum[kFreeGroup][2][2];
    UNROLL for (uint32_t i = 0; i < kFreeGroup; ++i) {
      UNROLL for (int v = 0; v < 2; ++v) sum[i][v][0] = sum[i][v][1] = V::Zero();
    }
    for (uint32_t d = 0; d < kFreeDim; d += 2) {
      UNROLL for (uint32_t turn = 0; turn < 2; ++turn) {
        UNROLL for (int v = 0; v < 2; ++v) {
          const auto k = V::LoadHalf(keys[v] + (d + turn) * kFreeBlock);
          UNROLL for (uint32_t i = 0; i < kFreeGroup; ++i) {
            sum[i][v][turn] =
                V::Fma(V::Broadcast(args.queries + i * kFreeDim + d + turn), k, sum[i][v][turn]);
          }
        }
      }
    }
    UNROLL for (uint32_t i = 0; i < kFreeGroup; ++i) {
      float* out = args.scores + i * args.stride + block * kFreeBlock;
      V::Store(out, V::Add(sum[i][0][0], sum[i][0][1]));
      if (kStep == 1 || second != block) {
        V::Store(out + V::kLanes, V::Add(sum[i][1][0], sum[i][1][1]));
      }
    }
  }
}

// Slices of four vectors of the head; keys in turns go to V::kValueSums sums.
template <typename V>
BATON_INLINE void FreeWeighted(const FreeValues& args) {
  constexpr int kVectors = 4;
  constexpr uint32_t kSums = V::kValueSums;
  for (uint32_t d = 0; d < kFreeDim; d += kVectors * V::kLanes) {
    typename V::Floats sum[kFreeGroup][kVectors][kSums];
    UNROLL for (uint32_t i = 0; i < kFreeGroup; ++i) {
      UNROLL for (int v = 0; v < kVectors; ++v) {
        UNROLL for (uint32_t s = 0; s < kSums; ++s) sum[i][v][s] = V::Zero();
      }
    }
    for (uint32_t begin = 0; begin < args.keys; begin += kFreeBlock) {
      const uint16_t* values = args.blocks[begin / kFreeBlock] + d;
      if (d == 0 && begin + kFreeBlock < args.keys) {
        PrefetchBlock(args.blocks[begin / kFreeBlock + 1]);
      }
      const uint32_t count = args.keys - begin < kFreeBlock ? args.keys - begin : kFreeBlock;
      for (uint32_t key = 0; key < count; key += kSums) {
        UNROLL for (uint32_t s = 0; s < kSums; ++s) {
          if (key + s >= count) break;
          UNROLL for (int v = 0; v < kVectors; ++v) {
            const auto value = V::LoadHalf(values + (key + s) * kFreeDim + v * V::kLanes);
            UNROLL for (uint32_t i = 0; i < kFreeGroup; ++i) {
              const float* weight = args.weights + i * args.stride + begin + key + s;
              sum[i][v][s] = V::Fma(V::Broadcast(weight), value, sum[i][v][s]);
            }
          }
        }
      }
    }
    UNROLL for (uint32_t i = 0; i < kFreeGroup; ++i) {
      UNROLL for (int v = 0; v < kVectors; ++v) {
        auto total = sum[i][v][0];
        UNROLL for (uint32_t s = 1; s < kSums; ++s) total = V::Add(total, sum[i][v][s]);
        V::Store(args.out + i * kFreeDim + d + v * V::kLanes, total);
      }
    }
  }
}

template <typename V>
constexpr FreeKernels FreeKernelsOf() {
  return {[](const kernels::cpu::QuantizedPanel<int8_t>& args) { RunFree<FreeLinear<V>>(args); },
          [](const kernels::cpu::DensePanel<uint16_t>& args) { RunFree<FreeDense<V>>(args); },
          [](const FreeKeys& args) { FreeScores<V>(args); },
          [](const FreeValues& args) { FreeWeighted<V>(args); }};
}

}  // namespace
}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_FREE_ORDER_KERNELS_H_
