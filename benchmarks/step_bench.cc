// Runs what it reads from standard input, a line at a time (step_bench_io.h), through the engine on
// one loaded model, and answers each with a line. The first line says that the model is loaded:
// {"load_seconds": 0.4, "numerics": "..."}. Whoever drives it decides what runs in between.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "benchmarks/engine_driver.h"
#include "benchmarks/step_bench_io.h"
#include "common/status_macros.h"
#include "model/load.h"
#include "text/vocab.h"
#include "text/vocab_from_gguf.h"

ABSL_FLAG(std::string, model, "", "GGUF file");
ABSL_FLAG(std::string, backend, "cpu", "cpu, cpu-TIER or reference");
ABSL_FLAG(std::string, kv_type, "auto", "auto, f16 or int8");
ABSL_FLAG(uint32_t, threads, 2, "threads");
ABSL_FLAG(uint32_t, positions, 10240, "room for so many tokens in all");
ABSL_FLAG(uint32_t, max_rows, 2048, "the largest step");

namespace baton::benchmarks {
namespace {

absl::StatusOr<Timeline> RunLine(const std::string& line, EngineDriver& driver) {
  BATON_ASSIGN_OR_RETURN(const StepRequest request, ParseStepRequest(line));
  return driver.Run(request.sequences, request.options);
}

absl::Status Serve() {
  const auto start = std::chrono::steady_clock::now();
  model::LoadOptions options;
  options.path = absl::GetFlag(FLAGS_model);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.kv_type = absl::GetFlag(FLAGS_kv_type);
  options.threads = absl::GetFlag(FLAGS_threads);
  BATON_ASSIGN_OR_RETURN(model::LoadedModel model, model::Load(options));
  BATON_ASSIGN_OR_RETURN(const VocabData data, VocabDataFromGguf(*model.file));
  BATON_ASSIGN_OR_RETURN(const Vocab vocab, Vocab::Create(data));
  BATON_ASSIGN_OR_RETURN(const auto driver, EngineDriver::Create(model, vocab,
                                                                 {absl::GetFlag(FLAGS_positions),
                                                                  absl::GetFlag(FLAGS_max_rows)}));
  const std::chrono::duration<double> load = std::chrono::steady_clock::now() - start;
  std::cout << nlohmann::json{{"load_seconds", load.count()},
                              {"numerics", model.backend->numerics()}}
                   .dump()
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << ToLine(RunLine(line, *driver)) << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::benchmarks

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::benchmarks::Serve();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
