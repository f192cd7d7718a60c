#include "kv/prefix_cache.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace baton::kv {

PrefixCache::PrefixCache(Options options, BlockPool& pool, PrefixCacheMetrics& metrics)
    : options_(std::move(options)), pool_(pool), metrics_(metrics) {
  for (const uint32_t blocks : pool_.capacity()) {
    node_of_.emplace_back(blocks, kNone);
  }
  nodes_.resize(node_of_.front().size());
  pool_.SetKeeper(this);
}

PrefixCache::~PrefixCache() {
  for (Node& node : nodes_) {
    if (!node.used) continue;
    for (GroupId g = 0; g < node.blocks.size(); ++g) pool_.Unkeep({g, node.blocks[g]});
  }
  pool_.SetKeeper(nullptr);
}

std::optional<PrefixQuery> PrefixCache::Query(const std::string& cache_namespace,
                                              std::span<const TokenId> tokens, size_t most) const {
  if (cache_namespace.empty()) return std::nullopt;
  PrefixQuery query{cache_namespace, tokens, {}};
  Digest hash = RootHash(cache_namespace);
  const size_t size = options_.block_size;
  const size_t end = std::min(most, tokens.size());
  for (size_t begin = 0; begin + size <= end; begin += size) {
    hash = options_.hash(hash, tokens.subspan(begin, size));
    query.hashes.push_back(hash);
  }
  return query;
}

absl::StatusOr<CachedLease> PrefixCache::Take(const PrefixQuery& query,
                                              const std::vector<uint32_t>& wanted, uint32_t spare) {
  const Want want{query, wanted};
  BATON_ASSIGN_OR_RETURN(std::vector<CachedLease> taken, TakeAll({&want, 1}, spare));
  const uint32_t found = taken.front().chain.blocks;
  if (!query.hashes.empty()) (found == 0 ? metrics_.misses : metrics_.hits).Increment();
  metrics_.cached_tokens.Increment(found * options_.block_size);
  return std::move(taken.front());
}

absl::StatusOr<std::vector<CachedLease>> PrefixCache::TakeAll(std::span<const Want> wants,
                                                              uint32_t spare) {
  std::vector<Nodes> found;
  for (const Want& want : wants) found.push_back(Find(want.query));
  std::vector<uint32_t> needed = Needed(wants, found);
  for (uint32_t& count : needed) count += spare;
  if (!pool_.FitsNow(needed)) return pool_.Take(needed).status();
  std::vector<BlockLease> held;
  for (const Nodes& nodes : found) held.push_back(ShareNodes(nodes));
  std::vector<CachedLease> out;
  for (size_t i = 0; i < wants.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(CachedLease lease, TakeRest(wants[i], found[i], std::move(held[i])));
    out.push_back(std::move(lease));
  }
  return out;
}

absl::StatusOr<CachedLease> PrefixCache::TakeRest(const Want& want, const Nodes& found,
                                                  BlockLease held) {
  const auto blocks = static_cast<uint32_t>(found.size());
  std::vector<uint32_t> rest = want.blocks;
  for (uint32_t& count : rest) count -= blocks;
  const PrefixQuery& query = want.query;
  CachedLease out{std::move(held), {.open = true, .cache_namespace = query.cache_namespace}};
  BATON_ASSIGN_OR_RETURN(BlockLease fresh, pool_.Take(rest));
  out.lease.Append(std::move(fresh));
  out.chain.blocks = blocks;
  out.chain.last = found.empty() ? 0 : found.back();
  out.chain.hash = found.empty() ? RootHash(query.cache_namespace) : query.hashes[blocks - 1];
  return out;
}

uint32_t PrefixCache::HeldTokens(const PrefixQuery& query) const {
  return static_cast<uint32_t>(Find(query).size()) * options_.block_size;
}

std::vector<BlockId> PrefixCache::Find(const PrefixQuery& query) const {
  std::vector<BlockId> found;
  Key key{.cache_namespace = query.cache_namespace};
  for (size_t i = 0; i < query.hashes.size(); ++i) {
    key.hash = query.hashes[i];
    key.tokens = query.tokens.subspan(i * options_.block_size, options_.block_size);
    const auto node = by_hash_.find(key.hash);
    if (node == by_hash_.end() || !Same(nodes_[node->second], key)) break;
    key.parent = node->second;
    found.push_back(node->second);
  }
  return found;
}

