#include "kernels/cpu/cpu_backend.h"

#include <sched.h>

#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/countdown.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/kv_append.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tiers.h"
#include "kernels/cpu/weight.h"

namespace baton::kernels::cpu {
namespace {

// Row-wise work below this many rows is done by the calling thread.
constexpr uint32_t kRowGrain = 4;

const CpuWeight& Cpu(const PackedWeight& w) { return static_cast<const CpuWeight&>(w); }
const CpuActivation& Cpu(const Activation& a) { return static_cast<const CpuActivation&>(a); }
CpuActivation& Cpu(Activation& a) { return static_cast<CpuActivation&>(a); }

// The gains of a norm, in one piece: a row of a CpuWeight would lie 16 floats apart.
class CpuGain final : public PackedWeight {
 public:
  explicit CpuGain(std::vector<float> values)
      : PackedWeight(1, static_cast<uint32_t>(values.size())), values_(std::move(values)) {}
  const float* values() const { return values_.data(); }

 private:
  const std::vector<float> values_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Tier& tier, uint32_t threads, KvType kv_type)
      : tier_(tier), kv_type_(kv_type), pool_(threads), attention_(tier, pool_) {}

  std::string_view name() const override { return "cpu"; }
  // Not the tier: all give the same bits.
  std::string numerics() const override {
    return kv_type_ == KvType::kInt8 ? "cpu numerics v3, kv int8" : "cpu numerics v3, kv f16";
  }
  uint32_t threads() const override { return pool_.threads(); }
  uint64_t synchronisations() const { return pool_.synchronisations(); }

