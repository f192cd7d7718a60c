#include "client/chat.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "client/arguments.h"
#include "client/conversation.h"
#include "client/generation_flags.h"
#include "client/interrupts.h"
#include "client/rpc.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace baton::client {

const char kChatUsage[] =
    "baton chat --target HOST:PORT [--system TEXT] [--max-tokens N] [--temperature T] [--top-k K]\n"
    "    [--top-p P] [--min-p P] [--presence-penalty P] [--frequency-penalty P]\n"
    "    [--repetition-penalty P] [--logit-bias ID=BIAS,...]... [--seed S] [--stop S]...\n"
    "    [--stop-id I]... [--include-stop] [--ignore-eos] [--min-tokens N]\n"
    "    [--model M]\n"
    "    one line is one turn; Ctrl-C cancels an answer; /clear, /quit\n";

namespace {

// The call that Ctrl-C cancels. Thread-safe.
class CurrentCall {
 public:
  void Set(grpc::ClientContext* context) {
    MutexLock lock(mutex_);
    context_ = context;
  }
  // Whether there was one.
  bool Cancel() {
    MutexLock lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
    return context_ != nullptr;
  }

 private:
  Mutex mutex_;
  grpc::ClientContext* context_ BATON_GUARDED_BY(mutex_) = nullptr;
};

struct Session {
  std::unique_ptr<v1::InferenceService::Stub> stub;
  v1::Generation options;
  Conversation conversation;
  bool terminal = false;
  bool failed = false;
};

// Streams the answer to the open turn.
grpc::Status Stream(const Session& session, CurrentCall& current, std::string& answer) {
  v1::GenerateStreamRequest request;
  *request.mutable_generation() = session.options;
  *request.mutable_generation()->mutable_chat() = session.conversation.chat();
  grpc::ClientContext context;
  current.Set(&context);
  const auto reader = session.stub->GenerateStream(&context, request);
  v1::GenerateStreamResponse response;
  while (reader->Read(&response)) {
    if (!response.has_delta()) continue;
    answer += response.delta().text();
    std::cout << response.delta().text() << std::flush;
  }
  const grpc::Status status = reader->Finish();
  current.Set(nullptr);
  return status;
}

void Turn(Session& session, CurrentCall& current, const std::string& line) {
  session.conversation.Ask(line);
  std::string answer;
  const grpc::Status status = Stream(session, current, answer);
  if (!answer.empty() || status.ok()) std::cout << std::endl;
  if (status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) {
    return session.conversation.Keep(answer);
  }
  session.conversation.Drop();
  session.failed = true;
  std::cerr << ErrorLine(status);
}

void Converse(Session& session, CurrentCall& current) {
  std::string line;
  for (;;) {
    if (session.terminal) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line) || line == "/quit") return;
    if (line == "/clear") {
      session.conversation.Clear();
    } else if (!line.empty()) {
      Turn(session, current, line);
    }
  }
}

absl::StatusOr<Session> MakeSession(const std::vector<std::string>& argv) {
  std::set<std::string> known = {"target", "system"};
  known.insert(GenerationFlags().begin(), GenerationFlags().end());
  BATON_ASSIGN_OR_RETURN(const Arguments args, Arguments::Parse(argv, known, GenerationSwitches()));
  if (!args.Has("target")) return absl::InvalidArgumentError("--target: missing");
  Session session{nullptr, {}, Conversation(args.Get("system"))};
  session.terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  BATON_RETURN_IF_ERROR(ApplyGenerationFlags(args, session.options));
  session.stub = MakeStub(args.Get("target"));
  return session;
}

}  // namespace

int Chat(const std::vector<std::string>& argv) {
  CurrentCall current;
  const Interrupts interrupts([&] {
    if (!current.Cancel() && isatty(STDERR_FILENO) == 1) std::cerr << "\n/quit or Ctrl-D ends\n> ";
  });
  absl::StatusOr<Session> session = MakeSession(argv);
  if (!session.ok()) {
    std::cerr << "error: " << session.status().message() << "\n" << kChatUsage;
    return 2;
  }
  Converse(*session, current);
  return session->failed ? 1 : 0;
}

}  // namespace baton::client
