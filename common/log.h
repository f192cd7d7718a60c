// JSON lines. One Logger per process, made in main and passed down by reference. Never log the text
// or tokens of a prompt.
//
//   log.Info("worker lost", {{"worker", name}, {"request", id.ToString()}, {"silent_ms", 4000}});
#ifndef BATON_COMMON_LOG_H_
#define BATON_COMMON_LOG_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "common/clock.h"

namespace baton {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// A key with a value that lives until the call returns.
struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(std::string_view(v)) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string_view(v)) {}
  LogField(std::string_view k, bool v) : key(k), value(v) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  template <std::signed_integral T>
  LogField(std::string_view k, T v) : key(k), value(static_cast<int64_t>(v)) {}
  template <std::unsigned_integral T>
  LogField(std::string_view k, T v) : key(k), value(static_cast<uint64_t>(v)) {}

  std::string_view key;
  std::variant<std::string_view, bool, double, int64_t, uint64_t> value;
};

// Thread-safe; never throws, never fails: a line that cannot be written is lost.
class Logger {
 public:
  struct Options {
    LogLevel min_level = LogLevel::kInfo;
    std::string component;             // "router", "decode-worker"; left out when empty
    const WallClock* clock = nullptr;  // null: the system's. Must outlive the logger.
    // Takes one whole line with its '\n'; null: stderr by one write(2).
    std::function<void(std::string_view)> sink;
  };

  explicit Logger(Options options);
  // Drops everything; for tests and for cores that nobody listens to.
  static Logger Silent();

  void Log(LogLevel level, std::string_view message,
           std::initializer_list<LogField> fields) const noexcept;
  void Debug(std::string_view m, std::initializer_list<LogField> f = {}) const noexcept {
    Log(LogLevel::kDebug, m, f);
  }
  void Info(std::string_view m, std::initializer_list<LogField> f = {}) const noexcept {
    Log(LogLevel::kInfo, m, f);
  }
  void Warning(std::string_view m, std::initializer_list<LogField> f = {}) const noexcept {
    Log(LogLevel::kWarning, m, f);
  }
  void Error(std::string_view m, std::initializer_list<LogField> f = {}) const noexcept {
    Log(LogLevel::kError, m, f);
  }

 private:
  Options options_;
  SystemWallClock system_clock_;
};

}  // namespace baton

#endif  // BATON_COMMON_LOG_H_
