#include "model/load.h"

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "common/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "model/identity.h"

namespace baton::model {
namespace {

constexpr uint32_t kMaxThreads = 256;

absl::Status CheckKvType(const LoadOptions& options) {
  const bool reference = options.backend == "reference";
  for (const std::string_view known : {"f16", "int8", "f64"}) {
    if (options.kv_type == known && reference == (known == "f64")) return absl::OkStatus();
  }
  if (options.kv_type == "auto") return absl::OkStatus();
  return absl::InvalidArgumentError("kv type '" + options.kv_type + "' is none of the backend '" +
                                    options.backend + "'");
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> CreateBackend(const LoadOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError("threads is " + std::to_string(options.threads) +
                                      ", not in 1..256");
  }
  BATON_RETURN_IF_ERROR(CheckKvType(options));
  constexpr std::string_view kTierPrefix = "cpu-";
  const bool names_tier =
      options.backend.starts_with(kTierPrefix) && options.backend.size() > kTierPrefix.size();
  if (names_tier || options.backend == "cpu") {
    kernels::cpu::CpuOptions cpu;
    cpu.threads = options.threads;
    if (options.kv_type == "int8") cpu.kv_type = kernels::cpu::KvType::kInt8;
    if (names_tier) cpu.tier = options.backend.substr(kTierPrefix.size());
    return kernels::cpu::CreateCpuBackend(cpu);
  }
  if (options.backend == "reference") return kernels::CreateReferenceBackend(options.threads);
  return absl::InvalidArgumentError("unknown backend '" + options.backend +
                                    "' (cpu, cpu-TIER, reference)");
}

class Stopwatch {
 public:
  // Seconds since the last lap.
  double Lap() {
    const Time now = SteadyNow();
    return ToSeconds(now - std::exchange(last_, now));
  }

 private:
  Time last_ = SteadyNow();
};

kernels::RopeSpec RopeOf(const ModelConfig& config) {
  kernels::RopeSpec spec;
  spec.dims = config.head_dim;
  spec.context = config.context_length;
  spec.base = config.rope_base;
  return spec;
}

}  // namespace

absl::StatusOr<LoadedModel> Load(const LoadOptions& options) {
  LoadedModel model;
  Stopwatch watch;
  BATON_ASSIGN_OR_RETURN(model.file, GgufReader::Open(options.path));
  BATON_ASSIGN_OR_RETURN(model.config, ReadModelConfig(*model.file));
  if (options.context != 0) {
    model.config.context_length = std::min(model.config.context_length, options.context);
  }
  BATON_ASSIGN_OR_RETURN(model.backend, CreateBackend(options));
  BATON_ASSIGN_OR_RETURN(model.layout,
                         model.backend->Layout({model.config.num_layers, model.config.num_kv_heads,
                                                model.config.head_dim, options.block_size}));
  model.seconds.open = watch.Lap();
  // First, because packing lets go of the file's pages.
  model.weights_hash = WeightsHash(*model.file, model.config);
  model.seconds.hash = watch.Lap();
  BATON_ASSIGN_OR_RETURN(model.weights,
                         PackWeights(*model.file, model.config, *model.backend, options.progress));
  model.seconds.pack = watch.Lap();
  BATON_ASSIGN_OR_RETURN(model.rope, model.backend->MakeRope(RopeOf(model.config)));
  model.seconds.tables = watch.Lap();
  model.numerics_id = NumericsId(model.weights_hash, *model.backend, model.layout);
  return model;
}

}  // namespace baton::model
