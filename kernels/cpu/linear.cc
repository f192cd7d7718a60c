#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

// A unit is two panels: 32 outputs, one block of the next activation.
constexpr uint32_t kUnit = 2 * kPanel;
constexpr uint32_t kUnitPanels = 2;
struct Tile {
  alignas(64) float values[kTileRows][kUnit];
};

// Where the 16 sums of each row go.
struct Target {
  float* out = nullptr;
  size_t stride = 0;
  bool add = false;
};

template <typename B>
void DensePanelTimes(void (*kernel)(const DensePanel<B>&), const std::byte* panel,
                     const CpuActivation& in, Rows rows, const Target& target) {
  const auto* run = reinterpret_cast<const B*>(panel);
  DensePanel<B> args;
  args.a = in.values(rows.first);
  args.a_stride = in.cols();
  args.runs = &run;
  args.run = args.k = in.cols();
  args.b_stride = kPanel;
  args.rows = rows.count;
  args.out = target.out;
  args.out_stride = target.stride;
  args.store = target.add ? DenseStore::kAdd : DenseStore::kReplace;
  kernel(args);
}

template <typename Q>
void QuantizedPanelTimes(void (*kernel)(const QuantizedPanel<Q>&), const std::byte* panel,
                         const QuantizedRows<Q>& in, uint32_t blocks, uint32_t rows,
                         const Target& target) {
  QuantizedPanel<Q> args;
  args.panel = reinterpret_cast<const uint8_t*>(panel);
  args.blocks = blocks;
  args.in = in;
  args.rows = rows;
  args.out = target.out;
  args.out_stride = target.stride;
  args.add = target.add;
  kernel(args);
}

// These blocks of a panel of 4-bit weights, one after the other; until the next call on the thread.
const std::byte* BlocksOf(TensorType type, const std::byte* panel,
                          std::span<const uint32_t> blocks) {
  static thread_local AlignedArray<std::byte> copy;
  static thread_local size_t room = 0;
  const size_t block_bytes = type == TensorType::kQ4_0 ? sizeof(PanelQ4_0) : sizeof(PanelQ4_1);
  if (room < blocks.size() * block_bytes) {
    room = blocks.size() * block_bytes;
    copy = AlignedArray<std::byte>(room);
  }
  std::byte* to = copy.get();
  for (const uint32_t block : blocks) {
    std::memcpy(to, panel + block * block_bytes, block_bytes);
    to += block_bytes;
  }
  return copy.get();
}

void PanelTimes(const Tier& tier, const WeightPart& part, uint32_t panel, const CpuActivation& in,
                Rows rows, const Target& target) {
  const std::byte* data = part.panel(panel);
  switch (part.type) {
    case TensorType::kF32:
      return DensePanelTimes(tier.dense_float, data, in, rows, target);
    case TensorType::kF16:
      return DensePanelTimes(tier.dense_half, data, in, rows, target);
    case TensorType::kBF16:
      return DensePanelTimes(tier.dense_bfloat16, data, in, rows, target);
    case TensorType::kQ4_0:
    case TensorType::kQ4_1: {
      const auto kernel = part.type == TensorType::kQ4_0 ? tier.linear_q4_0 : tier.linear_q4_1;
      QuantizedPanelTimes(kernel, data, in.int8_rows(rows.first), in.blocks(), rows.count, target);
      if (part.residual == 0) return;
      const ResidualTile residual = in.residual(rows.first);
      const auto blocks = static_cast<uint32_t>(residual.blocks.size());
      if (blocks == 0) return;
      return QuantizedPanelTimes(kernel, BlocksOf(part.type, data, residual.blocks), residual.rows,
                                 blocks, rows.count, {target.out, target.stride, true});
    }
    case TensorType::kQ8_0:
      return QuantizedPanelTimes(tier.linear_q8_0, data, in.int16_rows(rows.first), in.blocks(),
                                 rows.count, target);
  }
}

// One row times the two panels from `panel` on; false where the format or the tier has no kernel
// for that. Quantised weights gain nothing by it (measured).
bool PairTimes(const Tier& tier, const WeightPart& part, uint32_t panel, const CpuActivation& in,
               Rows row, const Target& target) {
  if (tier.pair_half == nullptr) return false;
  const std::byte* data = part.panel(panel);
  switch (part.type) {
    case TensorType::kF32:
      DensePanelTimes(tier.pair_float, data, in, row, target);
      return true;
    case TensorType::kF16:
      DensePanelTimes(tier.pair_half, data, in, row, target);
      return true;
    case TensorType::kBF16:
      DensePanelTimes(tier.pair_bfloat16, data, in, row, target);
      return true;
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ8_0:
      break;
  }
  return false;
}

uint32_t UnitsOf(const WeightPart& part) { return (part.panels + kUnitPanels - 1) / kUnitPanels; }

// The last panel of a tensor whose rows are no multiple of 16: by way of a tile.
void NarrowPanelTimes(const Tier& tier, const WeightPart& part, uint32_t panel,
                      const CpuActivation& in, Rows rows, const Target& target) {
  Tile tile;
  PanelTimes(tier, part, panel, in, rows, {tile.values[0], kUnit, false});
  for (uint32_t r = 0; r < rows.count; ++r) {
    float* to = target.out + r * target.stride;
    for (uint32_t n = 0; n < part.width(panel); ++n) {
      to[n] = target.add ? to[n] + tile.values[r][n] : tile.values[r][n];
    }
  }
}

