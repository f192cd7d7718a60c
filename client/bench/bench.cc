#include "client/bench/bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "client/bench/bench_options.h"
#include "client/bench/load_client.h"
#include "client/bench/plan.h"
#include "client/bench/report.h"
#include "client/bench/runner.h"
#include "client/interrupts.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace baton::client {

const char kBenchUsage[] =
    "baton bench --target HOST:PORT (--concurrency C --requests N | --rate R --requests N |\n"
    "    --trace FILE [--speed F] [--jitter-ms J] [--requests N])\n"
    "    [--prompt-tokens N|A..B] [--output-tokens N|A..B] [--max-prompt-tokens N]\n"
    "    [--max-output-tokens N] [--seed S] [--temperature T] [--model M] [--timeout-ms N]\n"
    "    [--connections N] [--ttft-limit T] [--itl-limit T] [--json] [--progress]\n"
    "    limits as in 250ms or 0.25s; a trace gives the lengths that are not given\n";

namespace {

using nlohmann::json;

// Lets an interrupt reach the runner, which is made later. Thread-safe.
class InterruptTarget {
 public:
  void Set(Runner* runner) {
    MutexLock lock(mutex_);
    runner_ = runner;
    if (runner_ != nullptr && early_) runner_->Interrupt();
  }
  void Interrupt() {
    MutexLock lock(mutex_);
    early_ = true;
    if (runner_ != nullptr) runner_->Interrupt();
  }

 private:
  Mutex mutex_;
  Runner* runner_ BATON_GUARDED_BY(mutex_) = nullptr;
  bool early_ BATON_GUARDED_BY(mutex_) = false;
};

double CpuSeconds() {
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

v1::GenerateStreamRequest MakeRequest(const BenchOptions& options, const v1::Model& model,
                                      const PlannedRequest& planned, size_t index) {
  v1::GenerateStreamRequest request;
  v1::Generation& generation = *request.mutable_generation();
  const auto ids =
      MakePrompt(options.plan.seed, index, planned.prompt_tokens, model.vocabulary_size());
  generation.mutable_prompt()->add_segments()->mutable_token_ids()->mutable_ids()->Add(ids.begin(),
                                                                                       ids.end());
  generation.set_model(model.name());
  generation.mutable_sampling()->set_temperature(options.temperature);
  generation.mutable_sampling()->set_seed(options.plan.seed + index);
  generation.mutable_stop()->set_max_tokens(static_cast<int32_t>(planned.output_tokens));
  generation.mutable_stop()->set_ignore_eos(true);
  return request;
}

std::function<void(const Progress&)> MakeProgress(const BenchOptions& options,
                                                  const LoadClient& client, size_t planned) {
  if (!options.progress && isatty(STDERR_FILENO) != 1) return nullptr;
  return [&client, planned, before = uint64_t{0}](const Progress& progress) mutable {
    const uint64_t tokens = client.tokens();
    std::fprintf(stderr, "%6.0f s  %zu of %zu ended, %zu running, %zu failed, %llu tokens/s\n",
                 progress.seconds, progress.ended, planned, progress.started - progress.ended,
                 progress.failed, static_cast<unsigned long long>(tokens - before));
    before = tokens;
  };
}

json SettingsToJson(const BenchOptions& options, const Plan& plan, const v1::Model& model) {
  const PlanOptions& p = options.plan;
  json out = {{"target", options.target},
              {"model", model.name()},
              {"seed", p.seed},
              {"temperature", options.temperature},
              {"connections", options.connections},
              {"lengths_cut", plan.cut}};
  out["mode"] = p.concurrency.has_value() ? "closed" : p.rate.has_value() ? "poisson" : "trace";
  if (p.concurrency.has_value()) out["concurrency"] = *p.concurrency;
  if (p.rate.has_value()) out["rate"] = *p.rate;
  if (options.trace.has_value()) {
    out["trace"] = options.trace_path;
    out["trace_rows_skipped"] = options.trace->skipped;
    out["speed"] = p.speed;
    out["jitter_s"] = p.jitter;
  }
  return out;
}

void Print(const BenchOptions& options, const Plan& plan, const v1::Model& model,
           const Report& report, bool interrupted) {
  json settings = SettingsToJson(options, plan, model);
  if (options.json) {
    json out = ToJson(report);
    out["settings"] = std::move(settings);
    out["interrupted"] = interrupted;
    std::cout << out.dump() << std::endl;
    return;
  }
  std::cout << "settings " << settings.dump() << "\n" << ToText(report) << std::flush;
}

absl::StatusOr<int> RunBench(BenchOptions& options, InterruptTarget& interrupts) {
  LoadClient client(options.target, options.connections, options.timeout);
  BATON_ASSIGN_OR_RETURN(const v1::Model model, client.Connect(options.model));
  if (model.context_length() < 2 || model.vocabulary_size() < 1) {
    return absl::UnavailableError("the model has no context or no vocabulary");
  }
  options.plan.context = model.context_length();
  BATON_ASSIGN_OR_RETURN(
      const Plan plan,
      MakePlan(options.plan, options.trace.has_value() ? &*options.trace : nullptr));
  RunnerOptions run;
  run.concurrency = options.plan.concurrency;
  run.start = [&](size_t index, RequestRecord record, std::function<void(RequestRecord)> done) {
    client.Start(std::move(record), MakeRequest(options, model, plan.requests[index], index),
                 std::move(done));
  };
  run.cancel_all = [&] { client.CancelAll(); };
  run.on_progress = MakeProgress(options, client, plan.requests.size());
  Runner runner(std::move(run));
  interrupts.Set(&runner);
  const std::vector<RequestRecord> records = runner.Run(plan);
  interrupts.Set(nullptr);
  Report report = MakeReport(records, plan.requests.size(), options.limits);
  report.client_cpu_seconds = CpuSeconds();
  Print(options, plan, model, report, runner.interrupted());
  if (runner.interrupted()) return 130;
  return report.ok == report.planned ? 0 : 1;
}

}  // namespace

int Bench(const std::vector<std::string>& args) {
  InterruptTarget interrupted;
  const Interrupts interrupts([&] { interrupted.Interrupt(); });
  absl::StatusOr<BenchOptions> options = ParseBenchOptions(args);
  if (!options.ok()) {
    std::cerr << "error: " << options.status().message() << "\n" << kBenchUsage;
    return 2;
  }
  const absl::StatusOr<int> code = RunBench(*options, interrupted);
  if (code.ok()) return *code;
  std::string message(code.status().message());
  if (message.ends_with('\n')) message.pop_back();
  std::cerr << (message.starts_with("error: ") ? "" : "error: ") << message << std::endl;
  return 1;
}

}  // namespace baton::client
