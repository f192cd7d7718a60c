// What operators see while a worker loads: lines in the log, and the stages as baton_load_seconds.
#ifndef BATON_WORKER_LOAD_REPORT_H_
#define BATON_WORKER_LOAD_REPORT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/time.h"

namespace baton::worker {

// Made when loading begins; used by the thread that loads.
class LoadReport {
 public:
  // Both must outlive the report.
  LoadReport(MetricsRegistry& metrics, const Logger& log, std::string path, Time now);

  // While weights are packed: a line a second, none before the first second has passed.
  void Packed(uint64_t packed_bytes, uint64_t all_bytes, Time now);
  // A stage that somebody else timed.
  void StageTook(std::string_view stage, double seconds);
  // A stage that began when the one before it ended.
  void StageEnds(std::string_view stage);
  void Done();

 private:
  GaugeFamily& seconds_;
  const Logger& log_;
  const std::string path_;
  const Time begin_;
  Time stage_begin_;
  Time next_line_;
};

struct KvMemory {
  uint64_t bytes = 0;
  double seconds = 0;
};
// Any thread. The pages of the KV arena came, or did not, after the worker was ready.
void ReportKvMemory(MetricsRegistry& metrics, const Logger& log, const absl::Status& status,
                    const KvMemory& memory);

}  // namespace baton::worker

#endif  // BATON_WORKER_LOAD_REPORT_H_
