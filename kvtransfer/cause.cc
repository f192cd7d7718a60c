#include "kvtransfer/cause.h"

#include <map>
#include <string>

namespace baton::kvtransfer {
namespace {

std::map<int, std::string> MakeLabels() {
  constexpr std::string_view kPrefix = "CAUSE_";
  std::map<int, std::string> labels;
  const auto* descriptor = worker::v1::Cause_descriptor();
  for (int i = 0; i < descriptor->value_count(); ++i) {
    std::string label = descriptor->value(i)->name().substr(kPrefix.size());
    for (char& c : label) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    labels[descriptor->value(i)->number()] = label;
  }
  return labels;
}

}  // namespace

std::string_view CauseLabel(Cause cause) {
  static const std::map<int, std::string>& labels = *new auto(MakeLabels());
  const auto it = labels.find(static_cast<int>(cause));
  return it == labels.end() ? std::string_view("unknown") : it->second;
}

Cause CauseFromPeer(int value) {
  if (value == 0 || !worker::v1::Cause_IsValid(value)) return worker::v1::CAUSE_INTERNAL;
  return static_cast<Cause>(value);
}

}  // namespace baton::kvtransfer
