// The turns of a chat as the model sees them.
#ifndef BATON_CLIENT_CONVERSATION_H_
#define BATON_CLIENT_CONVERSATION_H_

#include <string>

#include "baton/v1/inference.pb.h"

namespace baton::client {

// A user's turn is open from Ask to one of Keep and Drop. What was shown stays: a cancelled answer
// is kept as far as it came.
class Conversation {
 public:
  // Empty: no system message.
  explicit Conversation(std::string system);

  void Ask(const std::string& text);
  // The answer to the open turn. An empty one takes the turn out again.
  void Keep(const std::string& answer);
  // The open turn had no answer and is forgotten.
  void Drop();
  // Back to the system message.
  void Clear();

  const v1::Chat& chat() const { return chat_; }

 private:
  void Add(const std::string& role, const std::string& content);

  const std::string system_;
  v1::Chat chat_;
};

}  // namespace baton::client

#endif  // BATON_CLIENT_CONVERSATION_H_
