// Variables of a running template.
#ifndef BATON_TEXT_JINJA_SCOPES_H_
#define BATON_TEXT_JINJA_SCOPES_H_

#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace baton::jinja {

// A stack of frames: one for the template, one per running loop body and macro. Names are views
// into the program, which outlives it.
class Scopes {
 public:
  // `variables` (the context) must outlive it.
  explicit Scopes(const Map& variables) : variables_(variables), frames_(1) {}

  // A frame for its lifetime.
  class Scope {
   public:
    // `isolated` (a macro): of the frames below, only the template's is seen.
    Scope(Scopes* scopes, bool isolated) : scopes_(*scopes) {
      scopes_.frames_.push_back({isolated, {}});
    }
    ~Scope() { scopes_.frames_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    void Clear() { scopes_.frames_.back().names.clear(); }

   private:
    Scopes& scopes_;
  };

  // In the innermost frame.
  void Set(std::string_view name, Value value) {
    for (auto& entry : frames_.back().names) {
      if (entry.first != name) continue;
      entry.second = std::move(value);
      return;
    }
    frames_.back().names.emplace_back(name, std::move(value));
  }

  Value Get(std::string_view name) const {
    for (size_t i = frames_.size(); i-- > 0;) {
      for (const auto& entry : frames_[i].names) {
        if (entry.first == name) return entry.second;
      }
      if (frames_[i].isolated) i = 1;
    }
    for (const auto& variable : variables_) {
      if (variable.first.bytes() == name) return variable.second;
    }
    return Value::MakeUndefined(name);
  }

 private:
  struct Frame {
    bool isolated = false;
    std::vector<std::pair<std::string_view, Value>> names;
  };

  const Map& variables_;
  std::vector<Frame> frames_;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_SCOPES_H_
