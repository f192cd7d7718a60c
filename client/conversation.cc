#include "client/conversation.h"

#include <utility>

namespace baton::client {

Conversation::Conversation(std::string system) : system_(std::move(system)) { Clear(); }

void Conversation::Add(const std::string& role, const std::string& content) {
  v1::ChatMessage& message = *chat_.add_messages();
  message.set_role(role);
  message.set_content(content);
}

void Conversation::Ask(const std::string& text) { Add("user", text); }

void Conversation::Keep(const std::string& answer) {
  if (answer.empty()) return Drop();
  Add("assistant", answer);
}

void Conversation::Drop() { chat_.mutable_messages()->RemoveLast(); }

void Conversation::Clear() {
  chat_.Clear();
  if (!system_.empty()) Add("system", system_);
}

}  // namespace baton::client
