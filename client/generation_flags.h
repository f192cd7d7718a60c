// The sampling and stop flags of `generate` and `chat`.
#ifndef BATON_CLIENT_GENERATION_FLAGS_H_
#define BATON_CLIENT_GENERATION_FLAGS_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "client/arguments.h"

namespace baton::client {

// --max-tokens --min-tokens --temperature --top-k --top-p --min-p --presence-penalty
// --frequency-penalty --repetition-penalty --logit-bias --seed --stop --stop-id --model; the
// switches are --ignore-eos and --include-stop.
const std::set<std::string>& GenerationFlags();
const std::set<std::string>& GenerationSwitches();

// Fills in what is given; the server checks ranges. INVALID_ARGUMENT names the flag.
absl::Status ApplyGenerationFlags(const Arguments& args, v1::Generation& out);

}  // namespace baton::client

#endif  // BATON_CLIENT_GENERATION_FLAGS_H_
