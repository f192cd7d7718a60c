#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "text/byte_alphabet.h"

namespace baton {
namespace {

using TokenIndex = std::unordered_map<std::string_view, TokenId>;

absl::StatusOr<TokenIndex> IndexTokens(const VocabData& data) {
  TokenIndex index;
  index.reserve(data.tokens.size());
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const auto inserted = index.emplace(data.tokens[i], static_cast<TokenId>(i));
    if (inserted.second) continue;
    return absl::InvalidArgumentError("tokenizer.ggml.tokens " + std::to_string(i) + " and " +
                                      std::to_string(inserted.first->second) + " are equal");
  }
  return index;
}

absl::StatusOr<TokenId> Find(const TokenIndex& index, const std::string& token, size_t rank) {
  const auto found = index.find(token);
  if (found != index.end()) return found->second;
  return absl::InvalidArgumentError("tokenizer.ggml.merges " + std::to_string(rank) +
                                    " needs the token '" + token + "', which does not exist");
}

absl::StatusOr<BpeModel::Merge> ReadMerge(const TokenIndex& index, const std::string& text,
                                          size_t rank) {
  const size_t space = text.find(' ');
  if (space == 0 || space == std::string::npos || space + 1 == text.size()) {
    return absl::InvalidArgumentError("tokenizer.ggml.merges " + std::to_string(rank) +
                                      " is not a pair: '" + text + "'");
  }
  BpeModel::Merge merge;
  const std::string left = text.substr(0, space);
  const std::string right = text.substr(space + 1);
  BATON_ASSIGN_OR_RETURN(merge.left, Find(index, left, rank));
  BATON_ASSIGN_OR_RETURN(merge.right, Find(index, right, rank));
  BATON_ASSIGN_OR_RETURN(merge.merged, Find(index, left + right, rank));
  return merge;
}

uint32_t HashPair(TokenId left, TokenId right) {
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  return static_cast<uint32_t>((key * 0x9E3779B97F4A7C15ULL) >> 32);
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(const VocabData& data) {
  BATON_ASSIGN_OR_RETURN(const TokenIndex index, IndexTokens(data));
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = index.find(BytesToAlphabet(std::string(1, static_cast<char>(byte))));
    model.byte_tokens_[static_cast<size_t>(byte)] = found == index.end() ? kNoToken : found->second;
  }
  model.merges_.reserve(data.merges.size());
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    BATON_ASSIGN_OR_RETURN(const Merge merge, ReadMerge(index, data.merges[rank], rank));
    model.merges_.push_back(merge);
  }
  model.BuildTable();
  return model;
}

void BpeModel::BuildTable() {
  size_t slots = 16;
  while (slots < 3 * merges_.size()) slots *= 2;
  mask_ = static_cast<uint32_t>(slots - 1);
  table_.assign(slots, kNoRank);
  for (uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    if (RankOf(merge.left, merge.right) != kNoRank) continue;  // the better rank holds
    uint32_t slot = HashPair(merge.left, merge.right) & mask_;
    while (table_[slot] != kNoRank) slot = (slot + 1) & mask_;
    table_[slot] = rank;
  }
}

uint32_t BpeModel::RankOf(TokenId left, TokenId right) const {
  uint32_t slot = HashPair(left, right) & mask_;
  while (table_[slot] != kNoRank) {
    const Merge& merge = merges_[table_[slot]];
    if (merge.left == left && merge.right == right) return table_[slot];
    slot = (slot + 1) & mask_;
  }
  return kNoRank;
}

void BpeMerger::Encode(std::string_view piece, std::vector<TokenId>* out) {
  LoadBytes(piece);
  heap_.clear();
  for (uint32_t i = 0; i < symbols_.size(); ++i) PushPair(i);
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto position = static_cast<uint32_t>(heap_.back());
    const BpeModel::Merge& merge = model_.merge(static_cast<uint32_t>(heap_.back() >> 32));
    heap_.pop_back();
    const Symbol& left = symbols_[position];
    if (left.token != merge.left || left.next == kNone) continue;
    if (symbols_[left.next].token != merge.right) continue;
    MergeAt(position, merge);
  }
  for (const Symbol& symbol : symbols_) {
    if (symbol.token != kNoToken) out->push_back(symbol.token);
  }
}

void BpeMerger::LoadBytes(std::string_view piece) {
  symbols_.clear();
  for (const char c : piece) {
    const TokenId token = model_.ByteToken(static_cast<uint8_t>(c));
    if (token == kNoToken) continue;
    const auto position = static_cast<uint32_t>(symbols_.size());
    if (position > 0) symbols_.back().next = position;
    symbols_.push_back({token, position > 0 ? position - 1 : kNone, kNone});
  }
}

void BpeMerger::PushPair(uint32_t position) {
  const Symbol& left = symbols_[position];
  if (left.next == kNone) return;
  ++steps_;
  const uint32_t rank = model_.RankOf(left.token, symbols_[left.next].token);
  if (rank != BpeModel::kNoRank) heap_.push_back((static_cast<uint64_t>(rank) << 32) | position);
}

void BpeMerger::MergeAt(uint32_t position, const BpeModel::Merge& merge) {
  Symbol& left = symbols_[position];
  Symbol& right = symbols_[left.next];
  left.token = merge.merged;
  right.token = kNoToken;
  left.next = right.next;
  if (left.next != kNone) symbols_[left.next].previous = position;
  for (const uint32_t begin : {left.previous, position}) {
    if (begin == kNone) continue;
    const size_t before = heap_.size();
    PushPair(begin);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
}

}  // namespace baton
