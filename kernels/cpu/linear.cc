#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

// A unit is two panels: 32 outputs, one block of the next activation.
constexpr uint32_t kUnit = 2 * kPanel;
constexpr uint32_t kUnitPanels = 2;
// Rows that one panel meets before the next panel is taken; their results wait in a tile on the
// stack, which with two panels fits the first-level cache.
constexpr uint32_t kTileRows = 32;

struct Tile {
  alignas(64) float values[kTileRows][kUnit];
};

struct Rows {
  uint32_t first = 0;
  uint32_t count = 0;
};

template <typename B>
void DensePanelTimes(void (*kernel)(const DensePanel<B>&), const std::byte* panel,
                     const CpuActivation& in, Rows rows, float* out) {
  const auto* run = reinterpret_cast<const B*>(panel);
  DensePanel<B> args;
  args.a = in.values(rows.first);
  args.a_stride = in.cols();
  args.runs = &run;
  args.run = args.k = in.cols();
  args.b_stride = kPanel;
  args.rows = rows.count;
  args.out = out;
  args.out_stride = kUnit;
  kernel(args);
}

template <typename Q>
void QuantizedPanelTimes(void (*kernel)(const QuantizedPanel<Q>&), const std::byte* panel,
                         const QuantizedRows<Q>& in, uint32_t blocks, Rows rows, float* out) {
  QuantizedPanel<Q> args;
  args.panel = reinterpret_cast<const uint8_t*>(panel);
  args.blocks = blocks;
  args.in = in;
  args.rows = rows.count;
  args.out = out;
  args.out_stride = kUnit;
  kernel(args);
}

// out [rows.count][32]: columns 0..15 are written.
void PanelTimes(const Tier& tier, const WeightPart& part, uint32_t panel, const CpuActivation& in,
                Rows rows, float* out) {
  const std::byte* data = part.panel(panel);
  switch (part.type) {
    case TensorType::kF32:
      return DensePanelTimes(tier.dense_float, data, in, rows, out);
    case TensorType::kF16:
      return DensePanelTimes(tier.dense_half, data, in, rows, out);
    case TensorType::kQ4_1:
      return QuantizedPanelTimes(tier.linear_q4_1, data, in.int8_rows(rows.first), in.blocks(),
                                 rows, out);
    case TensorType::kQ8_0:
      return QuantizedPanelTimes(tier.linear_q8_0, data, in.int16_rows(rows.first), in.blocks(),
                                 rows, out);
  }
}

// The 32 outputs from panel `2 * unit` of a part; returns how many there are.
uint32_t UnitTimes(const Tier& tier, const WeightPart& part, uint32_t unit, const CpuActivation& in,
                   Rows rows, Tile& tile) {
  uint32_t width = 0;
  const uint32_t first = unit * kUnitPanels;
  for (uint32_t panel = first; panel < std::min(first + kUnitPanels, part.panels); ++panel) {
    PanelTimes(tier, part, panel, in, rows, &tile.values[0][width]);
    width += part.width(panel);
  }
  return width;
}

uint32_t UnitsOf(const WeightPart& part) { return (part.panels + kUnitPanels - 1) / kUnitPanels; }

void Store(const Tile& tile, Rows rows, uint32_t column, uint32_t width, LinearStore store,
           CpuActivation& out) {
  for (uint32_t r = 0; r < rows.count; ++r) {
    float* to = out.values(rows.first + r) + column;
    const float* from = tile.values[r];
    if (store == LinearStore::kReplace) {
      std::memcpy(to, from, width * sizeof(float));
    } else {
      for (uint32_t n = 0; n < width; ++n) to[n] += from[n];
    }
  }
}

// Calls body(rows) for all rows of `in`, one tile at a time.
template <typename Body>
void ForTileRows(const CpuActivation& in, const Body& body) {
  for (uint32_t row = 0; row < in.rows(); row += kTileRows) {
    body(Rows{row, std::min(kTileRows, in.rows() - row)});
  }
}

// Finds the part of unit `index`, which becomes an index within it.
const WeightPart& PartOf(const CpuWeight& w, uint32_t& index) {
  const WeightPart* part = w.parts().data();
  for (; index >= UnitsOf(*part); ++part) index -= UnitsOf(*part);
  return *part;
}

}  // namespace

void RunLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
               LinearStore store, CpuActivation& out) {
  BATON_CHECK(!w.gate_up() && in.cols() == w.inputs() && out.cols() == w.outputs());
  BATON_CHECK((w.input_forms() & ~in.forms()) == 0 && in.rows() == out.rows());
  uint32_t units = 0;
  for (const WeightPart& part : w.parts()) units += UnitsOf(part);
  pool.ForRange(units, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t index = begin; index < end; ++index) {
      uint32_t unit = index;
      const WeightPart& part = PartOf(w, unit);
      ForTileRows(in, [&](Rows rows) {
        Tile tile;
        const uint32_t width = UnitTimes(tier, part, unit, in, rows, tile);
        Store(tile, rows, part.first_output + unit * kUnit, width, store, out);
      });
    }
  });
}

void RunGatedLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
                    CpuActivation& out) {
  BATON_CHECK(w.gate_up() && in.cols() == w.inputs() && out.cols() == w.outputs());
  BATON_CHECK((w.input_forms() & ~in.forms()) == 0 && in.rows() == out.rows());
  pool.ForRange(UnitsOf(w.parts()[0]), 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t unit = begin; unit < end; ++unit) {
      ForTileRows(in, [&](Rows rows) {
        Tile gate;
        Tile up;
        const uint32_t width = UnitTimes(tier, w.parts()[0], unit, in, rows, gate);
        UnitTimes(tier, w.parts()[1], unit, in, rows, up);
        for (uint32_t r = 0; r < rows.count; ++r) {
          tier.swiglu(gate.values[r], up.values[r], width, gate.values[r]);
        }
        if ((out.forms() & kFloat) != 0) {
          Store(gate, rows, unit * kUnit, width, LinearStore::kReplace, out);
        }
        out.Quantize(tier, gate.values[0], kUnit, rows.first, rows.count, unit, 1);
      });
    }
  });
}

}  // namespace baton::kernels::cpu
