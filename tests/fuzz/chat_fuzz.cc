// Any conversation through the template of SmolLM2: the prompt has exactly the turns that the
// conversation has, whatever its messages hold.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "text/template.h"
#include "text/test_vocab.h"
#include "text/text_segment.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kSource =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

struct Model {
  TokenId start = kNoToken;
  TokenId end = kNoToken;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat;
};

const Model& TheModel() {
  static const Model* const model = [] {
    auto made = std::make_unique<Model>();
    VocabData data = ByteVocabData();
    data.pre_tokenizer = "smollm";
    made->start = AddToken("<|im_start|>", TokenType::kControl, &data);
    made->end = AddEndToken("<|im_end|>", &data);
    auto tokenizer = Tokenizer::Create(data);
    auto chat = ChatTemplate::Parse(kSource, TemplateOptionsFor(data));
    BATON_CHECK(tokenizer.ok() && chat.ok());
    made->tokenizer = *std::move(tokenizer);
    made->chat = std::make_unique<ChatTemplate>(*std::move(chat));
    return made.release();
  }();
  return *model;
}

ChatInput ReadConversation(FuzzInput& input) {
  static constexpr const char* kRoles[] = {"system", "user", "assistant"};
  ChatInput conversation;
  conversation.add_generation_prompt = input.Below(2) != 0;
  while (!input.empty() && conversation.messages.size() < 16) {
    const uint32_t role = input.Below(4);
    ChatMessage message;
    message.role = role < 3 ? kRoles[role] : std::string(input.ShortText());
    message.content = std::string(input.ShortText());
    conversation.messages.push_back(std::move(message));
  }
  return conversation;
}

bool IsValid(const ChatInput& conversation) {
  const auto& messages = conversation.messages;
  return !messages.empty() &&
         std::all_of(messages.begin(), messages.end(), [](const ChatMessage& message) {
           return IsValidUtf8(message.role) && IsValidUtf8(message.content);
         });
}

// As Python would concatenate it.
std::string Expected(const ChatInput& conversation) {
  std::string text;
  if (conversation.messages[0].role != "system") {
    text =
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
        "Face<|im_end|>\n";
  }
  for (const ChatMessage& message : conversation.messages) {
    text += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
  }
  if (conversation.add_generation_prompt) text += "<|im_start|>assistant\n";
  return text;
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  FuzzInput input(data, size);
  const ChatInput conversation = ReadConversation(input);
  const auto segments = TheModel().chat->Render(conversation);
  BATON_CHECK(segments.ok() == IsValid(conversation));
  if (!segments.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(segments.status()));
    return 0;
  }
  std::string text;
  for (const TextSegment& segment : *segments) text += segment.text;
  BATON_CHECK(text == Expected(conversation));
  const auto ids = TheModel().tokenizer->EncodeSegments(*segments);
  BATON_CHECK(ids.ok());
  const size_t added = conversation.messages[0].role != "system" ? 1 : 0;
  const size_t closed = conversation.messages.size() + added;
  const size_t opened = closed + (conversation.add_generation_prompt ? 1 : 0);
  const auto count = [&](TokenId id) {
    return static_cast<size_t>(std::count(ids->begin(), ids->end(), id));
  };
  BATON_CHECK(count(TheModel().start) == opened);
  BATON_CHECK(count(TheModel().end) == closed);
  return 0;
}
