#include "sampling/logit_edits.h"

#include <limits>

namespace baton::sampling {

double Edited(double logit, const LogitEdit& edit) {
  if (edit.forbidden) return -std::numeric_limits<double>::infinity();
  logit += static_cast<double>(edit.bias);
  if (edit.repetition != 1) {
    const auto repetition = static_cast<double>(edit.repetition);
    logit = logit > 0 ? logit / repetition : logit * repetition;
  }
  return logit - edit.penalty;
}

LogitEditor::LogitEditor(const SamplingParams& params, std::span<const TokenId> prompt)
    : presence_(params.presence_penalty),
      frequency_(params.frequency_penalty),
      repetition_(params.repetition_penalty) {
  for (const LogitBias& bias : params.logit_bias) entries_[bias.token].bias = bias.bias;
  if (repetition_ == 1) return;
  for (const TokenId token : prompt) entries_[token].seen = true;
}

void LogitEditor::Accept(TokenId sampled) {
  if (presence_ == 0 && frequency_ == 0 && repetition_ == 1) return;
  Entry& entry = entries_[sampled];
  entry.seen = true;
  ++entry.sampled;
}

std::vector<LogitEdit> LogitEditor::Edits(std::span<const TokenId> forbidden) const {
  std::map<TokenId, LogitEdit> edits;
  for (const TokenId token : forbidden) edits[token] = {.token = token, .forbidden = true};
  for (const auto& [token, entry] : entries_) {
    LogitEdit edit{.token = token, .bias = entry.bias};
    if (entry.seen) edit.repetition = repetition_;
    if (entry.sampled > 0) {
      edit.penalty = static_cast<double>(presence_) +
                     static_cast<double>(frequency_) * static_cast<double>(entry.sampled);
    }
    edits.emplace(token, edit);  // forbidden wins
  }
  std::vector<LogitEdit> out;
  out.reserve(edits.size());
  for (const auto& [token, edit] : edits) out.push_back(edit);
  return out;
}

}  // namespace baton::sampling
