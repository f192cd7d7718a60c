#include "client/generate.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "client/arguments.h"
#include "client/generation_flags.h"
#include "client/rpc.h"
#include "common/status_macros.h"

namespace baton::client {

const char kGenerateUsage[] =
    "baton generate --target HOST:PORT (--prompt TEXT | --prompt-file F | --prompt-tokens 1,2,3 |\n"
    "    --chat TEXT) [--max-tokens N] [--temperature T] [--top-k K] [--top-p P] [--min-p P]\n"
    "    [--presence-penalty P] [--frequency-penalty P] [--repetition-penalty P]\n"
    "    [--logit-bias ID=BIAS,...]... [--seed S] [--n N] [--best-of N] [--stop S]...\n"
    "    [--stop-id I]... [--include-stop] [--ignore-eos] [--min-tokens N] [--logprobs TOP]\n"
    "    [--prompt-logprobs TOP] [--model M] [--request-id ID] [--priority P] [--tenant T]\n"
    "    [--cache-salt S] [--bypass-cache] [--timeout-ms N] [--json] [--timings]\n";

namespace {

struct Answer {
  v1::Started started;
  v1::Completed completed;
  v1::PromptLogprobs prompt_logprobs;
  std::map<uint32_t, v1::Choice> choices;
};

absl::Status SetInput(const Arguments& args, v1::Generation& out) {
  int inputs = 0;
  if (args.Has("prompt")) {
    ++inputs;
    out.mutable_prompt()->add_segments()->set_text(args.Get("prompt"));
  }
  if (args.Has("prompt-file")) {
    ++inputs;
    std::ifstream file(args.Get("prompt-file"), std::ios::binary);
    if (!file) return absl::InvalidArgumentError("--prompt-file: cannot be read");
    out.mutable_prompt()->add_segments()->set_text(
        std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (args.Has("prompt-tokens")) {
    ++inputs;
    BATON_ASSIGN_OR_RETURN(const auto ids, ParseIds("prompt-tokens", args.Get("prompt-tokens")));
    out.mutable_prompt()->add_segments()->mutable_token_ids()->mutable_ids()->Add(ids.begin(),
                                                                                  ids.end());
  }
  if (args.Has("chat")) {
    ++inputs;
    v1::ChatMessage& message = *out.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content(args.Get("chat"));
  }
  if (inputs != 1) {
    return absl::InvalidArgumentError(
        "give exactly one of --prompt, --prompt-file, --prompt-tokens, --chat");
  }
  return absl::OkStatus();
}

absl::Status SetLogprobs(const Arguments& args, v1::Generation& out) {
  BATON_ASSIGN_OR_RETURN(const auto output, args.Count("logprobs"));
  if (output.has_value()) out.mutable_logprobs()->set_output(*output);
  BATON_ASSIGN_OR_RETURN(const auto prompt, args.Count("prompt-logprobs"));
  if (prompt.has_value()) out.mutable_logprobs()->set_prompt(*prompt);
  return absl::OkStatus();
}

absl::StatusOr<v1::GenerateStreamRequest> MakeRequest(const Arguments& args) {
  v1::GenerateStreamRequest request;
  v1::Generation& generation = *request.mutable_generation();
  BATON_RETURN_IF_ERROR(SetInput(args, generation));
  BATON_RETURN_IF_ERROR(ApplyGenerationFlags(args, generation));
  BATON_ASSIGN_OR_RETURN(const auto priority, args.Int("priority"));
  if (priority.has_value()) generation.set_priority(*priority);
  generation.set_tenant(args.Get("tenant"));
  generation.set_cache_salt(args.Get("cache-salt"));
  generation.set_bypass_cache(args.Has("bypass-cache"));
  BATON_RETURN_IF_ERROR(SetLogprobs(args, generation));
  BATON_ASSIGN_OR_RETURN(const auto n, args.Count("n"));
  if (n.has_value()) generation.set_n(*n);
  BATON_ASSIGN_OR_RETURN(const auto best_of, args.Count("best-of"));
  if (best_of.has_value()) generation.set_best_of(*best_of);
  generation.set_request_id(args.Get("request-id"));
  return request;
}

uint32_t Choices(const v1::Generation& generation) {
  return generation.has_n() ? generation.n() : 1;
}

void Take(const v1::GenerateStreamResponse& response, bool print, Answer& answer) {
  if (response.has_started()) {
    answer.started = response.started();
  } else if (response.has_delta()) {
    v1::Choice& choice = answer.choices[response.delta().choice()];
    choice.set_index(response.delta().choice());
    choice.mutable_text()->append(response.delta().text());
    choice.mutable_token_ids()->MergeFrom(response.delta().token_ids());
    choice.mutable_logprobs()->MergeFrom(response.delta().logprobs());
    if (print) std::cout << response.delta().text() << std::flush;
  } else if (response.has_choice_end()) {
    answer.choices[response.choice_end().choice()].set_finish_reason(
        response.choice_end().finish_reason());
  } else if (response.has_prompt_logprobs()) {
    answer.prompt_logprobs.MergeFrom(response.prompt_logprobs());
  } else if (response.has_completed()) {
    answer.completed = response.completed();
  }
}

void Take(v1::GenerateResponse& response, Answer& answer) {
  answer.started.set_request_id(response.request_id());
  answer.started.set_model(response.model());
  answer.started.set_seed(response.seed());
  answer.started.mutable_prompt_token_ids()->Swap(response.mutable_prompt_token_ids());
  answer.prompt_logprobs.mutable_logprobs()->Swap(response.mutable_prompt_logprobs());
  *answer.completed.mutable_usage() = response.usage();
  *answer.completed.mutable_timings() = response.timings();
  *answer.completed.mutable_workers() = response.workers();
  for (v1::Choice& choice : *response.mutable_choices()) {
    const uint32_t index = choice.index();
    answer.choices[index] = std::move(choice);
  }
}

// [{"token_id": I, "logprob": P, "top": [[I, P], ...]}, ...]
nlohmann::json ToJson(const google::protobuf::RepeatedPtrField<v1::TokenLogprob>& logprobs) {
  nlohmann::json out = nlohmann::json::array();
  for (const v1::TokenLogprob& one : logprobs) {
    nlohmann::json top = nlohmann::json::array();
    for (const v1::TopLogprob& t : one.top()) {
      top.push_back(nlohmann::json::array({t.token_id(), t.logprob()}));
    }
    out.push_back({{"token_id", one.token_id()}, {"logprob", one.logprob()}, {"top", top}});
  }
  return out;
}

const char* FinishName(const v1::Choice& choice) {
  if (choice.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return "not finished";
  return choice.finish_reason() == v1::FINISH_REASON_STOP ? "stop" : "length";
}

nlohmann::json ToJson(const Answer& answer, const v1::Choice& choice) {
  const v1::Timings& t = answer.completed.timings();
  return {{"text", choice.text()},
          {"token_ids", std::vector<int32_t>(choice.token_ids().begin(), choice.token_ids().end())},
          {"prompt_token_ids", std::vector<int32_t>(answer.started.prompt_token_ids().begin(),
                                                    answer.started.prompt_token_ids().end())},
          {"finish_reason", FinishName(choice)},
          {"usage",
           {{"prompt_tokens", answer.completed.usage().prompt_tokens()},
            {"completion_tokens", answer.completed.usage().completion_tokens()},
            {"cached_prompt_tokens", answer.completed.usage().cached_prompt_tokens()}}},
          {"timings",
           {{"queue", t.queue()},
            {"route", t.route()},
            {"reserve_wait", t.reserve_wait()},
            {"prefill", t.prefill()},
            {"handoff", t.handoff()},
            {"first_decode_step", t.first_decode_step()},
            {"total", t.total()},
            {"time_to_first_token", t.time_to_first_token()}}},
          {"workers",
           {{"prefill", answer.completed.workers().prefill()},
            {"decode", answer.completed.workers().decode()}}},
          {"seed", answer.started.seed()},
          {"model", answer.started.model()},
          {"request_id", answer.started.request_id()},
          {"index", choice.index()}};
}

// The lists are there exactly when asked for.
nlohmann::json WithLogprobs(const v1::GenerateStreamRequest& request, const Answer& answer,
                            const v1::Choice& choice) {
  nlohmann::json out = ToJson(answer, choice);
  const v1::LogprobOptions& asked = request.generation().logprobs();
  if (asked.has_output()) out["logprobs"] = ToJson(choice.logprobs());
  if (asked.has_prompt()) out["prompt_logprobs"] = ToJson(answer.prompt_logprobs.logprobs());
  return out;
}

void PrintTimings(const Answer& answer) {
  const v1::Timings& t = answer.completed.timings();
  const v1::Workers& w = answer.completed.workers();
  const uint32_t tokens = answer.completed.usage().completion_tokens();
  const double rest = t.total() - t.time_to_first_token();
  char line[512];
  std::snprintf(
      line, sizeof line,
      "first token %.0f ms (queue %.1f + route %.1f + reserve_wait %.1f + prefill %.1f), "
      "handoff %.1f ms, first_decode_step %.1f ms, total %.2f s, %u (%u cached) + %u tokens, "
      "%.1f tokens/s; prefill %s, decode %s\n",
      t.time_to_first_token() * 1e3, t.queue() * 1e3, t.route() * 1e3, t.reserve_wait() * 1e3,
      t.prefill() * 1e3, t.handoff() * 1e3, t.first_decode_step() * 1e3, t.total(),
      answer.completed.usage().prompt_tokens(), answer.completed.usage().cached_prompt_tokens(),
      tokens, tokens > 1 && rest > 0 ? (tokens - 1) / rest : 0.0,
      w.prefill().empty() ? "(decode worker)" : w.prefill().c_str(),
      w.decode().empty() ? "(not needed)" : w.decode().c_str());
  std::cerr << line;
}

// Texts of several choices come mixed, so they are printed at the end.
void PrintChoices(const Answer& answer) {
  for (const auto& [index, choice] : answer.choices) {
    std::cout << "--- choice " << index << " (" << FinishName(choice) << ")\n"
              << choice.text() << std::endl;
  }
}

grpc::Status Run(const Arguments& args, const v1::GenerateStreamRequest& request,
                 std::optional<uint64_t> timeout_ms, Answer& answer) {
  const auto stub = MakeStub(args.Get("target"));
  grpc::ClientContext context;
  if (timeout_ms.has_value()) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(*timeout_ms));
  }
  const v1::Generation& generation = request.generation();
  if (generation.best_of() > Choices(generation)) {  // a stream cannot rank them
    v1::GenerateRequest whole;
    *whole.mutable_generation() = generation;
    v1::GenerateResponse response;
    const grpc::Status status = stub->Generate(&context, whole, &response);
    if (status.ok()) Take(response, answer);
    return status;
  }
  const bool print = !args.Has("json") && Choices(generation) == 1;
  const auto reader = stub->GenerateStream(&context, request);
  v1::GenerateStreamResponse response;
  while (reader->Read(&response)) Take(response, print, answer);
  return reader->Finish();
}

// What was not printed as it came.
void PrintText(const v1::Generation& generation, const Answer& answer) {
  if (answer.choices.empty()) return;
  if (Choices(generation) > 1) return PrintChoices(answer);
  if (generation.best_of() > 1) std::cout << answer.choices.begin()->second.text();
  std::cout << std::endl;
}

int BadFlags(const absl::Status& status) {
  std::cerr << "error: " << status.message() << "\n" << kGenerateUsage;
  return 2;
}

}  // namespace

int Generate(const std::vector<std::string>& argv) {
  std::set<std::string> known = {
      "target",     "prompt",   "prompt-file", "prompt-tokens",   "chat",
      "n",          "best-of",  "logprobs",    "prompt-logprobs", "request-id",
      "timeout-ms", "priority", "tenant",      "cache-salt"};
  known.insert(GenerationFlags().begin(), GenerationFlags().end());
  std::set<std::string> switches = {"json", "timings", "bypass-cache"};
  switches.insert(GenerationSwitches().begin(), GenerationSwitches().end());
  const auto args = Arguments::Parse(argv, known, switches);
  if (!args.ok()) return BadFlags(args.status());
  if (!args->Has("target")) return BadFlags(absl::InvalidArgumentError("--target: missing"));
  const auto request = MakeRequest(*args);
  if (!request.ok()) return BadFlags(request.status());
  const auto timeout_ms = args->Unsigned("timeout-ms");
  if (!timeout_ms.ok()) return BadFlags(timeout_ms.status());
  Answer answer;
  const grpc::Status status = Run(*args, *request, *timeout_ms, answer);
  const bool json = args->Has("json");
  if (!json) PrintText(request->generation(), answer);
  if (!status.ok()) {
    std::cerr << ErrorLine(status);
    return 1;
  }
  for (const auto& [index, choice] : answer.choices) {
    if (json) std::cout << WithLogprobs(*request, answer, choice).dump() << std::endl;
  }
  if (args->Has("timings")) PrintTimings(answer);
  return 0;
}

}  // namespace baton::client
