#include "client/bench/report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace baton::client {
namespace {

using nlohmann::json;

constexpr size_t kBuckets = 16;
constexpr size_t kBarWidth = 40;

Measured Measure(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return {Summarize(values), MakeHistogram(values, kBuckets)};
}

float Seconds(Time from, Time to) { return static_cast<float>(ToSeconds(to - from)); }

bool IsGood(const RequestRecord& record, const Limits& limits) {
  if (!record.error.empty()) return false;
  if (limits.ttft.has_value() && ToSeconds(*record.first_token - record.scheduled) > *limits.ttft) {
    return false;
  }
  if (!limits.itl.has_value() || record.gaps.empty()) return true;
  const double sum = std::accumulate(record.gaps.begin(), record.gaps.end(), 0.0);
  return sum / static_cast<double>(record.gaps.size()) <= *limits.itl;
}

double ElapsedSeconds(const std::vector<RequestRecord>& records) {
  if (records.empty()) return 0;
  Time first = records.front().scheduled;
  Time last = records.front().ended;
  for (const RequestRecord& record : records) {
    first = std::min(first, record.scheduled);
    last = std::max(last, record.ended);
  }
  return ToSeconds(last - first);
}

double PerSecond(double count, const Report& report) {
  return report.elapsed_seconds > 0 ? count / report.elapsed_seconds : 0;
}

json ToJson(const Measured& measured) {
  const Summary& s = measured.summary;
  json histogram = json::array();
  for (const Bucket& bucket : measured.histogram) {
    histogram.push_back({{"from", bucket.from}, {"to", bucket.to}, {"count", bucket.count}});
  }
  return {{"count", s.count}, {"mean", s.mean}, {"p50", s.p50},          {"p90", s.p90},
          {"p99", s.p99},     {"max", s.max},   {"histogram", histogram}};
}

json ToJson(const std::optional<double>& limit) {
  return limit.has_value() ? json(*limit) : json();
}

template <typename... Values>
std::string Line(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string SummaryLine(const char* name, const Measured& measured) {
  const Summary& s = measured.summary;
  return Line("%-20s %9.2f %9.2f %9.2f %9.2f %9.2f\n", name, s.mean * 1e3, s.p50 * 1e3, s.p90 * 1e3,
              s.p99 * 1e3, s.max * 1e3);
}

std::string GoodputLine(const Report& report) {
  std::string limits;
  if (report.limits.ttft.has_value()) limits += Line(" TTFT <= %g ms", *report.limits.ttft * 1e3);
  if (report.limits.itl.has_value()) {
    limits += Line("%s mean gap <= %g ms", limits.empty() ? "" : " and", *report.limits.itl * 1e3);
  }
  if (limits.empty()) return "";
  const double share = report.ended > 0 ? 100.0 * static_cast<double>(report.good) /
                                              static_cast<double>(report.ended)
                                        : 0;
  return Line("goodput with%s: %.2f requests/s, %.1f %%\n", limits.c_str(),
              PerSecond(static_cast<double>(report.good), report), share);
}

}  // namespace

Report MakeReport(const std::vector<RequestRecord>& records, size_t planned, const Limits& limits) {
  Report report;
  report.planned = planned;
  report.ended = records.size();
  report.limits = limits;
  report.elapsed_seconds = ElapsedSeconds(records);
  std::vector<float> ttft, itl, end_to_end, send_delay;
  for (const RequestRecord& record : records) {
    send_delay.push_back(Seconds(record.scheduled, record.sent));
    if (record.first_token.has_value()) report.prompt_tokens += record.prompt_tokens;
    report.output_tokens += record.tokens;
    if (!record.error.empty()) {
      ++report.errors[record.error];
      continue;
    }
    ++report.ok;
    ttft.push_back(Seconds(record.scheduled, *record.first_token));
    end_to_end.push_back(Seconds(record.scheduled, record.ended));
    itl.insert(itl.end(), record.gaps.begin(), record.gaps.end());
    if (IsGood(record, limits)) ++report.good;
  }
  report.ttft = Measure(std::move(ttft));
  report.itl = Measure(std::move(itl));
  report.end_to_end = Measure(std::move(end_to_end));
  report.send_delay = Measure(std::move(send_delay));
  return report;
}

json ToJson(const Report& report) {
  const double good = static_cast<double>(report.good);
  return {{"requests",
           {{"planned", report.planned},
            {"ended", report.ended},
            {"ok", report.ok},
            {"failed", report.ended - report.ok}}},
          {"errors", report.errors},
          {"elapsed_s", report.elapsed_seconds},
          {"requests_per_s", PerSecond(static_cast<double>(report.ok), report)},
          {"prompt_tokens", report.prompt_tokens},
          {"output_tokens", report.output_tokens},
          {"prompt_tokens_per_s", PerSecond(static_cast<double>(report.prompt_tokens), report)},
          {"output_tokens_per_s", PerSecond(static_cast<double>(report.output_tokens), report)},
          {"ttft_s", ToJson(report.ttft)},
          {"itl_s", ToJson(report.itl)},
          {"e2e_s", ToJson(report.end_to_end)},
          {"send_delay_s", ToJson(report.send_delay)},
          {"client_cpu_s", report.client_cpu_seconds},
          {"goodput",
           {{"ttft_limit_s", ToJson(report.limits.ttft)},
            {"itl_limit_s", ToJson(report.limits.itl)},
            {"requests", report.good},
            {"requests_per_s", PerSecond(good, report)},
            {"share", report.ended > 0 ? good / static_cast<double>(report.ended) : 0.0}}}};
}

std::string ToText(const Report& report) {
  std::string out =
      Line("%zu of %zu requests in %.2f s, %zu ok (%.2f/s)", report.ended, report.planned,
           report.elapsed_seconds, report.ok, PerSecond(static_cast<double>(report.ok), report));
  for (const auto& [error, count] : report.errors) out += Line(", %zu %s", count, error.c_str());
  out +=
      Line("\ntokens in %.1f/s, out %.1f/s; this client used %.2f CPU seconds\n",
           PerSecond(static_cast<double>(report.prompt_tokens), report),
           PerSecond(static_cast<double>(report.output_tokens), report), report.client_cpu_seconds);
  out += Line("%-20s %9s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90", "p99", "max");
  out += SummaryLine("time to first token", report.ttft);
  out += SummaryLine("between tokens", report.itl);
  out += SummaryLine("end to end", report.end_to_end);
  out += SummaryLine("sent late by", report.send_delay);
  out += GoodputLine(report);
  out += "time to first token\n" + DrawHistogram(report.ttft.histogram, kBarWidth);
  out += "between tokens\n" + DrawHistogram(report.itl.histogram, kBarWidth);
  return out;
}

}  // namespace baton::client
