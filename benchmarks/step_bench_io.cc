#include "benchmarks/step_bench_io.h"

#include <nlohmann/json.hpp>

#include "common/status_macros.h"

namespace baton::benchmarks {
namespace {

using nlohmann::json;

absl::Status Bad(const std::string& text) { return absl::InvalidArgumentError(text); }

// An unsigned number below 2^31 into `to`.
absl::Status Read(const std::string& key, const json& value, uint32_t& to) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() >= (uint64_t{1} << 31)) {
    return Bad(key + ": not a count");
  }
  to = value.get<uint32_t>();
  return absl::OkStatus();
}

template <typename Float>
absl::Status ReadReal(const std::string& key, const json& value, Float& to) {
  if (!value.is_number()) return Bad(key + ": not a number");
  to = value.get<Float>();
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& key, const json& value, BenchSequence& out,
                       uint32_t& count) {
  if (key == "count") return Read(key, value, count);
  if (key == "prompt") return Read(key, value, out.prompt);
  if (key == "max_tokens") return Read(key, value, out.max_tokens);
  if (key == "choices") return Read(key, value, out.choices);
  if (key == "temperature") return ReadReal(key, value, out.sampling.temperature);
  if (key == "top_p") return ReadReal(key, value, out.sampling.top_p);
  if (key == "arrival") return ReadReal(key, value, out.arrival);
  if (key == "top_k") {
    uint32_t top_k = 0;
    BATON_RETURN_IF_ERROR(Read(key, value, top_k));
    out.sampling.top_k = static_cast<int32_t>(top_k);
    return absl::OkStatus();
  }
  if (key == "filled" && value.is_boolean()) {
    out.filled = value.get<bool>();
    return absl::OkStatus();
  }
  return Bad("no such field of a sequence: " + key);
}

absl::Status ReadSequences(const json& list, std::vector<BenchSequence>& out) {
  if (!list.is_array()) return Bad("sequences: not a list");
  for (const json& one : list) {
    if (!one.is_object()) return Bad("sequences: not a list of objects");
    BenchSequence sequence;
    uint32_t count = 1;
    for (const auto& [key, value] : one.items()) {
      BATON_RETURN_IF_ERROR(ReadField(key, value, sequence, count));
    }
    if (count > 1024) return Bad("count: more than 1024");
    out.insert(out.end(), count, sequence);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepRequest> ParseStepRequest(const std::string& line) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Bad("not a JSON object");
  StepRequest request;
  for (const auto& [key, value] : object.items()) {
    if (key == "sequences") {
      BATON_RETURN_IF_ERROR(ReadSequences(value, request.sequences));
    } else if (key == "step_tokens") {
      BATON_RETURN_IF_ERROR(Read(key, value, request.options.step_tokens));
    } else if (key == "max_running") {
      BATON_RETURN_IF_ERROR(Read(key, value, request.options.max_running));
    } else if (key == "group") {
      BATON_RETURN_IF_ERROR(Read(key, value, request.options.group));
    } else {
      return Bad("no such field: " + key);
    }
  }
  return request;
}

std::string ToLine(const absl::StatusOr<Timeline>& timeline) {
  if (!timeline.ok()) return json{{"error", timeline.status().ToString()}}.dump();
  json steps = json::array();
  for (const StepEnd& step : timeline->steps) steps.push_back({step.seconds, step.tokens});
  json sequences = json::array();
  for (const SequenceTimes& one : timeline->sequences) {
    sequences.push_back({one.first_token, one.last_token});
  }
  return json{{"steps", steps},
              {"sequences", sequences},
              {"most_blocks", timeline->most_blocks},
              {"macs", timeline->work.macs},
              {"bytes", timeline->work.bytes}}
      .dump();
}

}  // namespace baton::benchmarks
