#include "worker/load_report.h"

#include <chrono>
#include <utility>

#include "common/clock.h"

namespace baton::worker {
namespace {

constexpr Duration kBetweenLines = std::chrono::seconds(1);

GaugeFamily& StageSeconds(MetricsRegistry& metrics) {
  return metrics.AddGauge("baton_load_seconds",
                          "How long each stage of loading took: open, hash, pack, tables, "
                          "vocabulary; and kv, which goes on when the worker is ready.",
                          {"stage"});
}

}  // namespace

LoadReport::LoadReport(MetricsRegistry& metrics, const Logger& log, std::string path, Time now)
    : seconds_(StageSeconds(metrics)),
      log_(log),
      path_(std::move(path)),
      begin_(now),
      stage_begin_(begin_),
      next_line_(begin_ + kBetweenLines) {
  log_.Info("loading the model", {{"path", path_}});
}

void LoadReport::Packed(uint64_t packed_bytes, uint64_t all_bytes, Time now) {
  if (now < next_line_) return;
  next_line_ = now + kBetweenLines;
  log_.Info("packing weights", {{"packed_bytes", packed_bytes}, {"all_bytes", all_bytes}});
}

void LoadReport::StageTook(std::string_view stage, double seconds) {
  seconds_.With({std::string(stage)}).Set(seconds);
  stage_begin_ = SteadyNow();
}

void LoadReport::StageEnds(std::string_view stage) {
  StageTook(stage, ToSeconds(SteadyNow() - stage_begin_));
}

void LoadReport::Done() {
  log_.Info("loaded the model", {{"path", path_}, {"seconds", ToSeconds(SteadyNow() - begin_)}});
}

void ReportKvMemory(MetricsRegistry& metrics, const Logger& log, const absl::Status& status,
                    const KvMemory& memory) {
  if (!status.ok()) {
    const LogLevel level = absl::IsUnimplemented(status) ? LogLevel::kInfo : LogLevel::kError;
    log.Log(level, "KV memory comes only as it is used", {{"why", std::string(status.message())}});
    return;
  }
  StageSeconds(metrics).With({"kv"}).Set(memory.seconds);
  log.Info("KV memory is there", {{"bytes", memory.bytes}, {"seconds", memory.seconds}});
}

}  // namespace baton::worker
