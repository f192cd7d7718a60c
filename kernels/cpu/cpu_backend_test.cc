// The backend against plain double arithmetic, and the promise that a row's bits depend on nothing
// but the row: not on the tier, the thread count, its batch mates or the chunking of its prompt.
#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/rope.h"
#include "kernels/cpu/testing.h"
#include "kernels/half.h"
#include "kv/arena.h"

namespace baton::kernels::cpu {
namespace {

struct Configuration {
  std::string_view tier;
  uint32_t threads;
};
constexpr Configuration kConfigurations[] = {{"scalar", 1}, {"", 1}, {"", 2}, {"", 3}};

std::unique_ptr<Backend> Create(const Configuration& configuration) {
  auto backend =
      CreateCpuBackend({.threads = configuration.threads, .tier = std::string(configuration.tier)});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

std::unique_ptr<PackedWeight> PackOne(Backend& backend, const OwnedTensor& tensor) {
  const RawTensor raw = tensor.raw();
  auto weight = backend.Pack({&raw, 1}, PartOrder::kConcatenated);
  EXPECT_TRUE(weight.ok()) << weight.status();
  return *std::move(weight);
}

// An F32 table whose rows are `values`: Embed then puts chosen numbers into an activation.
OwnedTensor Table(const std::vector<float>& values, uint32_t cols) {
  OwnedTensor table{TensorType::kF32, static_cast<uint32_t>(values.size() / cols), cols, {}};
  table.bytes.resize(values.size() * 4);
  std::memcpy(table.bytes.data(), values.data(), table.bytes.size());
  return table;
}

class Fixture {
 public:
  explicit Fixture(const Configuration& configuration) : backend(Create(configuration)) {}

  std::unique_ptr<Activation> Rows(const std::vector<float>& values, uint32_t cols) {
    const auto rows = static_cast<uint32_t>(values.size() / cols);
    auto x = backend->NewActivation(rows, cols);
    std::vector<TokenId> tokens(rows);
    for (uint32_t i = 0; i < rows; ++i) tokens[i] = static_cast<TokenId>(i);
    backend->Embed(*PackOne(*backend, Table(values, cols)), tokens, *x);
    return x;
  }
  std::unique_ptr<PackedWeight> Gain(const std::vector<float>& values) {
    OwnedTensor tensor = Table(values, static_cast<uint32_t>(values.size()));
    auto gain = backend->PackGain(tensor.raw());
    EXPECT_TRUE(gain.ok());
    return *std::move(gain);
  }
  std::vector<double> All(const Activation& a) {
    std::vector<double> all;
    for (uint32_t row = 0; row < a.rows(); ++row) {
      const auto values = backend->Read(a, row);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::unique_ptr<Backend> backend;
};

// sum |w| * (half a quantisation step of its activation block) plus float accumulation.
double LinearTolerance(TensorType type, const float* w, const std::vector<double>& x) {
  const bool nibbles = type == TensorType::kQ4_0 || type == TensorType::kQ4_1;
  const double steps = nibbles ? 127 : type == TensorType::kQ8_0 ? 32767 : 1e30;
  double tolerance = 1e-30;
  for (size_t b = 0; b < x.size(); b += 32) {
    double largest = 0;
    double sum = 0;
    double products = 0;
    for (size_t i = b; i < std::min(b + 32, x.size()); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      sum += std::abs(w[i]);
      products += std::abs(w[i] * x[i]);
    }
    // Q4_1's nibbles and minima are rounded together with the scale: twice the weights' size.
    tolerance += sum * largest / steps * 0.51 + products * 4e-6 + 16 * largest * 0.05 * 4e-6;
  }
  return tolerance;
}

TEST(CpuLinearTest, EveryTypeAndAnyShapeIsCloseToExactArithmetic) {
  std::mt19937_64 random(1);
  for (const auto& configuration : {kConfigurations[0], kConfigurations[2]}) {
    Fixture f(configuration);
    for (TensorType type : kAllTypes) {
      for (const auto& [rows, outputs, inputs] :
           {std::array<uint32_t, 3>{1, 40, 64}, {9, 16, 32}, {70, 7, 96}, {3, 100, 576}}) {
        const auto tensor = RandomTensor(random, type, outputs, inputs);
        const auto w = PackOne(*f.backend, tensor);
        auto x = f.Rows(RandomFloats(random, size_t{rows} * inputs), inputs);
        auto h = f.backend->NewActivation(rows, inputs);
        const auto gain = f.Gain(std::vector<float>(inputs, 1.0f));
        f.backend->Norm(*x, {*gain, 0, *w}, *h);
        auto out = f.backend->NewActivation(rows, outputs);
        f.backend->Linear(*w, *h, *out);
        const auto weights = tensor.Values();
        for (uint32_t r = 0; r < rows; ++r) {
          const auto in = f.backend->Read(*h, r);
          const auto actual = f.backend->Read(*out, r);
          for (uint32_t n = 0; n < outputs; ++n) {
            const float* row = &weights[size_t{n} * inputs];
            double exact = 0;
            for (uint32_t k = 0; k < inputs; ++k) exact += row[k] * in[k];
            ASSERT_NEAR(actual[n], exact, LinearTolerance(type, row, in))
                << InfoOf(type)->name << " row " << r << " output " << n;
          }
        }
      }
    }
  }
}

TEST(CpuLinearTest, EmbedReadsEveryTypeExactly) {
  std::mt19937_64 random(2);
  Fixture f(kConfigurations[1]);
  for (TensorType type : kAllTypes) {
    const auto tensor = RandomTensor(random, type, 37, 96);
    auto x = f.backend->NewActivation(4, 96);
    f.backend->Embed(*PackOne(*f.backend, tensor), std::vector<TokenId>{36, 0, 17, 17}, *x);
    const auto values = tensor.Values();
    for (uint32_t k = 0; k < 96; ++k) {
      EXPECT_EQ(f.backend->Read(*x, 0)[k], values[36 * 96 + k]);
      EXPECT_EQ(f.backend->Read(*x, 3)[k], values[17 * 96 + k]);
    }
  }
}

TEST(CpuNormTest, IsRmsNorm) {
  std::mt19937_64 random(3);
  Fixture f(kConfigurations[1]);
  for (uint32_t cols : {1u, 15u, 64u, 100u}) {
    const auto values = RandomFloats(random, 3 * cols, 5);
    const auto gain = RandomFloats(random, cols);
    const auto w = PackOne(*f.backend, RandomTensor(random, TensorType::kF32, 4, cols));
    auto x = f.Rows(values, cols);
    auto h = f.backend->NewActivation(3, cols);
    const auto packed_gain = f.Gain(gain);
    f.backend->Norm(*x, {*packed_gain, 1e-5f, *w}, *h);
    for (uint32_t r = 0; r < 3; ++r) {
      double sum = 0;
      for (uint32_t k = 0; k < cols; ++k) sum += std::pow(values[r * cols + k], 2.0);
      for (uint32_t k = 0; k < cols; ++k) {
        const double exact = values[r * cols + k] / std::sqrt(sum / cols + 1e-5f) * gain[k];
        EXPECT_NEAR(f.backend->Read(*h, r)[k], exact, std::abs(exact) * 1e-6);
      }
    }
  }
}

// A feed-forward and a joined projection with parts of different types: all operations but
// attention, on `rows` rows of the same seeded numbers.
std::vector<double> FeedForward(const Configuration& configuration, TensorType type,
                                const std::vector<float>& values, uint32_t first, uint32_t rows,
                                bool fused = true) {
  constexpr uint32_t kCols = 96;
  constexpr uint32_t kHidden = 160;
  std::mt19937_64 random(4);
  Fixture f(configuration);
  const auto gate = RandomTensor(random, type, kHidden, kCols);
  const auto up = RandomTensor(random, type, kHidden, kCols);
  const RawTensor pair[] = {gate.raw(), up.raw()};
  const auto gate_up = *f.backend->Pack(pair, PartOrder::kGateUp);
  const auto down = PackOne(*f.backend, RandomTensor(random, type, kCols, kHidden));
  const auto q = RandomTensor(random, type, 70, kCols);
  const auto k = RandomTensor(random, TensorType::kQ8_0, 9, kCols);
  const RawTensor joined_parts[] = {q.raw(), k.raw()};
  const auto joined = *f.backend->Pack(joined_parts, PartOrder::kConcatenated);
  const auto gain = f.Gain(RandomFloats(random, kCols));
  auto x = f.Rows({values.begin() + first * kCols, values.begin() + (first + rows) * kCols}, kCols);
  auto h = f.backend->NewActivation(rows, kCols);
  auto hidden = f.backend->NewActivation(rows, kHidden);
  auto out = f.backend->NewActivation(rows, 79);
  f.backend->Norm(*x, {*gain, 1e-5f, *gate_up}, *h);
  f.backend->GatedLinear(*gate_up, *h, *down, *hidden);
  if (fused) {
    f.backend->LinearAddNorm(*down, *hidden, *x, {*gain, 1e-5f, *joined}, *h);
  } else {
    f.backend->LinearAdd(*down, *hidden, *x);
    f.backend->Norm(*x, {*gain, 1e-5f, *joined}, *h);
  }
  f.backend->Linear(*joined, *h, *out);
  auto all = f.All(*out);
  const auto residual = f.All(*x);
  all.insert(all.end(), residual.begin(), residual.end());
  return all;
}

TEST(CpuBackendTest, RowsHaveTheSameBitsOnEveryTierAndThreadCountAndInAnyCompany) {
  std::mt19937_64 random(5);
  const auto values = RandomFloats(random, 41 * 96);
  for (TensorType type : kAllTypes) {
    const auto expected = FeedForward(kConfigurations[0], type, values, 0, 41, false);
    for (const auto& configuration : kConfigurations) {
      EXPECT_EQ(FeedForward(configuration, type, values, 0, 41), expected);
      for (const auto& [first, rows] : {std::pair<uint32_t, uint32_t>{0, 1}, {3, 7}, {40, 1}}) {
        const auto part = FeedForward(configuration, type, values, first, rows);
        EXPECT_TRUE(std::equal(part.begin(), part.begin() + rows * 79, &expected[first * 79]));
        EXPECT_TRUE(
            std::equal(part.begin() + rows * 79, part.end(), &expected[41 * 79 + first * 96]));
      }
    }
  }
}

TEST(CpuRopeTest, TablesAgreeWithTheMathLibrary) {
  for (double x : {-30.0, -9.2103, -1.0, -0.3, 0.0, 0.7, 12.0}) {
    EXPECT_NEAR(ExactExp(x) / std::exp(x), 1, 4e-16);
  }
  for (double angle = 0; angle < 140000; angle = angle * 1.01 + 0.013) {
    EXPECT_NEAR(ExactSinCos(angle).sin, std::sin(angle), 3e-16);
    EXPECT_NEAR(ExactSinCos(angle).cos, std::cos(angle), 3e-16);
  }
}

TEST(CpuRopeTest, RotatesPairsByTheirFrequency) {
  for (auto pairing : {RopeSpec::Pairing::kNeighbours, RopeSpec::Pairing::kHalves}) {
    const CpuRope rope({.pairing = pairing, .dims = 6, .context = 5000, .base = 100000});
    const std::vector<float> head = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t position : {0u, 1u, 17u, 4999u}) {
      auto actual = head;
      rope.Rotate(position, actual.data());
      for (uint32_t i = 0; i < 3; ++i) {
        const bool neighbours = pairing == RopeSpec::Pairing::kNeighbours;
        const size_t a = neighbours ? 2 * i : i;
        const size_t b = neighbours ? 2 * i + 1 : i + 3;
        const double angle = position * std::pow(100000.0, -2.0 * i / 6);
        EXPECT_NEAR(actual[a], head[a] * std::cos(angle) - head[b] * std::sin(angle), 2e-6);
        EXPECT_NEAR(actual[b], head[a] * std::sin(angle) + head[b] * std::cos(angle), 2e-6);
      }
      EXPECT_EQ(actual[6], 7);
      EXPECT_EQ(actual[7], 8);
    }
  }
}

struct AttentionShape {
  HeadShape heads;
  uint32_t block_size = 16;
};

OwnedTensor Identity(uint32_t n) {
  std::vector<float> values(size_t{n} * n);
  for (uint32_t i = 0; i < n; ++i) values[size_t{i} * n + i] = 1;
  return Table(values, n);
}

// Runs one sequence (and, when `company` is set, others around it) through QkvLinear, whose weight
// passes chosen numbers on, and Attention in chunks; keeps the arena and the outputs.
class AttentionRun {
 public:
  AttentionRun(const Configuration& configuration, const AttentionShape& shape, uint32_t context)
      : f_(configuration), shape_(shape) {
    const HeadShape& heads = shape.heads;
    layout_ = *f_.backend->Layout({.layers = 2,
                                   .kv_heads = heads.kv_heads,
                                   .head_dim = heads.head_dim,
                                   .block_size = shape.block_size});
    const uint32_t blocks = context / shape.block_size + 1;
    arena_ = *kv::KvArena::Create(layout_, {.blocks = {3 * blocks}});
    // Blocks lie in the pool in any order.
    for (uint32_t i = 0; i < blocks; ++i) table_.push_back((i * 7 + 3) % blocks + blocks);
    for (uint32_t i = 0; i < blocks; ++i) other_table_.push_back(i);
    rope_ = *f_.backend->MakeRope({.dims = heads.head_dim / 2 * 2, .context = context + 300});
    std::mt19937_64 random(9);
    pass_on_ = PackOne(*f_.backend, Identity(heads.qkv_cols()));
    consumer_ = PackOne(*f_.backend,
                        RandomTensor(random, TensorType::kF32, 1, heads.heads * heads.head_dim));
  }

  // qkv rows of one chunk that begins at `position`.
  void Step(const std::vector<float>& qkv, uint32_t position, bool company) {
    const HeadShape& heads = shape_.heads;
    const auto rows = static_cast<uint32_t>(qkv.size() / heads.qkv_cols());
    Batch batch;
    std::vector<float> all;
    if (company) {
      std::mt19937_64 random(position);
      all = RandomFloats(random, size_t{5} * heads.qkv_cols());
      batch.sequences.push_back({0, 5, 2, {other_table_}});
    }
    const uint32_t first = company ? 5 : 0;
    batch.sequences.push_back({first, rows, position, {table_}});
    batch.rows = first + rows;
    all.insert(all.end(), qkv.begin(), qkv.end());
    auto x = f_.Rows(all, heads.qkv_cols());
    auto out = f_.backend->NewActivation(batch.rows, heads.heads * heads.head_dim);
    auto rotated = f_.backend->NewActivation(batch.rows, heads.qkv_cols());
    const LayerCall call{heads, 1, batch, arena_->view()};
    f_.backend->QkvLinear(*pass_on_, *x, *rope_, call, *rotated);
    f_.backend->Attention(call, *rotated, *consumer_, *out);
    for (uint32_t row = first; row < batch.rows; ++row) {
      const auto values = f_.backend->Read(*out, row);
      outputs.insert(outputs.end(), values.begin(), values.end());
    }
  }

  void Chunks(const std::vector<float>& qkv, uint32_t chunk, bool company) {
    const size_t cols = shape_.heads.qkv_cols();
    const size_t total = qkv.size() / cols;
    for (size_t at = 0; at < total; at += chunk) {
      const size_t end = std::min(at + chunk, total);
      Step({qkv.begin() + static_cast<ptrdiff_t>(at * cols),
            qkv.begin() + static_cast<ptrdiff_t>(end * cols)},
           static_cast<uint32_t>(at), company);
    }
  }

  std::vector<std::byte> BlockBytes() const {
    std::vector<std::byte> bytes;
    for (uint32_t arena : {kv::kKeyArena, kv::kValueArena}) {
      for (kv::BlockId block : table_) {
        const auto piece = std::as_const(*arena_).Piece(1, arena, block);
        bytes.insert(bytes.end(), piece.begin(), piece.end());
      }
    }
    return bytes;
  }

  // Key or value of one position as stored.
  double Stored(uint32_t arena, uint32_t position, uint32_t kv_head, uint32_t d) const {
    const HeadShape& heads = shape_.heads;
    const uint32_t slot = position % shape_.block_size;
    const auto piece = std::as_const(*arena_).Piece(1, arena, table_[position / shape_.block_size]);
    const size_t at = arena == kv::kKeyArena
                          ? (size_t{kv_head} * heads.head_dim + d) * shape_.block_size + slot
                          : (size_t{kv_head} * shape_.block_size + slot) * heads.head_dim + d;
    Half half;
    std::memcpy(&half, &piece[at * 2], 2);
    return HalfToFloat(half);
  }

  // Fills every slot from `position` on with NaN.
  void Poison(uint32_t position) {
    for (uint32_t arena : {kv::kKeyArena, kv::kValueArena}) {
      for (uint32_t p = position; p < table_.size() * shape_.block_size; ++p) {
        for (uint32_t h = 0; h < shape_.heads.kv_heads; ++h) PoisonSlot(arena, p, h);
      }
    }
  }

  std::vector<double> outputs;

 private:
  void PoisonSlot(uint32_t arena, uint32_t position, uint32_t kv_head) {
    const HeadShape& heads = shape_.heads;
    const uint32_t slot = position % shape_.block_size;
    const auto piece = arena_->Piece(1, arena, table_[position / shape_.block_size]);
    for (uint32_t d = 0; d < heads.head_dim; ++d) {
      const size_t at = arena == kv::kKeyArena
                            ? (size_t{kv_head} * heads.head_dim + d) * shape_.block_size + slot
                            : (size_t{kv_head} * shape_.block_size + slot) * heads.head_dim + d;
      const Half nan = 0x7e00;
      std::memcpy(&piece[at * 2], &nan, 2);
    }
  }

  Fixture f_;
  const AttentionShape shape_;
  kv::KvLayout layout_;
  std::unique_ptr<kv::KvArena> arena_;
  std::vector<kv::BlockId> table_;
  std::vector<kv::BlockId> other_table_;
  std::unique_ptr<RopeTable> rope_;
  std::unique_ptr<PackedWeight> pass_on_;
  std::unique_ptr<PackedWeight> consumer_;
};

constexpr AttentionShape kShapes[] = {
    {{9, 3, 64}, 16}, {{4, 4, 32}, 64}, {{8, 1, 24}, 32}, {{26, 2, 8}, 256}};

std::vector<float> RandomQkv(const AttentionShape& shape, uint32_t rows) {
  std::mt19937_64 random(11);
  return RandomFloats(random, size_t{rows} * shape.heads.qkv_cols(), 1.5f);
}

TEST(CpuAttentionTest, IsCloseToExactAttentionOnTheStoredBlocks) {
  constexpr uint32_t kRows = 530;
  for (const AttentionShape& shape : kShapes) {
    AttentionRun run(kConfigurations[2], shape, kRows);
    const auto qkv = RandomQkv(shape, kRows);
    run.Chunks(qkv, kRows, false);
    const uint32_t dim = shape.heads.head_dim;
    const CpuRope rope({.dims = dim / 2 * 2, .context = kRows + 300});
    for (uint32_t row : {0u, 1u, 16u, 255u, 256u, 257u, 511u, 512u, 529u}) {
      for (uint32_t head = 0; head < shape.heads.heads; head += 3) {
        const uint32_t kv_head = head / (shape.heads.heads / shape.heads.kv_heads);
        const float* begin = &qkv[size_t{row} * shape.heads.qkv_cols() + head * dim];
        std::vector<float> q(begin, begin + dim);
        rope.Rotate(row, q.data());
        std::vector<double> p(row + 1);
        double sum = 0;
        for (uint32_t key = 0; key <= row; ++key) {
          double score = 0;
          for (uint32_t d = 0; d < dim; ++d) {
            score += q[d] * run.Stored(kv::kKeyArena, key, kv_head, d);
          }
          sum += p[key] = std::exp(score / std::sqrt(dim));
        }
        for (uint32_t d = 0; d < dim; ++d) {
          double exact = 0;
          for (uint32_t key = 0; key <= row; ++key) {
            exact += p[key] / sum * run.Stored(kv::kValueArena, key, kv_head, d);
          }
          const size_t at = (size_t{row} * shape.heads.heads + head) * dim + d;
          // Values are below 8; scores of size 30 carry a relative error of 2^-24 * dim.
          ASSERT_NEAR(run.outputs[at], exact, 8 * 30 * 2e-7) << "row " << row << " head " << head;
        }
      }
    }
  }
}

TEST(CpuAttentionTest, AnyChunkingTierThreadCountAndCompanyGivesTheSameBits) {
  constexpr uint32_t kRows = 300;
  for (const AttentionShape& shape : kShapes) {
    const auto qkv = RandomQkv(shape, kRows);
    AttentionRun expected(kConfigurations[0], shape, kRows);
    expected.Chunks(qkv, kRows, false);
    for (const auto& configuration : kConfigurations) {
      for (uint32_t chunk : {1u, 7u, 16u, 64u, kRows}) {
        if (configuration.tier == "scalar" && chunk == 1) continue;  // slow
        AttentionRun run(configuration, shape, kRows);
        run.Chunks(qkv, chunk, chunk % 2 == 0);
        EXPECT_EQ(run.outputs, expected.outputs) << "chunk " << chunk;
        EXPECT_EQ(run.BlockBytes(), expected.BlockBytes()) << "chunk " << chunk;
      }
    }
  }
}

TEST(CpuAttentionTest, WhatLiesBehindAPositionDoesNotTouchIt) {
  constexpr uint32_t kRows = 270;
  for (const AttentionShape& shape : kShapes) {
    const auto qkv = RandomQkv(shape, kRows);
    AttentionRun expected(kConfigurations[1], shape, kRows);
    expected.Chunks(qkv, 10, false);
    for (const auto& configuration : {kConfigurations[0], kConfigurations[1]}) {
      AttentionRun run(configuration, shape, kRows);
      run.Poison(0);
      run.Chunks(qkv, 10, false);
      EXPECT_EQ(run.outputs, expected.outputs);
    }
  }
}

TEST(CpuPackTest, RefusesWhatItCannotRead) {
  Fixture f(kConfigurations[1]);
  std::mt19937_64 random(12);
  OwnedTensor tensor = RandomTensor(random, TensorType::kQ4_1, 4, 64);
  const auto code = [&](RawTensor raw) {
    return f.backend->Pack({&raw, 1}, PartOrder::kConcatenated).status().code();
  };
  RawTensor raw = tensor.raw();
  EXPECT_EQ(code(raw), absl::StatusCode::kOk);
  raw.type = static_cast<TensorType>(12);
  EXPECT_EQ(code(raw), absl::StatusCode::kUnimplemented);
  raw = tensor.raw();
  raw.bytes = raw.bytes.first(raw.bytes.size() - 1);
  EXPECT_EQ(code(raw), absl::StatusCode::kInvalidArgument);
  raw = tensor.raw();
  raw.cols = 63;
  EXPECT_EQ(code(raw), absl::StatusCode::kInvalidArgument);
  raw.rows = 0;
  EXPECT_EQ(code(raw), absl::StatusCode::kInvalidArgument);
}

TEST(CpuSampleTest, EachRowHasItsOwnParametersAndErrors) {
  Fixture f(kConfigurations[2]);
  auto logits = f.Rows({0, 5, 1, std::nanf(""), 0, 0, 7, 7, 0}, 3);
  const std::vector<SampleRow> rows = {{2, {}}, {1, {}}, {0, {}}};
  const auto tokens = f.backend->Sample(*logits, rows);
  EXPECT_EQ(tokens[0]->token, 0);
  EXPECT_EQ(tokens[1].status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(tokens[2]->token, 1);
}

}  // namespace
}  // namespace baton::kernels::cpu
