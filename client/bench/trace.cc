#include "client/bench/trace.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "common/status_macros.h"

namespace baton::client {
namespace {

using nlohmann::json;

// Times up to some 30 years in microseconds, lengths up to what a request could have.
constexpr double kMaxTime = 1e15;
constexpr double kMaxTokens = 1e9;

struct RawRow {
  double time = 0;
  double prompt_tokens = 0;
  double output_tokens = 0;
};

bool InRange(double value, double most) { return value >= 0 && value <= most; }

// Keeps the row unless it is empty; false: a value cannot be.
bool Add(const RawRow& raw, double seconds_per_unit, Trace& trace) {
  if (!InRange(raw.time, kMaxTime) || !InRange(raw.prompt_tokens, kMaxTokens) ||
      !InRange(raw.output_tokens, kMaxTokens)) {
    return false;
  }
  const TraceRow row = {raw.time * seconds_per_unit, static_cast<uint32_t>(raw.prompt_tokens),
                        static_cast<uint32_t>(raw.output_tokens)};
  if (row.prompt_tokens == 0 || row.output_tokens == 0) {
    ++trace.skipped;
  } else {
    trace.rows.push_back(row);
  }
  return true;
}

std::optional<RawRow> ParseObject(const std::string& line) {
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  for (const char* const key : {"timestamp", "input_length", "output_length"}) {
    if (!object.contains(key) || !object[key].is_number()) return std::nullopt;
  }
  return RawRow{object["timestamp"], object["input_length"], object["output_length"]};
}

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream cells(line);
  for (std::string cell; std::getline(cells, cell, ',');) out.push_back(cell);
  return out;
}

struct Columns {
  size_t count = 0;
  std::optional<size_t> time, prompt, output;
};

std::optional<Columns> ParseHeader(const std::string& line) {
  Columns columns;
  for (const std::string& name : Cells(line)) {
    if (name == "arrival_us") columns.time = columns.count;
    if (name == "input_tokens") columns.prompt = columns.count;
    if (name == "output_tokens") columns.output = columns.count;
    ++columns.count;
  }
  if (!columns.prompt.has_value() || !columns.output.has_value()) return std::nullopt;
  return columns;
}

std::optional<double> Number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<RawRow> ParseCells(const Columns& columns, const std::string& line) {
  const std::vector<std::string> cells = Cells(line);
  if (cells.size() != columns.count) return std::nullopt;
  const auto prompt = Number(cells[*columns.prompt]);
  const auto output = Number(cells[*columns.output]);
  const auto time = columns.time.has_value() ? Number(cells[*columns.time]) : 0.0;
  if (!prompt.has_value() || !output.has_value() || !time.has_value()) return std::nullopt;
  return RawRow{*time, *prompt, *output};
}

absl::Status BadLine(const std::string& name, size_t line, const std::string& expected) {
  return absl::InvalidArgumentError(name + ": line " + std::to_string(line) + ": " + expected);
}

absl::Status ParseJsonLines(const std::string& name, std::istringstream& lines, Trace& trace) {
  trace.timed = true;
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const auto raw = ParseObject(line);
    if (!raw.has_value() || !Add(*raw, 1e-3, trace)) {
      return BadLine(name, number,
                     "expected an object with timestamp, input_length and output_length");
    }
  }
  return absl::OkStatus();
}

absl::Status ParseCsv(const std::string& name, std::istringstream& lines, Trace& trace) {
  std::string line;
  std::getline(lines, line);
  const auto columns = ParseHeader(line);
  if (!columns.has_value()) {
    return BadLine(name, 1, "expected a header with input_tokens and output_tokens");
  }
  trace.timed = columns->time.has_value();
  for (size_t number = 2; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const auto raw = ParseCells(*columns, line);
    if (!raw.has_value() || !Add(*raw, 1e-6, trace)) {
      return BadLine(
          name, number,
          "expected " + std::to_string(columns->count) + " numbers that are not negative");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Trace> ParseTrace(const std::string& name, const std::string& text) {
  Trace trace;
  std::istringstream lines(text);
  BATON_RETURN_IF_ERROR(text.starts_with('{') ? ParseJsonLines(name, lines, trace)
                                              : ParseCsv(name, lines, trace));
  if (trace.rows.empty()) return absl::InvalidArgumentError(name + ": has no request");
  std::stable_sort(trace.rows.begin(), trace.rows.end(), [](const TraceRow& a, const TraceRow& b) {
    return a.at_seconds < b.at_seconds;
  });
  return trace;
}

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(path + ": cannot be read");
  return ParseTrace(path, std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace baton::client
