// Finds the tokens that are matched in the text itself, before it is split.
#ifndef BATON_TEXT_SPECIAL_TOKENS_H_
#define BATON_TEXT_SPECIAL_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/decoder_state.h"
#include "text/vocab_data.h"

namespace baton {

// Immutable. A trie over control tokens (only where the text may name them) and user-defined
// tokens (anywhere, as the reference does).
class SpecialTokens {
 public:
  explicit SpecialTokens(const VocabData& data);

  struct Match {
    TokenId token = kNoToken;  // kNoToken: none
    size_t length = 0;
  };
  // The longest one that begins at the start of `text`. A control token must end within its first
  // `trusted` bytes.
  Match Longest(std::string_view text, size_t trusted) const;

 private:
  static constexpr uint32_t kNoNode = 0;  // the root is no child
  struct Node {
    TokenId token = kNoToken;
    bool control = false;
  };
  uint32_t Child(uint32_t node, uint8_t byte) const;
  void Add(std::string_view text, TokenId token, bool control);

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> first_;                // children of the root
  std::unordered_map<uint64_t, uint32_t> deeper_;  // node << 8 | byte; looked up, never iterated
};

}  // namespace baton

#endif  // BATON_TEXT_SPECIAL_TOKENS_H_
