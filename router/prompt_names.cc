#include "router/prompt_names.h"

#include <string>
#include <vector>

#include "kv/block_hash.h"
#include "router/cache_namespace.h"

namespace baton::router {
namespace {

BlockNames NamesOf(const BlockNaming& naming, const RequestSpec& spec) {
  const std::string cache_namespace = CacheNamespace(spec, naming.numerics_id);
  if (cache_namespace.empty() || spec.logprobs.prompt.has_value()) return {naming, {}};
  return {naming, kv::BlockHashes(kv::RootHash(cache_namespace), spec.prompt, naming.block_size)};
}

}  // namespace

void NameBlocks(std::span<const BlockNaming> namings, RequestSpec& spec) {
  for (const BlockNaming& naming : namings) spec.block_names.push_back(NamesOf(naming, spec));
}

std::span<const Digest> PromptNames::For(const WorkerView& worker) {
  const BlockNaming naming = {worker.block_size, worker.numerics_id};
  for (const BlockNames& known : spec_.block_names) {
    if (known.naming == naming) return known.names;
  }
  for (const BlockNames& known : late_) {
    if (known.naming == naming) return known.names;
  }
  late_.push_back(NamesOf(naming, spec_));
  return late_.back().names;
}

}  // namespace baton::router