// The outputs of a unit; returns how many there are.
uint32_t UnitTimes(const Tier& tier, const WeightPart& part, uint32_t unit, const CpuActivation& in,
                   Rows rows, const Target& target) {
  const uint32_t first = unit * kUnitPanels;
  const uint32_t end = std::min(first + kUnitPanels, part.panels);
  const uint32_t width = std::min(kUnit, part.rows - first * kPanel);
  const bool pair = rows.count == 1 && width == kUnit;
  if (pair && PairTimes(tier, part, first, in, rows, target)) return width;
  for (uint32_t panel = first; panel < end; ++panel) {
    const Target to{target.out + (panel - first) * kPanel, target.stride, target.add};
    if (part.width(panel) == kPanel) {
      PanelTimes(tier, part, panel, in, rows, to);
    } else {
      NarrowPanelTimes(tier, part, panel, in, rows, to);
    }
  }
  return width;
}

// Calls body(first unit, end, rows) for all units and rows of `in`. Bands of rows come one after
// the other: what follows the last output of a band is done while other threads have the next one.
template <typename Body>
void ForTiles(ThreadPool& pool, uint32_t units, const CpuActivation& in, const Body& body) {
  const auto run = [&](uint32_t begin, uint32_t end) {
    if (in.rows() <= kTileRows) return body(begin, end, Rows{0, in.rows()});
    for (uint32_t claim = begin; claim < end; ++claim) {
      const uint32_t first = claim / units * kBandRows;
      const uint32_t last = std::min(first + kBandRows, in.rows());
      for (uint32_t row = first; row < last; row += kTileRows) {
        body(claim % units, claim % units + 1, Rows{row, std::min(kTileRows, last - row)});
      }
    }
  };
  constexpr uint32_t kMaxClaims = 0xffff;
  const uint32_t claims = units * ((in.rows() + kBandRows - 1) / kBandRows);
  if (claims <= kMaxClaims) return pool.RunNeighbours(claims, run);
  pool.ForRange(claims, 1, run);
}

// Finds the part of unit `index`, which becomes an index within it.
const WeightPart& PartOf(const CpuWeight& w, uint32_t& index) {
  const WeightPart* part = w.parts().data();
  for (; index >= UnitsOf(*part); ++part) index -= UnitsOf(*part);
  return *part;
}

// gate = silu(gate) * up, in one call where rows have no gaps.
void GatedTile(const Tier& tier, uint32_t rows, uint32_t width, const Tile& up, Tile& gate) {
  if (width == kUnit) {
    return tier.swiglu(gate.values[0], up.values[0], size_t{rows} * kUnit, gate.values[0]);
  }
  for (uint32_t r = 0; r < rows; ++r) {
    tier.swiglu(gate.values[r], up.values[r], width, gate.values[r]);
  }
}

}  // namespace

void RunLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
               const LinearOutput& out) {
  BATON_CHECK(!w.gate_up() && in.cols() == w.inputs() && out.values.cols() == w.outputs());
  BATON_CHECK((w.input_forms() & ~in.forms()) == 0 && in.rows() == out.values.rows());
  uint32_t units = 0;
  for (const WeightPart& part : w.parts()) units += UnitsOf(part);
  ForTiles(pool, units, in, [&](uint32_t first, uint32_t last, Rows rows) {
    uint32_t begin = 0;
    uint32_t end = 0;
    for (uint32_t unit = first; unit < last; ++unit) {
      uint32_t of_part = unit;
      const WeightPart& part = PartOf(w, of_part);
      const uint32_t at = part.first_output + of_part * kUnit;
      if (unit == first) begin = at;
      const Target target{out.values.values(rows.first) + at, out.values.cols(), out.add};
      end = at + UnitTimes(tier, part, of_part, in, rows, target);
    }
    if (out.epilogue != nullptr) out.epilogue->Finished(rows, begin, end);
  });
}

void RunGatedLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
                    CpuActivation& out) {
  BATON_CHECK(w.gate_up() && in.cols() == w.inputs() && out.cols() == w.outputs());
  BATON_CHECK((w.input_forms() & ~in.forms()) == 0 && in.rows() == out.rows());
  const auto run = [&](uint32_t unit, Rows rows) {
    Tile gate;
    Tile up;
    const uint32_t width =
        UnitTimes(tier, w.parts()[0], unit, in, rows, {gate.values[0], kUnit, false});
    UnitTimes(tier, w.parts()[1], unit, in, rows, {up.values[0], kUnit, false});
    GatedTile(tier, rows.count, width, up, gate);
    for (uint32_t r = 0; r < rows.count; ++r) {
      if ((out.forms() & kFloat) == 0) break;
      std::memcpy(out.values(rows.first + r) + unit * kUnit, gate.values[r], width * sizeof(float));
    }
    out.Quantize(tier, gate.values[0], kUnit, rows.first, rows.count, unit, 1);
  };
  ForTiles(pool, UnitsOf(w.parts()[0]), in, [&](uint32_t first, uint32_t last, Rows rows) {
    for (uint32_t unit = first; unit < last; ++unit) run(unit, rows);
  });
}

}  // namespace baton::kernels::cpu
