#include "text/special_tokens.h"

namespace baton {

SpecialTokens::SpecialTokens(const VocabData& data) : nodes_(1) {
  first_.fill(kNoNode);
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const TokenType type = data.types[i];
    const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!control && type != TokenType::kUserDefined) continue;
    if (!data.tokens[i].empty()) Add(data.tokens[i], static_cast<TokenId>(i), control);
  }
}

SpecialTokens::Match SpecialTokens::Longest(std::string_view text, size_t trusted) const {
  Match longest;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = Child(node, static_cast<uint8_t>(text[i]));
    if (node == kNoNode) break;
    const bool allowed = !nodes_[node].control || i < trusted;
    if (nodes_[node].token != kNoToken && allowed) longest = {nodes_[node].token, i + 1};
  }
  return longest;
}

uint32_t SpecialTokens::Child(uint32_t node, uint8_t byte) const {
  if (node == 0) return first_[byte];
  const auto found = deeper_.find((static_cast<uint64_t>(node) << 8) | byte);
  return found == deeper_.end() ? kNoNode : found->second;
}

void SpecialTokens::Add(std::string_view text, TokenId token, bool control) {
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t child = Child(node, byte);
    if (child == kNoNode) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      uint32_t& link =
          node == 0 ? first_[byte] : deeper_[(static_cast<uint64_t>(node) << 8) | byte];
      link = child;
    }
    node = child;
  }
  nodes_[node] = {token, control};
}

}  // namespace baton
