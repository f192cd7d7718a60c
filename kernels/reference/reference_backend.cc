#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/reference/matrix.h"

namespace baton::kernels {
namespace {

using reference::Matrix;

struct ReferenceWeight : PackedWeight {
  explicit ReferenceWeight(Matrix m)
      : PackedWeight(m.outputs(), m.inputs()), matrix(std::move(m)) {}
  const Matrix matrix;
};

// [rows, cols], row-major.
struct ReferenceActivation : Activation {
  ReferenceActivation(uint32_t max_rows, uint32_t cols)
      : Activation(max_rows, cols), values(size_t{max_rows} * cols) {}
  double* Row(uint32_t row) { return &values[size_t{row} * cols()]; }
  const double* Row(uint32_t row) const { return &values[size_t{row} * cols()]; }
  std::vector<double> values;
};

// cos and sin of angle(position, i): [context, dims / 2].
struct ReferenceRope : RopeTable {
  explicit ReferenceRope(const RopeSpec& s) : spec(s), half(s.dims / 2) {
    for (uint32_t position = 0; position < spec.context; ++position) {
      for (uint32_t i = 0; i < half; ++i) {
        const double factor = spec.factors.empty() ? 1.0 : spec.factors[i];
        const double angle = position * std::pow(spec.base, -2.0 * i / spec.dims) / factor;
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
    }
  }

  void Rotate(uint32_t position, double* head) const {
    const bool neighbours = spec.pairing == RopeSpec::Pairing::kNeighbours;
    for (uint32_t i = 0; i < half; ++i) {
      double& a = head[neighbours ? 2 * i : i];
      double& b = head[neighbours ? 2 * i + 1 : i + half];
      const double cosine = cosines[size_t{position} * half + i];
      const double sine = sines[size_t{position} * half + i];
      const double rotated = a * cosine - b * sine;
      b = a * sine + b * cosine;
      a = rotated;
    }
  }

  const RopeSpec spec;
  const uint32_t half;
  std::vector<double> cosines;
  std::vector<double> sines;
};

const Matrix& MatrixOf(const PackedWeight& weight) {
  return static_cast<const ReferenceWeight&>(weight).matrix;
}
ReferenceActivation& Of(Activation& a) { return static_cast<ReferenceActivation&>(a); }
const ReferenceActivation& Of(const Activation& a) {
  return static_cast<const ReferenceActivation&>(a);
}

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

absl::Status CheckTensor(const RawTensor& tensor) {
  const auto info = InfoOf(tensor.type);
  if (!info.has_value()) {
    return absl::UnimplementedError("tensor '" + std::string(tensor.name) + "': type " +
                                    std::to_string(static_cast<uint32_t>(tensor.type)) +
                                    " is not supported");
  }
  if (tensor.rows == 0 || tensor.cols == 0 || tensor.cols % info->block_values != 0 ||
      tensor.bytes.size() != tensor.rows * (tensor.cols / info->block_values) * info->block_bytes) {
    return absl::InvalidArgumentError("tensor '" + std::string(tensor.name) +
                                      "': its bytes do not match its shape");
  }
  return absl::OkStatus();
}

// One sequence's keys and values of one layer, found through its block table.
class PagedKv {
 public:
  PagedKv(const kv::KvView& view, uint32_t layer, const SequenceRows& sequence)
      : view_(view),
        layer_(layer),
        spec_(view.layout->layers[layer].arenas[kv::kKeyArena]),
        table_(sequence.tables[view.layout->layers[layer].group]) {}

  double* Key(uint32_t position, uint32_t head) const { return At(kv::kKeyArena, position, head); }
  double* Value(uint32_t position, uint32_t head) const {
    return At(kv::kValueArena, position, head);
  }

 private:
  double* At(uint32_t arena, uint32_t position, uint32_t head) const {
    const uint32_t block_size = view_.layout->block_size;
    auto* piece =
        reinterpret_cast<double*>(view_.Piece(layer_, arena, table_[position / block_size]));
    return piece + (size_t{head} * block_size + position % block_size) * spec_.head_dim;
  }

