#include "kernels/cpu/attention.h"

#include <algorithm>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kItemsPerThread = 8;
// Fewer do not repay that keys and values are written once more.
constexpr uint32_t kMinPromptVectors = 18;

}  // namespace

// As many vectors as leave eight items to every thread.
uint32_t Attention::PromptVectors(const LayerCall& call) const {
  const uint32_t group = call.heads.heads / call.heads.kv_heads;
  uint32_t rows = 0;
  for (const SequenceRows& sequence : call.batch.sequences) {
    if (sequence.rows * group >= kMinPromptVectors) rows += sequence.rows;
  }
  const uint32_t fair = rows * call.heads.heads / (kItemsPerThread * pool_.threads());
  const uint32_t vectors = std::min(fair, PromptTile::MaxVectors(tier_, call));
  return vectors < std::max(group, kMinPromptVectors) ? 0 : vectors / group * group;
}

// The longest first, so that all threads end together.
void Attention::ListPrompt(const SequenceRows& sequence, const LayerCall& call, uint32_t vectors) {
  const uint32_t group = call.heads.heads / call.heads.kv_heads;
  const uint32_t queries = sequence.rows * group;
  for (uint32_t end = queries; end > 0;) {
    AttentionItem item;
    item.sequence = &sequence;
    item.prompt = true;
    item.first_query = (end - 1) / vectors * vectors;
    item.queries = end - item.first_query;
    item.end_segment = (sequence.first_position + (end - 1) / group) / kSegment + 1;
    for (; item.kv_head < call.heads.kv_heads; ++item.kv_head) items_.push_back(item);
    end = item.first_query;
  }
}

void Attention::ListItems(const LayerCall& call, uint32_t max_vectors, uint32_t prompt_vectors) {
  items_.clear();
  const uint32_t group = call.heads.heads / call.heads.kv_heads;
  for (const SequenceRows& sequence : call.batch.sequences) {
    const uint32_t queries = sequence.rows * group;
    if (prompt_vectors > 0 && queries >= kMinPromptVectors) {
      ListPrompt(sequence, call, prompt_vectors);
      continue;
    }
    const uint32_t heads = std::max(1u, max_vectors / queries);
    for (uint32_t kv_head = 0; kv_head < call.heads.kv_heads; kv_head += heads) {
      for (uint32_t first = 0; first < queries; first += kMaxVectors) {
        AttentionItem item;
        item.sequence = &sequence;
        item.first_query = first;
        item.queries = std::min(kMaxVectors, queries - first);
        item.kv_head = kv_head;
        item.kv_heads = std::min(heads, call.heads.kv_heads - kv_head);
        const uint32_t last_row = (first + item.queries - 1) / group;
        item.end_segment = (sequence.first_position + last_row) / kSegment + 1;
        items_.push_back(item);
      }
    }
  }
}

void Attention::SplitItems(const LayerCall& call) {
  whole_items_.swap(items_);
  items_.clear();
  segments_.Reset(whole_items_.size(), 0);
  for (uint32_t whole = 0; whole < whole_items_.size(); ++whole) {
    segments_.Set(whole, whole_items_[whole].end_segment);
    for (uint32_t segment = 0; segment < whole_items_[whole].end_segment; ++segment) {
      AttentionItem item = whole_items_[whole];
      item.first_segment = segment;
      item.end_segment = segment + 1;
      item.whole = whole;
      items_.push_back(item);
    }
  }
  const size_t size = kMaxVectors * AttentionTile::PartialSize(call.heads.head_dim);
  if (partials_.size() < items_.size() * size) partials_.resize(items_.size() * size);
  for (size_t i = items_.size(); i-- > 0;) {
    items_[i].partial = &partials_[i * size];
    whole_items_[items_[i].whole].partial = items_[i].partial;  // at last that of segment 0
  }
}

// Items of several heads read memory best, items of several segments need no merge.
void Attention::PlanItems(const LayerCall& call) {
  ListItems(call, kMaxVectors, PromptVectors(call));
  const auto is_few = [&](size_t count) { return count < kItemsPerThread * pool_.threads(); };
  if (pool_.threads() == 1 || !is_few(items_.size())) return;
  ListItems(call, kMaxVectors, 0);
  if (is_few(Segments())) ListItems(call, 1, 0);
  if (is_few(items_.size()) && Segments() > items_.size()) SplitItems(call);
}

size_t Attention::Segments() const {
  size_t count = 0;
  for (const AttentionItem& item : items_) count += item.end_segment;
  return count;
}

void Attention::RunItem(const AttentionItem& item, const Pass& pass) {
  if (item.prompt) {
    PromptTile(tier_, pass.call, item).Run(pass.qkv, pass.out);
    return FinishRows(item, pass);
  }
  AttentionTile tile(tier_, pass.call, item);
  tile.Run(pass.qkv);
  if (item.partial == nullptr) {
    tile.Finish(pass.out);
    FinishRows(item, pass);
    return;
  }
  tile.SavePartial();
  if (segments_.Finish(item.whole)) MergePartials(whole_items_[item.whole], pass);
}

void Attention::MergePartials(const AttentionItem& whole, const Pass& pass) {
  AttentionTile tile(tier_, pass.call, whole);
  const size_t size = kMaxVectors * AttentionTile::PartialSize(pass.call.heads.head_dim);
  for (uint32_t segment = 0; segment < whole.end_segment; ++segment) {
    tile.JoinPartial(whole.partial + segment * size, segment);
  }
  tile.Finish(pass.out);
  FinishRows(whole, pass);
}

void Attention::FinishRows(const AttentionItem& item, const Pass& pass) {
  CpuActivation& out = pass.out;
  const uint32_t group = pass.call.heads.heads / pass.call.heads.kv_heads;
  const uint32_t end = item.first_query + item.queries;
  for (uint32_t query = item.first_query; query < end;) {
    const uint32_t next = std::min(end, (query / group + 1) * group);
    const uint32_t row = item.sequence->first_row + query / group;
    if (heads_.Finish(row, (next - query) * item.kv_heads)) {
      out.Quantize(tier_, out.values(row), out.cols(), row, 1, 0, out.blocks());
    }
    query = next;
  }
}

void Attention::Run(const LayerCall& call, const CpuActivation& qkv, CpuActivation& out) {
  BATON_CHECK(call.heads.head_dim <= kMaxHeadDim);
  PlanItems(call);
  heads_.Reset(call.batch.rows, call.heads.heads);
  const auto count = static_cast<uint32_t>(items_.size());
  constexpr uint32_t kMaxChunks = 4096;
  const uint32_t per_chunk = (count + kMaxChunks - 1) / kMaxChunks;
  pool_.Run((count + per_chunk - 1) / per_chunk, [&](uint32_t chunk) {
    const uint32_t end = std::min(count, (chunk + 1) * per_chunk);
    for (uint32_t i = chunk * per_chunk; i < end; ++i) RunItem(items_[i], {call, qkv, out});
  });
}

}  // namespace baton::kernels::cpu
