#include "common/log.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

namespace baton {
namespace {

std::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
    case LogLevel::kOff:
      break;
  }
  return "error";
}

// Bytes that are not ASCII are escaped one by one: a log line is valid JSON whatever a peer sent.
void AppendString(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      line += escaped;
    } else {
      line += c;
    }
  }
  line += '"';
}

struct AppendValue {
  std::string& line;
  void operator()(std::string_view value) const { AppendString(line, value); }
  void operator()(bool value) const { line += value ? "true" : "false"; }
  void operator()(int64_t value) const { line += std::to_string(value); }
  void operator()(uint64_t value) const { line += std::to_string(value); }
  void operator()(double value) const {
    if (!std::isfinite(value)) {  // JSON has no word for these
      line += std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
      return;
    }
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    line += text;
  }
};

void AppendTime(std::string& line, std::chrono::nanoseconds since_epoch) {
  const std::time_t seconds = since_epoch.count() / 1'000'000'000;
  const int micros = static_cast<int>(since_epoch.count() / 1000 % 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  const size_t used = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + used, sizeof text - used, ".%06dZ", micros);
  line += text;
}

void WriteToStderr(std::string_view line) {
  // One write, so that lines of several threads do not mix. Nothing can be done when it fails.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

Logger::Logger(Options options) : options_(std::move(options)) {}

Logger Logger::Silent() {
  Options options;
  options.min_level = LogLevel::kOff;
  return Logger(std::move(options));
}

void Logger::Log(LogLevel level, std::string_view message,
                 std::initializer_list<LogField> fields) const noexcept {
  if (level < options_.min_level || level == LogLevel::kOff) return;
  try {
    const WallClock& clock = options_.clock != nullptr ? *options_.clock : system_clock_;
    std::string line = "{\"time\":\"";
    AppendTime(line, clock.SinceEpoch());
    line.append("\",\"level\":\"").append(NameOf(level)).append("\"");
    if (!options_.component.empty()) {
      line += ",\"component\":";
      AppendString(line, options_.component);
    }
    line += ",\"message\":";
    AppendString(line, message);
    for (const LogField& field : fields) {
      line += ',';
      AppendString(line, field.key);
      line += ':';
      std::visit(AppendValue{line}, field.value);
    }
    line += "}\n";
    options_.sink ? options_.sink(line) : WriteToStderr(line);
  } catch (...) {  // out of memory, or a sink of a test that throws: the line is lost
  }
}

}  // namespace baton
