#include "client/conversation.h"

#include <gtest/gtest.h>

#include <string>

namespace baton::client {
namespace {

std::string Turns(const Conversation& conversation) {
  std::string out;
  for (const v1::ChatMessage& message : conversation.chat().messages()) {
    out += message.role() + ":" + message.content() + " ";
  }
  return out;
}

TEST(ConversationTest, KeepsEveryTurnInOrder) {
  Conversation conversation("be brief");
  conversation.Ask("a");
  EXPECT_EQ(Turns(conversation), "system:be brief user:a ");
  conversation.Keep("b");
  conversation.Ask("c");
  EXPECT_EQ(Turns(conversation), "system:be brief user:a assistant:b user:c ");
}

TEST(ConversationTest, ATurnWithoutAnAnswerIsForgotten) {
  Conversation conversation("");
  conversation.Ask("a");
  conversation.Keep("b");
  conversation.Ask("fails");
  conversation.Drop();
  conversation.Ask("cancelled before its first word");
  conversation.Keep("");
  EXPECT_EQ(Turns(conversation), "user:a assistant:b ");
}

TEST(ConversationTest, ClearLeavesTheSystemMessage) {
  Conversation conversation("be brief");
  conversation.Ask("a");
  conversation.Keep("b");
  conversation.Clear();
  EXPECT_EQ(Turns(conversation), "system:be brief ");
}

}  // namespace
}  // namespace baton::client
