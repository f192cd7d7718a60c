// A client's request of any bytes, on the wire or as text: it is refused with a status that names
// the field, or everything that goes on into the cluster is in its range.
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "baton/v1/inference.pb.h"
#include "common/check.h"
#include "router/model_text.h"
#include "router/status_details.h"
#include "router/validation.h"
#include "tests/fuzz/fuzz_input.h"
#include "text/stop.h"
#include "text/test_vocab.h"
#include "text/utf8.h"

namespace baton::router {
namespace {

constexpr uint32_t kContext = 64;

const ModelText& TheModel() {
  static const ModelText* const model = [] {
    VocabData data = ByteVocabData();
    AddMerge("t", "h", &data);
    AddToken("<|im_start|>", TokenType::kControl, &data);
    data.bos = AddEndToken("<|im_end|>", &data);
    data.add_bos = true;
    data.chat_template =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
        "{% if messages|length > 3 %}{{ raise_exception('too many') }}{% endif %}";
    auto made = ModelText::Create("tiny", kContext, data);
    BATON_CHECK(made.ok());
    return made->release();
  }();
  return *model;
}

class NoErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

bool Parse(bool as_text, std::string_view bytes, v1::Generation& generation) {
  if (!as_text) return generation.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::TextFormat::Parser parser;
  NoErrors errors;
  parser.RecordErrorsTo(&errors);
  return parser.ParseFromString(std::string(bytes), &generation);
}

void CheckRefusal(const absl::Status& status) {
  BATON_CHECK(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
              absl::IsNotFound(status) || absl::IsFailedPrecondition(status));
  BATON_CHECK(status.message().substr(0, 11) == "generation." ||
              absl::IsFailedPrecondition(status));
  BATON_CHECK(status.message().size() < 1024);
  BATON_CHECK(!SerializedRpcStatus(status).empty());
}

void CheckInput(const PromptInput& input) {
  BATON_CHECK(input.is_chat ? !input.messages.empty() : !input.parts.empty());
  for (const ChatMessage& message : input.messages) {
    BATON_CHECK(!message.role.empty() && message.role.size() <= 64);
    BATON_CHECK(IsValidUtf8(message.content));  // of a role, the parser says so
  }
  for (const PromptPart& part : input.parts) {
    BATON_CHECK(IsValidUtf8(part.text) && (part.is_text || part.text.empty()));
    for (const TokenId id : part.ids) BATON_CHECK(TheModel().vocab().Contains(id));
  }
  const auto ids = TheModel().Encode(input, 1'700'000'000);
  if (!ids.ok()) return CheckRefusal(ids.status());
  for (const TokenId id : *ids) BATON_CHECK(TheModel().vocab().Contains(id));
}

void CheckValid(const ValidGeneration& valid) {
  const SamplingParams& sampling = valid.sampling;
  BATON_CHECK(std::isfinite(sampling.temperature) && sampling.temperature >= 0 &&
              sampling.temperature <= 100);
  BATON_CHECK(sampling.top_k >= 0);
  BATON_CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  BATON_CHECK(sampling.min_p >= 0 && sampling.min_p <= 1);
  StopParams stop = valid.stop;
  stop.max_tokens = std::max(stop.max_tokens, 1u);  // 0: not given
  BATON_CHECK(ValidateStopParams(stop, TheModel().vocab().size()).ok());
  BATON_CHECK(valid.n >= 1 && valid.n <= valid.best_of && valid.best_of <= kMaxChoices);
  BATON_CHECK(valid.request_id.size() <= 128);
  for (const char c : valid.request_id) BATON_CHECK(c >= 0x20 && c <= 0x7e);
  CheckInput(valid.input);
}

}  // namespace
}  // namespace baton::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::router;
  baton::FuzzInput input(data, size);
  const bool as_text = input.Below(2) != 0;
  baton::v1::Generation generation;
  if (!Parse(as_text, input.Rest(), generation)) return 0;
  const auto valid = Validate(generation, TheModel(), {kContext});
  if (valid.ok()) {
    CheckValid(*valid);
  } else {
    CheckRefusal(valid.status());
  }
  // What Tokenize asks: the same input under another path.
  const auto only_input = ValidateInput(generation, "", TheModel(), {kContext});
  BATON_CHECK(!valid.ok() || only_input.ok());
  return 0;
}
