#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kMaxQueries = 12;  // two register tiles of six
constexpr uint32_t kMaxHeadDim = 256;
constexpr uint32_t kMaxRuns = kSegment / 16;

const uint16_t* Halves(const std::byte* p) { return reinterpret_cast<const uint16_t*>(p); }

}  // namespace

// The work of one item: scores, softmax and weighted values of one segment after another. Blocks
// are read where they lie.
class Attention::Tile {
 public:
  Tile(const Tier& tier, const LayerCall& call, const Item& item)
      : tier_(tier),
        call_(call),
        item_(item),
        dim_(call.heads.head_dim),
        group_(call.heads.heads / call.heads.kv_heads),
        block_size_(call.kv.layout->block_size),
        table_(item.sequence->tables[call.kv.layout->layers[call.layer].group]) {}

  void Run(const CpuActivation& qkv) {
    for (uint32_t q = 0; q < item_.queries; ++q) {
      const float* head = qkv.values(RowOf(q)) + size_t{HeadOf(q)} * dim_;
      std::memcpy(&query_[q * dim_], head, dim_ * sizeof(float));
    }
    for (uint32_t segment = item_.first_segment; segment < item_.end_segment; ++segment) {
      Scores(segment);
      Values(segment);
      for (uint32_t q = 0; q < item_.queries; ++q) {
        if (KeysIn(segment, q) > 0) Join(q, segment == item_.first_segment);
      }
    }
  }

  // out[i] = values / sum, for every query.
  void Finish(CpuActivation& out) const {
    for (uint32_t q = 0; q < item_.queries; ++q) {
      Divide(&value_[q * dim_], state_[q].sum, dim_,
             out.values(RowOf(q)) + size_t{HeadOf(q)} * dim_);
    }
  }

  void SavePartial() const {
    for (uint32_t q = 0; q < item_.queries; ++q) {
      float* to = item_.partial + q * PartialSize(dim_);
      std::memcpy(to, &state_[q], sizeof state_[q]);
      std::memcpy(to + 2, &value_[q * dim_], dim_ * sizeof(float));
    }
  }

  // Takes over the state that another item saved for the next segment of the same queries.
  void JoinPartial(const float* partial, uint32_t segment) {
    for (uint32_t q = 0; q < item_.queries; ++q) {
      if (KeysIn(segment, q) == 0) continue;
      const float* from = partial + q * PartialSize(dim_);
      std::memcpy(&segment_state_[q], from, sizeof segment_state_[q]);
      std::memcpy(&segment_value_[q * dim_], from + 2, dim_ * sizeof(float));
      Join(q, segment == 0);
    }
  }

  static size_t PartialSize(uint32_t dim) { return size_t{2} + dim; }

 private:
  static void Divide(const float* values, float sum, uint32_t n, float* out) {
    for (uint32_t i = 0; i < n; ++i) out[i] = values[i] / sum;
  }

  uint32_t RowInSequence(uint32_t q) const { return (item_.first_query + q) / group_; }
  uint32_t RowOf(uint32_t q) const { return item_.sequence->first_row + RowInSequence(q); }
  uint32_t HeadOf(uint32_t q) const {
    return item_.kv_head * group_ + (item_.first_query + q) % group_;
  }
  // How many keys of `segment` query q sees: those up to its own position.
  uint32_t KeysIn(uint32_t segment, uint32_t q) const {
    const uint32_t keys = item_.sequence->first_position + RowInSequence(q) + 1;
    const uint32_t before = segment * kSegment;
    return keys > before ? std::min(keys - before, kSegment) : 0;
  }

  const std::byte* Piece(uint32_t arena, uint32_t key) const {
    return call_.kv.Piece(call_.layer, arena, table_[key / block_size_]);
  }

