#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

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
      if (!part.fine_input) return;
      return QuantizedPanelTimes(kernel, data, in.residual_rows(rows.first), in.blocks(),
                                 rows.count, {target.out, target.stride, true});
    }
    case TensorType::kQ8_0:
      return QuantizedPanelTimes(tier.linear_q8_0, data, in.int16_rows(rows.first), in.blocks(),
                                 rows.count, target);
  }
}

uint32_t UnitsOf(const WeightPart& part) { return (part.panels + kUnitPanels - 1) / kUnitPanels; }

// Calls body(panel) for the panels of a unit.
template <typename Body>
void ForPanels(const WeightPart& part, uint32_t unit, const Body& body) {
  const uint32_t first = unit * kUnitPanels;
  for (uint32_t panel = first; panel < std::min(first + kUnitPanels, part.panels); ++panel) {
    body(panel);
  }
}

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

// The outputs of a unit of a gate or up tensor into a tile; returns how many there are.
uint32_t UnitTimes(const Tier& tier, const WeightPart& part, uint32_t unit, const CpuActivation& in,
                   Rows rows, Tile& tile) {
  uint32_t width = 0;
  ForPanels(part, unit, [&](uint32_t panel) {
    PanelTimes(tier, part, panel, in, rows, {&tile.values[0][width], kUnit, false});
    width += part.width(panel);
  });
  return width;
}

// Calls body(rows) for all rows of `in`, one tile at a time.
template <typename Body>
void ForTileRows(const CpuActivation& in, const Body& body) {
  for (uint32_t row = 0; row < in.rows(); row += kTileRows) {
    body(Rows{row, std::min(kTileRows, in.rows() - row)});
  }
}

// With many rows a unit is worth a claim of its own, and small pieces end together.
template <typename Body>
void ForUnits(ThreadPool& pool, uint32_t units, uint32_t rows, const Body& body) {
  constexpr uint32_t kManyRows = 8;
  if (rows >= kManyRows && units < 4096) return pool.Run(units, body);
  pool.ForRange(units, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t unit = begin; unit < end; ++unit) body(unit);
  });
}

// Finds the part of unit `index`, which becomes an index within it.
const WeightPart& PartOf(const CpuWeight& w, uint32_t& index) {
  const WeightPart* part = w.parts().data();
  for (; index >= UnitsOf(*part); ++part) index -= UnitsOf(*part);
  return *part;
}

}  // namespace

void RunLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
               const LinearOutput& out) {
  BATON_CHECK(!w.gate_up() && in.cols() == w.inputs() && out.values.cols() == w.outputs());
  BATON_CHECK((w.input_forms() & ~in.forms()) == 0 && in.rows() == out.values.rows());
  uint32_t units = 0;
  for (const WeightPart& part : w.parts()) units += UnitsOf(part);
  ForUnits(pool, units, in.rows(), [&](uint32_t unit) {
    const WeightPart& part = PartOf(w, unit);
    ForTileRows(in, [&](Rows rows) {
      uint32_t end = part.first_output + unit * kUnit;
      const uint32_t begin = end;
      ForPanels(part, unit, [&](uint32_t panel) {
        const Target target{out.values.values(rows.first) + end, out.values.cols(), out.add};
        const bool full = part.width(panel) == kPanel;
        (full ? PanelTimes : NarrowPanelTimes)(tier, part, panel, in, rows, target);
        end += part.width(panel);
      });
      if (out.epilogue != nullptr) out.epilogue->Finished(rows, begin, end);
    });
  });
}

void RunGatedLinear(const Tier& tier, ThreadPool& pool, const CpuWeight& w, const CpuActivation& in,
                    CpuActivation& out) {
  BATON_CHECK(w.gate_up() && in.cols() == w.inputs() && out.cols() == w.outputs());
  BATON_CHECK((w.input_forms() & ~in.forms()) == 0 && in.rows() == out.rows());
  ForUnits(pool, UnitsOf(w.parts()[0]), in.rows(), [&](uint32_t unit) {
    ForTileRows(in, [&](Rows rows) {
      Tile gate;
      Tile up;
      const uint32_t width = UnitTimes(tier, w.parts()[0], unit, in, rows, gate);
      UnitTimes(tier, w.parts()[1], unit, in, rows, up);
      for (uint32_t r = 0; r < rows.count; ++r) {
        tier.swiglu(gate.values[r], up.values[r], width, gate.values[r]);
        if ((out.forms() & kFloat) == 0) continue;
        std::memcpy(out.values(rows.first + r) + unit * kUnit, gate.values[r],
                    width * sizeof(float));
      }
      out.Quantize(tier, gate.values[0], kUnit, rows.first, rows.count, unit, 1);
    });
  });
}

}  // namespace baton::kernels::cpu