  const kv::KvView& view_;
  const uint32_t layer_;
  const kv::KvArenaSpec& spec_;
  const std::span<const kv::BlockId> table_;
};

// out = softmax(q . K / sqrt(head_dim)) V over positions [first, last].
void AttendHead(const PagedKv& kv, uint32_t kv_head, uint32_t first, uint32_t last,
                const double* query, uint32_t head_dim, double* out) {
  std::vector<double> scores;
  for (uint32_t position = first; position <= last; ++position) {
    const double* key = kv.Key(position, kv_head);
    double dot = 0;
    for (uint32_t d = 0; d < head_dim; ++d) dot += query[d] * key[d];
    scores.push_back(dot / std::sqrt(static_cast<double>(head_dim)));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - max);
  std::fill(out, out + head_dim, 0.0);
  for (uint32_t position = first; position <= last; ++position) {
    const double weight = scores[position - first] / sum;
    const double* value = kv.Value(position, kv_head);
    for (uint32_t d = 0; d < head_dim; ++d) out[d] += weight * value[d];
  }
}

// One row of q, k and v heads: rotates q and k, stores k and v.
void RotateAndStore(const ReferenceRope& rope, const HeadShape& shape, const PagedKv& kv,
                    uint32_t position, double* q) {
  BATON_CHECK(position < rope.spec.context);
  const uint32_t dim = shape.head_dim;
  double* k = q + shape.heads * dim;
  const double* v = k + shape.kv_heads * dim;
  for (uint32_t h = 0; h < shape.heads; ++h) rope.Rotate(position, q + h * dim);
  for (uint32_t h = 0; h < shape.kv_heads; ++h) {
    rope.Rotate(position, k + h * dim);
    std::copy(k + h * dim, k + (h + 1) * dim, kv.Key(position, h));
    std::copy(v + h * dim, v + (h + 1) * dim, kv.Value(position, h));
  }
}

class ReferenceBackend : public Backend {
 public:
  explicit ReferenceBackend(uint32_t threads) : threads_(threads) {
    BATON_CHECK(threads >= 1 && threads <= 256);
  }

  std::string_view name() const override { return "reference"; }
  std::string numerics() const override { return "reference-1/f64"; }
  uint32_t threads() const override { return threads_; }