// New blocks, and those found that nobody holds: they are not there to be given up.
std::vector<uint32_t> PrefixCache::Needed(std::span<const Want> wants,
                                          const std::vector<Nodes>& found) const {
  std::vector<uint32_t> needed(pool_.num_groups());
  std::set<BlockId> counted;
  for (size_t i = 0; i < wants.size(); ++i) {
    for (GroupId g = 0; g < needed.size(); ++g) {
      BATON_CHECK(found[i].size() <= wants[i].blocks[g]);
      needed[g] += wants[i].blocks[g] - static_cast<uint32_t>(found[i].size());
    }
    for (const BlockId id : found[i]) {
      if (!counted.insert(id).second) continue;
      for (GroupId g = 0; g < needed.size(); ++g) {
        needed[g] += pool_.StateOf({g, nodes_[id].blocks[g]}) == BlockState::kCached ? 1 : 0;
      }
    }
  }
  return needed;
}

bool PrefixCache::Same(const Node& node, const Key& key) const {
  return node.parent == key.parent && std::ranges::equal(node.tokens, key.tokens) &&
         node.space->first == key.cache_namespace;
}

BlockLease PrefixCache::ShareNodes(const std::vector<BlockId>& nodes) {
  GroupBlocks blocks(pool_.num_groups());
  for (const BlockId id : nodes) {
    Node& node = nodes_[id];
    for (GroupId g = 0; g < blocks.size(); ++g) blocks[g].push_back(node.blocks[g]);
    if (node.shared == 0) unused_.erase({node.last_use, id});
    node.shared = static_cast<uint32_t>(blocks.size());
  }
  return pool_.ShareKept(std::move(blocks));
}

void PrefixCache::Store(CacheChain& chain, std::span<const TokenId> tokens, BlockLease& lease) {
  if (!chain.open) return;
  BATON_CHECK(tokens.size() == options_.block_size);
  const Key key{options_.hash(chain.hash, tokens), chain.blocks == 0 ? kNone : chain.last,
                chain.cache_namespace, tokens};
  const auto there = by_hash_.find(key.hash);
  if (there == by_hash_.end()) {
    Insert(chain, key, lease);
    chain.last = lease.blocks().front()[chain.blocks];
  } else if (Same(nodes_[there->second], key)) {
    chain.last = there->second;
    if (lease.blocks().front()[chain.blocks] != chain.last) {
      lease.Replace(chain.blocks, ShareNodes({chain.last}));
    }
  } else {
    chain.open = false;  // another block has its name
    return;
  }
  chain.hash = key.hash;
  ++chain.blocks;
}

void PrefixCache::Insert(const CacheChain& chain, const Key& key, const BlockLease& lease) {
  const GroupBlocks& from = lease.blocks();
  const BlockId id = from.front()[chain.blocks];
  Node& node = nodes_[id];
  BATON_CHECK(!node.used && (key.parent == kNone || nodes_[key.parent].shared > 0));
  node = {.used = true,
          .ordinal = chain.blocks,
          .shared = static_cast<uint32_t>(from.size()),
          .parent = key.parent,
          .parent_hash = chain.hash,
          .hash = key.hash,
          .space = spaces_.try_emplace(std::string(key.cache_namespace), 0).first,
          .tokens = {key.tokens.begin(), key.tokens.end()}};
  for (GroupId g = 0; g < from.size(); ++g) {
    const BlockId block = from[g][chain.blocks];
    pool_.Keep({g, block});
    node.blocks.push_back(block);
    node_of_[g][block] = id;
  }
  if (key.parent != kNone) ++nodes_[key.parent].children;
  ++node.space->second;
  by_hash_.emplace(node.hash, id);
  Emit(CacheEvent::Action::kStored, node);
}

void PrefixCache::OnUnshared(BlockRef ref) {
  const BlockId id = node_of_[ref.group][ref.block];
  Node& node = nodes_[id];
  BATON_CHECK(node.used && node.shared > 0);
  if (--node.shared > 0) return;
  node.last_use = ++uses_;
  if (node.children == 0) unused_.emplace(node.last_use, id);
}