  // scores_[q][key] = exp(scaled score - max) for the keys that q sees; other entries hold
  // anything and are never used.
  void Scores(uint32_t segment) {
    const uint32_t first_key = segment * kSegment;
    const uint32_t keys = KeysIn(segment, item_.queries - 1);
    for (uint32_t key = 0; key < keys; key += kPanel) {
      const size_t head = size_t{item_.kv_head} * dim_ * block_size_;
      const uint16_t* run =
          Halves(Piece(kv::kKeyArena, first_key + key)) + head + (first_key + key) % block_size_;
      DensePanel<uint16_t> args;
      args.a = query_;
      args.a_stride = dim_;
      args.runs = &run;
      args.run = args.k = dim_;
      args.b_stride = block_size_;
      args.rows = item_.queries;
      args.out = &scores_[key];
      args.out_stride = kSegment;
      tier_.dense_half(args);
    }
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim_));
    for (uint32_t q = 0; q < item_.queries; ++q) {
      const uint32_t count = KeysIn(segment, q);
      if (count > 0) segment_state_[q] = tier_.softmax(&scores_[q * kSegment], count, scale);
    }
  }

  // segment_value_[q] = sum of p * value over the keys that q sees, ascending. What all queries
  // see is taken together; the rest, at most as many keys as the tile has rows, row by row.
  void Values(uint32_t segment) {
    const uint32_t common = KeysIn(segment, 0);
    if (common > 0) AddValues(segment, 0, item_.queries, 0, common);
    for (uint32_t q = 0; q < item_.queries;) {
      uint32_t end = q + 1;
      while (end < item_.queries && RowInSequence(end) == RowInSequence(q)) ++end;
      AddValues(segment, q, end, common, KeysIn(segment, q));
      q = end;
    }
  }

  // Adds keys [begin, end) of the segment to queries [first, last). The sums start at key 0.
  void AddValues(uint32_t segment, uint32_t first, uint32_t last, uint32_t begin, uint32_t end) {
    while (begin < end) {
      const uint32_t in_block = (segment * kSegment + begin) % block_size_;
      // Whole blocks in one go when the first one is entered at its start.
      const uint32_t stop = in_block == 0 ? end : std::min(end, begin + block_size_ - in_block);
      AddRuns(segment, first, last, begin, stop);
      begin = stop;
    }
  }

  void AddRuns(uint32_t segment, uint32_t first, uint32_t last, uint32_t begin, uint32_t end) {
    const uint16_t* blocks[kMaxRuns];
    uint32_t count = 0;
    for (uint32_t key = begin; key < end; key += block_size_) {
      const uint32_t absolute = segment * kSegment + key;
      const size_t row = size_t{item_.kv_head} * block_size_ + absolute % block_size_;
      blocks[count++] = Halves(Piece(kv::kValueArena, absolute)) + row * dim_;
    }
    DensePanel<uint16_t> args;
    args.a = &scores_[first * kSegment + begin];
    args.a_stride = kSegment;
    args.run = block_size_;
    args.b_stride = dim_;
    args.rows = last - first;
    args.k = end - begin;
    args.out_stride = dim_;
    args.store = begin > 0 ? DenseStore::kContinue : DenseStore::kReplace;
    for (uint32_t d = 0; d < dim_; d += kPanel) {
      const uint16_t* runs[kMaxRuns];
      for (uint32_t i = 0; i < count; ++i) runs[i] = blocks[i] + d;
      args.runs = runs;
      args.cols = std::min(kPanel, dim_ - d);
      args.out = &segment_value_[first * dim_ + d];
      tier_.dense_half(args);
    }
  }

  // Merges the segment's state of query q into its state.
  void Join(uint32_t q, bool is_first) {
    if (is_first) {
      state_[q] = segment_state_[q];
      std::memcpy(&value_[q * dim_], &segment_value_[q * dim_], dim_ * sizeof(float));
    } else {
      tier_.merge(&state_[q], &value_[q * dim_], segment_state_[q], &segment_value_[q * dim_],
                  dim_);
    }
  }

  const Tier& tier_;
  const LayerCall& call_;
  const Item& item_;
  const uint32_t dim_;
  const uint32_t group_;
  const uint32_t block_size_;
  const std::span<const kv::BlockId> table_;
  SoftmaxState state_[kMaxQueries];
  SoftmaxState segment_state_[kMaxQueries];
  alignas(64) float query_[kMaxQueries * kMaxHeadDim];
  alignas(64) float scores_[kMaxQueries * kSegment];
  alignas(64) float segment_value_[kMaxQueries * kMaxHeadDim];
  alignas(64) float value_[kMaxQueries * kMaxHeadDim];
};