  absl::StatusOr<kv::KvLayout> Layout(const kv::UniformKvShape& shape) const override {
    kv::KvLayout layout = MakeUniformLayout(shape, kv::KvDtype::kF64, kv::KvOrder::kHeadSlotDim,
                                            kv::KvOrder::kHeadSlotDim);
    BATON_RETURN_IF_ERROR(layout.Validate());
    return layout;
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(std::span<const RawTensor> parts,
                                                     PartOrder order) override {
    BATON_CHECK(!parts.empty() && (order != PartOrder::kGateUp || parts.size() == 2));
    uint64_t rows = 0;
    for (const RawTensor& part : parts) {
      BATON_RETURN_IF_ERROR(CheckTensor(part));
      BATON_CHECK(part.cols == parts[0].cols);
      rows += part.rows;
    }
    if (rows > UINT32_MAX || parts[0].cols > UINT32_MAX) {
      return absl::InvalidArgumentError("tensor '" + std::string(parts[0].name) + "' is too large");
    }
    Matrix matrix(static_cast<uint32_t>(rows), static_cast<uint32_t>(parts[0].cols));
    std::vector<float> row(parts[0].cols);
    uint32_t output = 0;
    for (const RawTensor& part : parts) {
      const size_t row_bytes = part.bytes.size() / part.rows;
      for (uint64_t r = 0; r < part.rows; ++r) {
        Dequantize(part.type, part.bytes.subspan(r * row_bytes, row_bytes), row);
        matrix.SetRow(output++, row);
      }
    }
    return std::make_unique<ReferenceWeight>(std::move(matrix));
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackGain(const RawTensor& tensor) override {
    if (tensor.rows != 1 || (tensor.type != TensorType::kF32 && tensor.type != TensorType::kF16)) {
      return absl::UnimplementedError("tensor '" + std::string(tensor.name) +
                                      "': gains must be one row of F32 or F16");
    }
    return Pack({&tensor, 1}, PartOrder::kConcatenated);
  }

  absl::StatusOr<std::unique_ptr<RopeTable>> MakeRope(const RopeSpec& spec) override {
    if (spec.dims == 0 || spec.dims % 2 != 0 || spec.context == 0 ||
        (!spec.factors.empty() && spec.factors.size() != spec.dims / 2)) {
      return absl::InvalidArgumentError("rope: dims must be even, factors dims / 2");
    }
    return std::make_unique<ReferenceRope>(spec);
  }

  std::unique_ptr<Activation> NewActivation(uint32_t max_rows, uint32_t cols) override {
    return std::make_unique<ReferenceActivation>(max_rows, cols);
  }

  void Embed(const PackedWeight& table, std::span<const TokenId> tokens, Activation& x) override {
    const Matrix& matrix = MatrixOf(table);
    x.set_rows(static_cast<uint32_t>(tokens.size()));
    for (uint32_t r = 0; r < tokens.size(); ++r) {
      const auto token = static_cast<uint32_t>(tokens[r]);
      BATON_CHECK(token < matrix.outputs() && x.cols() == matrix.inputs());
      double* row = Of(x).Row(r);
      for (uint32_t k = 0; k < x.cols(); ++k) row[k] = matrix.At(token, k);
    }
  }

  void Norm(const Activation& x, const NormCall& norm, Activation& out) override {
    const uint32_t cols = x.cols();
    BATON_CHECK(norm.gain.inputs() == cols && out.cols() == cols);
    out.set_rows(x.rows());
    for (uint32_t r = 0; r < x.rows(); ++r) {
      const double* in = Of(x).Row(r);
      double squares = 0;
      for (uint32_t k = 0; k < cols; ++k) squares += in[k] * in[k];
      const double scale = 1.0 / std::sqrt(squares / cols + norm.eps);
      for (uint32_t k = 0; k < cols; ++k) {
        Of(out).Row(r)[k] = in[k] * scale * MatrixOf(norm.gain).At(0, k);
      }
    }
  }

  void Linear(const PackedWeight& w, const Activation& in, Activation& out) override {
    BATON_CHECK(in.cols() == w.inputs() && out.cols() == w.outputs());
    out.set_rows(in.rows());
    const Matrix& matrix = MatrixOf(w);
    ParallelFor(matrix.panels(), [&](uint32_t first, uint32_t last) {
      matrix.Multiply(first, last, Of(in).Row(0), in.rows(), Of(out).Row(0));
    });
  }

  void LinearAdd(const PackedWeight& w, const Activation& in, Activation& x) override {
    ReferenceActivation product(in.rows(), w.outputs());
    Linear(w, in, product);
    BATON_CHECK(x.rows() == in.rows() && x.cols() == w.outputs());
    for (size_t i = 0; i < product.values.size(); ++i) Of(x).values[i] += product.values[i];
  }

  void LinearAddNorm(const PackedWeight& w, const Activation& in, Activation& x,
                     const NormCall& norm, Activation& out) override {
    LinearAdd(w, in, x);
    Norm(x, norm, out);
  }

  void GatedLinear(const PackedWeight& w, const Activation& in, const PackedWeight&,
                   Activation& out) override {
    ReferenceActivation both(in.rows(), w.outputs());  // gate, then up
    Linear(w, in, both);
    BATON_CHECK(out.cols() == w.outputs() / 2);
    out.set_rows(in.rows());
    for (uint32_t r = 0; r < in.rows(); ++r) {
      const double* gate = both.Row(r);
      const double* up = gate + out.cols();
      for (uint32_t k = 0; k < out.cols(); ++k) Of(out).Row(r)[k] = Silu(gate[k]) * up[k];
    }
  }

  void QkvLinear(const PackedWeight& w, const Activation& in, const RopeTable& rope,
                 const LayerCall& call, Activation& qkv) override {
    BATON_CHECK(qkv.cols() == call.heads.qkv_cols() && in.rows() == call.batch.rows);
    Linear(w, in, qkv);
    const auto& table = static_cast<const ReferenceRope&>(rope);
    for (const SequenceRows& sequence : call.batch.sequences) {
      const PagedKv paged(call.kv, call.layer, sequence);
      for (uint32_t i = 0; i < sequence.rows; ++i) {
        RotateAndStore(table, call.heads, paged, sequence.first_position + i,
                       Of(qkv).Row(sequence.first_row + i));
      }
    }
  }

  void Attention(const LayerCall& call, const Activation& qkv, const PackedWeight&,
                 Activation& out) override {
    const HeadShape& shape = call.heads;
    const uint32_t dim = shape.head_dim;
    const kv::KvLayout& layout = *call.kv.layout;
    const uint32_t window = layout.groups[layout.layers[call.layer].group].window;
    BATON_CHECK(out.cols() == shape.heads * dim);
    out.set_rows(call.batch.rows);
    for (const SequenceRows& sequence : call.batch.sequences) {
      const PagedKv paged(call.kv, call.layer, sequence);
      ParallelFor(sequence.rows, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; ++i) {
          const uint32_t row = sequence.first_row + i;
          const uint32_t last = sequence.first_position + i;
          const uint32_t first = window == 0 || last < window ? 0 : last + 1 - window;
          for (uint32_t h = 0; h < shape.heads; ++h) {
            AttendHead(paged, h / (shape.heads / shape.kv_heads), first, last,
                       Of(qkv).Row(row) + h * dim, dim, Of(out).Row(row) + h * dim);
          }
        }
      });
    }
  }

