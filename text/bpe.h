// Byte-pair merging by rank.
#ifndef BATON_TEXT_BPE_H_
#define BATON_TEXT_BPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "text/vocab_data.h"

namespace baton {

// Merges of a vocabulary, looked up by pair. Immutable.
class BpeModel {
 public:
  // INVALID_ARGUMENT when a merge names a token that does not exist.
  static absl::StatusOr<BpeModel> Create(const VocabData& data);

  struct Merge {
    TokenId left;
    TokenId right;
    TokenId merged;
  };
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  uint32_t RankOf(TokenId left, TokenId right) const;
  const Merge& merge(uint32_t rank) const { return merges_[rank]; }
  // kNoToken when the vocabulary has no token for this byte alone.
  TokenId ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }

 private:
  BpeModel() = default;
  void BuildTable();

  std::vector<Merge> merges_;    // by rank
  std::vector<uint32_t> table_;  // open addressing over pairs: a rank or kNoRank
  uint32_t mask_ = 0;
  std::array<TokenId, 256> byte_tokens_;
};

// Merges one piece at a time, always the pair of lowest rank and of those the leftmost, with a
// heap: O(n log n) for a piece of n bytes. Holds its buffers from piece to piece. Not thread-safe.
// `model` must outlive it.
class BpeMerger {
 public:
  explicit BpeMerger(const BpeModel& model) : model_(model) {}

  // Appends the tokens of `piece` (below 4 GiB). A byte without a token is left out, as the
  // reference does.
  void Encode(std::string_view piece, std::vector<TokenId>* out);

  // Pairs looked at so far; tests hold them linear in the bytes.
  uint64_t steps() const { return steps_; }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  struct Symbol {
    TokenId token;  // kNoToken: merged into its left neighbour
    uint32_t previous;
    uint32_t next;
  };
  void LoadBytes(std::string_view piece);
  // (rank, position) of the pair that begins at `position`, if they merge.
  void PushPair(uint32_t position);
  void MergeAt(uint32_t position, const BpeModel::Merge& merge);

  const BpeModel& model_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // rank << 32 | position, lowest on top; stale entries are skipped
  uint64_t steps_ = 0;
};

}  // namespace baton

#endif  // BATON_TEXT_BPE_H_