bool PrefixCache::GiveUpSome() {
  if (unused_.empty()) return false;
  Remove(unused_.begin()->second);
  metrics_.evictions.Increment();
  return true;
}

void PrefixCache::Remove(BlockId id) {
  Node node = std::exchange(nodes_[id], {});
  BATON_CHECK(node.shared == 0 && node.children == 0);
  unused_.erase({node.last_use, id});
  by_hash_.erase(node.hash);
  Emit(CacheEvent::Action::kRemoved, node);
  if (--node.space->second == 0) spaces_.erase(node.space);
  if (node.parent != kNone) {
    Node& parent = nodes_[node.parent];
    const bool leaf = --parent.children == 0;
    if (leaf && parent.shared == 0) unused_.emplace(parent.last_use, node.parent);
  }
  for (GroupId g = 0; g < node.blocks.size(); ++g) {
    node_of_[g][node.blocks[g]] = kNone;
    pool_.Unkeep({g, node.blocks[g]});
  }
}

CacheEvent PrefixCache::EventOf(CacheEvent::Action action, const Node& node) const {
  return {action, node.ordinal, node.hash, node.parent_hash};
}

void PrefixCache::Emit(CacheEvent::Action action, const Node& node) const {
  if (options_.on_event != nullptr) options_.on_event(EventOf(action, node));
}

CacheSnapshotPage PrefixCache::Snapshot(uint32_t from, uint32_t most) const {
  CacheSnapshotPage page;
  page.begin = from;
  for (BlockId id = from; id < nodes_.size(); ++id) {
    if (!nodes_[id].used) continue;
    if (page.blocks.size() == most) {
      page.next = id;
      return page;
    }
    page.blocks.push_back(EventOf(CacheEvent::Action::kStored, nodes_[id]));
  }
  return page;
}

absl::Status PrefixCache::CheckNode(BlockId id) const {
  const Node& node = nodes_[id];
  const auto broken = [id](const char* what) {
    return absl::InternalError("cached block " + std::to_string(id) + ": " + what);
  };
  const auto named = by_hash_.find(node.hash);
  if (named == by_hash_.end() || named->second != id) return broken("not found by its name");
  if (options_.hash(node.parent_hash, node.tokens) != node.hash) return broken("a wrong name");
  const Node* const parent = node.parent == kNone ? nullptr : &nodes_[node.parent];
  const bool first = parent == nullptr;
  const Digest before = first ? RootHash(node.space->first) : parent->hash;
  if (node.parent_hash != before) return broken("its parent has another name");
  if (node.ordinal != (first ? 0 : parent->ordinal + 1)) return broken("out of place");
  if (!first && (!parent->used || parent->space != node.space)) return broken("parent is gone");
  if (!first && node.shared > 0 && parent->shared == 0) return broken("held without its parent");
  uint32_t shared = 0;
  for (GroupId g = 0; g < node.blocks.size(); ++g) {
    shared += pool_.SharesOf({g, node.blocks[g]}) > 0 ? 1 : 0;
    if (node_of_[g][node.blocks[g]] != id) return broken("its block is another's");
  }
  if (shared != node.shared) return broken("the holders are miscounted");
  const bool leaf = node.shared == 0 && node.children == 0;
  if (leaf != unused_.contains({node.last_use, id})) return broken("not where it is given up from");
  return absl::OkStatus();
}

absl::Status PrefixCache::CheckIntegrity() const {
  std::vector<uint32_t> children(nodes_.size());
  uint32_t used = 0;
  for (BlockId id = 0; id < nodes_.size(); ++id) {
    if (!nodes_[id].used) continue;
    ++used;
    BATON_RETURN_IF_ERROR(CheckNode(id));
    if (nodes_[id].parent != kNone) ++children[nodes_[id].parent];
  }
  for (BlockId id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].children == children[id]) continue;
    return absl::InternalError("cached block " + std::to_string(id) + ": miscounted children");
  }
  if (used != by_hash_.size()) return absl::InternalError("names of cached blocks that are gone");
  int64_t known = 0;
  for (const auto& group : node_of_) known += std::ssize(group) - std::ranges::count(group, kNone);
  if (known != pool_.kept()) return absl::InternalError("kept blocks that no name leads to");
  return absl::OkStatus();
}

}  // namespace baton::kv