  void Gather(const Activation& x, std::span<const uint32_t> rows, Activation& out) override {
    out.set_rows(static_cast<uint32_t>(rows.size()));
    for (uint32_t i = 0; i < rows.size(); ++i) {
      BATON_CHECK(rows[i] < x.rows());
      std::copy(Of(x).Row(rows[i]), Of(x).Row(rows[i]) + x.cols(), Of(out).Row(i));
    }
  }

  std::vector<absl::StatusOr<sampling::TokenResult>> Sample(
      const Activation& logits, std::span<const SampleRow> rows) override {
    std::vector<absl::StatusOr<sampling::TokenResult>> results;
    for (const SampleRow& row : rows) {
      const std::span<const double> values(Of(logits).Row(row.row), logits.cols());
      results.push_back(sampling::ChooseToken(values, row.request));
    }
    return results;
  }

  std::vector<double> Read(const Activation& activation, uint32_t row) const override {
    const double* values = Of(activation).Row(row);
    return {values, values + activation.cols()};
  }

  void ZeroBlock(const kv::KvView& kv, uint32_t group, kv::BlockId block) override {
    ForEachPiece(kv, group, [&](uint32_t layer, uint32_t arena) {
      std::memset(kv.Piece(layer, arena, block), 0, kv.layout->PieceBytes(layer, arena));
    });
  }

  void CopyBlock(const kv::KvView& kv, uint32_t group, kv::BlockId from, kv::BlockId to) override {
    ForEachPiece(kv, group, [&](uint32_t layer, uint32_t arena) {
      std::memcpy(kv.Piece(layer, arena, to), kv.Piece(layer, arena, from),
                  kv.layout->PieceBytes(layer, arena));
    });
  }

 private:
  template <typename Visit>
  static void ForEachPiece(const kv::KvView& kv, uint32_t group, const Visit& visit) {
    for (const uint32_t layer : kv.layout->LayersOf(group)) {
      for (uint32_t arena = 0; arena < kv.layout->layers[layer].arenas.size(); ++arena) {
        visit(layer, arena);
      }
    }
  }

  // Splits [0, count) among fresh threads: slow to start, nothing to get wrong.
  void ParallelFor(uint32_t count, const std::function<void(uint32_t, uint32_t)>& work) const {
    const uint32_t parts = std::min(threads_, std::max(1u, count / 8));
    std::vector<std::thread> others;
    for (uint32_t part = 1; part < parts; ++part) {
      others.emplace_back(work, Bound(count, part, parts), Bound(count, part + 1, parts));
    }
    work(0, Bound(count, 1, parts));
    for (std::thread& other : others) other.join();
  }

  static uint32_t Bound(uint32_t count, uint32_t part, uint32_t parts) {
    return static_cast<uint32_t>(uint64_t{count} * part / parts);
  }

  const uint32_t threads_;
};

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend(uint32_t threads) {
  return std::make_unique<ReferenceBackend>(threads);
}

}  // namespace baton::kernels
