// The names of a prompt's full KV blocks: hashed where the request arrives, on the thread that
// tokenizes, and kept with the request. What is missing then is hashed when first asked for.
#ifndef BATON_ROUTER_PROMPT_NAMES_H_
#define BATON_ROUTER_PROMPT_NAMES_H_

#include <deque>
#include <span>

#include "common/ids.h"
#include "router/request.h"
#include "router/worker_view.h"

namespace baton::router {

// As workers of these kinds have them: spec.block_names, from its prompt. None when the request
// bypasses caches, or wants the prompt's log probabilities, for which all of it is computed. Any
// thread; about 1 ns per token and kind.
void NameBlocks(std::span<const BlockNaming> namings, RequestSpec& spec);

// Owner thread: the core's.
class PromptNames {
 public:
  // The spec outlives it and its prompt does not change.
  explicit PromptNames(const RequestSpec& spec) : spec_(spec) {}

  // As such a worker has them. Hashes on this thread when the worker's kind was not known when the
  // prompt was tokenized.
  std::span<const Digest> For(const WorkerView& worker);

 private:
  const RequestSpec& spec_;
  std::deque<BlockNames> late_;  // handed out by reference
};

}  // namespace baton::router

#endif  // BATON_ROUTER_PROMPT_NAMES_H_
