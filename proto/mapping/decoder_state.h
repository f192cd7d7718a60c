// DecoderState (common/decoder_state.h) <-> state.v1.DecoderState, and its parts.
#ifndef BATON_PROTO_MAPPING_DECODER_STATE_H_
#define BATON_PROTO_MAPPING_DECODER_STATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/state/v1/state.pb.h"
#include "common/decoder_state.h"

namespace baton::proto {

// What a received state must fit; from the receiver's own model.
struct DecoderStateLimits {
  uint32_t vocab_size = 0;
  uint32_t context_length = 0;  // prompt + tokens + 1 <= context_length
};

void Set(const TokenLogprobs& from, state::v1::TokenLogprobs& to);
// INVALID_ARGUMENT, beginning with `field`: lists of different length, too many, ids out of range.
absl::StatusOr<TokenLogprobs> GetTokenLogprobs(std::string_view field,
                                               const state::v1::TokenLogprobs& from,
                                               uint32_t vocab_size);
absl::StatusOr<std::vector<TokenLogprobs>> GetLogprobs(
    std::string_view field,
    const google::protobuf::RepeatedPtrField<state::v1::TokenLogprobs>& from, uint32_t vocab_size);

state::v1::DecoderState ToProto(const DecoderState& state);
std::string Serialize(const DecoderState& state);

// INVALID_ARGUMENT names the field and the limit. Everything is checked: sizes, token ids, NaN and
// ranges of parameters (DESIGN section 18).
absl::StatusOr<DecoderState> FromProto(const state::v1::DecoderState& message,
                                       const DecoderStateLimits& limits);
absl::StatusOr<DecoderState> Parse(std::string_view bytes, const DecoderStateLimits& limits);

}  // namespace baton::proto

#endif  // BATON_PROTO_MAPPING_DECODER_STATE_H_
