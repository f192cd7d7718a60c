// baton chat: a conversation over standard input.
#ifndef BATON_CLIENT_CHAT_H_
#define BATON_CLIENT_CHAT_H_

#include <string>
#include <vector>

namespace baton::client {

extern const char kChatUsage[];

// One line is one turn; the answer streams to standard output and ends with a newline. Ctrl-C
// cancels the answer, not the program; /clear forgets the turns; /quit and the end of the input end
// it. Prompts and hints only on a terminal. Returns 0, 1 when a turn ended with an error, 2 for bad
// flags.
int Chat(const std::vector<std::string>& args);

}  // namespace baton::client

#endif  // BATON_CLIENT_CHAT_H_