  absl::StatusOr<kv::KvLayout> Layout(const kv::UniformKvShape& shape) const override {
    if (shape.head_dim > 256) {
      return absl::InvalidArgumentError("the cpu backend reads heads of at most 256 dimensions");
    }
    const auto dtype = kv_type_ == KvType::kInt8 ? kv::KvDtype::kInt8 : kv::KvDtype::kF16;
    auto layout =
        kv::MakeUniformLayout(shape, dtype, kv::KvOrder::kHeadDimSlot, kv::KvOrder::kHeadSlotDim);
    BATON_RETURN_IF_ERROR(layout.Validate());
    return layout;
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(std::span<const RawTensor> parts,
                                                     PartOrder order) override {
    return CpuWeight::Pack(parts, order, memory_, pool_);
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackGain(const RawTensor& tensor) override {
    const std::string name = "tensor " + std::string(tensor.name);
    if (tensor.type != TensorType::kF32 && tensor.type != TensorType::kF16) {
      return absl::UnimplementedError(name + ": gains are F32 or F16");
    }
    if (tensor.rows != 1 || tensor.cols == 0 ||
        tensor.bytes.size() / InfoOf(tensor.type)->block_bytes != tensor.cols) {
      return absl::InvalidArgumentError(name + ": not a vector of its size");
    }
    std::vector<float> values(tensor.cols);
    Dequantize(tensor.type, tensor.bytes, values);
    return std::make_unique<CpuGain>(std::move(values));
  }

  absl::StatusOr<std::unique_ptr<RopeTable>> MakeRope(const RopeSpec& spec) override {
    if (spec.dims == 0 || spec.dims % 2 != 0 || spec.context == 0 || !(spec.base > 1)) {
      return absl::InvalidArgumentError("rope: dimensions must be even, base above 1");
    }
    return std::make_unique<CpuRope>(spec);
  }

  std::unique_ptr<Activation> NewActivation(uint32_t max_rows, uint32_t cols) override {
    return std::make_unique<CpuActivation>(max_rows, cols);
  }

  void Embed(const PackedWeight& table, std::span<const TokenId> tokens, Activation& x) override {
    CpuActivation& out = Written(x, static_cast<uint32_t>(tokens.size()), kFloat);
    BATON_CHECK(out.cols() == table.inputs());
    pool_.ForRange(out.rows(), kRowGrain, [&](uint32_t begin, uint32_t end) {
      for (uint32_t row = begin; row < end; ++row) {
        Cpu(table).ReadRow(static_cast<uint32_t>(tokens[row]), out.values(row));
      }
    });
  }

  void Norm(const Activation& x, const NormCall& norm, Activation& out) override {
    const RowNorm row_norm = Normed(norm, x, out);
    pool_.ForRange(x.rows(), kRowGrain,
                   [&](uint32_t begin, uint32_t end) { row_norm.Run(begin, end); });
    row_norm.Finish(0);
  }

  void Linear(const PackedWeight& w, const Activation& in, Activation& out) override {
    RunLinear(tier_, pool_, Cpu(w), Cpu(in), {Written(out, in.rows(), kFloat)});
  }

  void LinearAdd(const PackedWeight& w, const Activation& in, Activation& x) override {
    RunLinear(tier_, pool_, Cpu(w), Cpu(in), {Cpu(x), true});
  }

  void LinearAddNorm(const PackedWeight& w, const Activation& in, Activation& x,
                     const NormCall& norm, Activation& out) override {
    const RowNorm row_norm = Normed(norm, x, out);
    NormEpilogue epilogue(row_norm, pool_, countdowns_);
    RunLinear(tier_, pool_, Cpu(w), Cpu(in), {Cpu(x), true, &epilogue});
    epilogue.Finish();
  }

  void GatedLinear(const PackedWeight& w, const Activation& in, const PackedWeight& consumer,
                   Activation& out) override {
    CpuActivation& to = Written(out, in.rows(), Cpu(consumer).input_forms());
    RunGatedLinear(tier_, pool_, Cpu(w), Cpu(in), to);
  }

  void QkvLinear(const PackedWeight& w, const Activation& in, const RopeTable& rope,
                 const LayerCall& call, Activation& qkv) override {
    BATON_CHECK(in.rows() == call.batch.rows);
    CpuActivation& to = Written(qkv, in.rows(), kFloat);
    const KvAppend append(tier_, call, static_cast<const CpuRope&>(rope), to);
    AppendEpilogue epilogue(append, countdowns_);
    RunLinear(tier_, pool_, Cpu(w), Cpu(in), {to, false, &epilogue});
  }

  void Attention(const LayerCall& call, const Activation& qkv, const PackedWeight& consumer,
                 Activation& out) override {
    BATON_CHECK(qkv.cols() == call.heads.qkv_cols() && qkv.rows() == call.batch.rows);
    BATON_CHECK(out.cols() == call.heads.heads * call.heads.head_dim);
    CpuActivation& to = Written(out, call.batch.rows, Cpu(consumer).input_forms() | kFloat);
    attention_.Run(call, Cpu(qkv), to);
  }

  void Gather(const Activation& x, std::span<const uint32_t> rows, Activation& out) override {
    CpuActivation& to = Written(out, static_cast<uint32_t>(rows.size()), kFloat);
    for (uint32_t i = 0; i < to.rows(); ++i) {
      std::memcpy(to.values(i), Cpu(x).values(rows[i]), x.cols() * sizeof(float));
    }
  }

  std::vector<absl::StatusOr<sampling::TokenResult>> Sample(
      const Activation& logits, std::span<const SampleRow> rows) override {
    std::vector<absl::StatusOr<sampling::TokenResult>> results(rows.size(),
                                                               sampling::TokenResult{});
    pool_.ForRange(static_cast<uint32_t>(rows.size()), 1, [&](uint32_t begin, uint32_t end) {
      for (uint32_t i = begin; i < end; ++i) {
        const std::span<const float> row(Cpu(logits).values(rows[i].row), logits.cols());
        results[i] = sampling::ChooseToken(row, rows[i].request);
      }
    });
    return results;
  }

  std::vector<double> Read(const Activation& activation, uint32_t row) const override {
    return Cpu(activation).Read(row);
  }

  void ZeroBlock(const kv::KvView& kv, uint32_t group, kv::BlockId block) override {
    ForPieces(kv, group, [&](uint32_t layer, uint32_t arena) {
      std::memset(kv.Piece(layer, arena, block), 0, kv.layout->PieceBytes(layer, arena));
    });
  }

  void CopyBlock(const kv::KvView& kv, uint32_t group, kv::BlockId from, kv::BlockId to) override {
    ForPieces(kv, group, [&](uint32_t layer, uint32_t arena) {
      std::memcpy(kv.Piece(layer, arena, to), kv.Piece(layer, arena, from),
                  kv.layout->PieceBytes(layer, arena));
    });
  }

 private:
  static CpuActivation& Written(Activation& activation, uint32_t rows, Forms forms) {
    activation.set_rows(rows);
    Cpu(activation).SetForms(forms);
    return Cpu(activation);
  }

  RowNorm Normed(const NormCall& norm, const Activation& x, Activation& out) const {
    BATON_CHECK(norm.gain.inputs() == x.cols() && out.cols() == x.cols());
    CpuActivation& to = Written(out, x.rows(), Cpu(norm.consumer).input_forms() | kFloat);
    return {tier_, static_cast<const CpuGain&>(norm.gain).values(), norm.eps, Cpu(x), to};
  }

  template <typename Body>
  static void ForPieces(const kv::KvView& kv, uint32_t group, const Body& body) {
    for (uint32_t layer = 0; layer < kv.layout->layers.size(); ++layer) {
      if (kv.layout->layers[layer].group != group) continue;
      for (uint32_t arena = 0; arena < kv.layout->layers[layer].arenas.size(); ++arena) {
        body(layer, arena);
      }
    }
  }

  const Tier& tier_;
  const KvType kv_type_;
  HugeMemory memory_;
  ThreadPool pool_;
  cpu::Attention attention_;
  Countdowns countdowns_;  // of the operation that runs
};

absl::StatusOr<const Tier*> ChooseTier(std::string_view name) {
  if (name.empty()) return &BestTier();
  const TierEntry* entry = FindTier(name);
  if (entry == nullptr) {
    return absl::InvalidArgumentError("this build has no tier '" + std::string(name) + "'");
  }
  if (!entry->runs) {
    return absl::UnavailableError("tier " + std::string(name) + " needs a processor with " +
                                  entry->needs);
  }
  return entry->tier;
}

uint32_t UsableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<uint32_t>(CPU_COUNT(&set));
}

}  // namespace

uint64_t Synchronisations(const Backend& backend) {
  BATON_CHECK(backend.name() == "cpu");
  return static_cast<const CpuBackend&>(backend).synchronisations();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuOptions& options) {
  BATON_ASSIGN_OR_RETURN(const Tier* tier, ChooseTier(options.tier));
  const uint32_t threads = options.threads > 0 ? options.threads : UsableProcessors();
  return std::make_unique<CpuBackend>(*tier, threads, options.kv_type);
}

}  // namespace baton::kernels::cpu