void Attention::ListItems(const LayerCall& call) {
  items_.clear();
  const uint32_t group = call.heads.heads / call.heads.kv_heads;
  for (const SequenceRows& sequence : call.batch.sequences) {
    for (uint32_t kv_head = 0; kv_head < call.heads.kv_heads; ++kv_head) {
      const uint32_t queries = sequence.rows * group;
      for (uint32_t first = 0; first < queries; first += kMaxQueries) {
        Item item;
        item.sequence = &sequence;
        item.first_query = first;
        item.queries = std::min(kMaxQueries, queries - first);
        item.kv_head = kv_head;
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
      Item item = whole_items_[whole];
      item.first_segment = segment;
      item.end_segment = segment + 1;
      item.whole = whole;
      items_.push_back(item);
    }
  }
  const size_t size = kMaxQueries * Tile::PartialSize(call.heads.head_dim);
  if (partials_.size() < items_.size() * size) partials_.resize(items_.size() * size);
  for (size_t i = items_.size(); i-- > 0;) {
    items_[i].partial = &partials_[i * size];
    whole_items_[items_[i].whole].partial = items_[i].partial;  // at last that of segment 0
  }
}

bool Attention::ShouldSplit() const {
  const auto longest =
      std::max_element(items_.begin(), items_.end(),
                       [](const Item& a, const Item& b) { return a.end_segment < b.end_segment; });
  return pool_.threads() > 1 && longest->end_segment > 1 &&
         items_.size() < size_t{4} * pool_.threads();
}

void Attention::RunItem(const Item& item, const Pass& pass) {
  Tile tile(tier_, pass.call, item);
  tile.Run(pass.qkv);
  if (item.partial == nullptr) {
    tile.Finish(pass.out);
    FinishRows(item, pass);
    return;
  }
  tile.SavePartial();
  if (segments_.Finish(item.whole)) MergePartials(whole_items_[item.whole], pass);
}

void Attention::MergePartials(const Item& whole, const Pass& pass) {
  Tile tile(tier_, pass.call, whole);
  const size_t size = kMaxQueries * Tile::PartialSize(pass.call.heads.head_dim);
  for (uint32_t segment = 0; segment < whole.end_segment; ++segment) {
    tile.JoinPartial(whole.partial + segment * size, segment);
  }
  tile.Finish(pass.out);
  FinishRows(whole, pass);
}

void Attention::FinishRows(const Item& item, const Pass& pass) {
  CpuActivation& out = pass.out;
  const uint32_t group = pass.call.heads.heads / pass.call.heads.kv_heads;
  const uint32_t end = item.first_query + item.queries;
  for (uint32_t query = item.first_query; query < end;) {
    const uint32_t next = std::min(end, (query / group + 1) * group);
    const uint32_t row = item.sequence->first_row + query / group;
    if (heads_.Finish(row, next - query)) {
      out.Quantize(tier_, out.values(row), out.cols(), row, 1, 0, out.blocks());
    }
    query = next;
  }
}

void Attention::Run(const LayerCall& call, const CpuActivation& qkv, CpuActivation& out) {
  BATON_CHECK(call.heads.head_dim <= kMaxHeadDim);
  ListItems(call);
  if (ShouldSplit()) SplitItems(call);
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
