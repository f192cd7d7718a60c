#include "tests/load/soak_pool.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace baton::soak {
namespace {

[[noreturn]] void Fail(const std::string& path) {
  std::fprintf(stderr, "%s is not a pool\n", path.c_str());
  std::exit(2);
}

bool ReadMessage(std::ifstream& file, google::protobuf::Message& message) {
  unsigned char bytes[4];
  if (!file.read(reinterpret_cast<char*>(bytes), sizeof bytes)) return false;
  uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | bytes[i];
  std::string text(length, '\0');
  return file.read(text.data(), length) && message.ParseFromString(text);
}

// Which workers ran it, how long that took, what they found cached and its name differ from one run
// to the next.
v1::GenerateResponse Comparable(v1::GenerateResponse answer) {
  answer.clear_request_id();
  answer.clear_timings();
  answer.clear_workers();
  answer.mutable_usage()->clear_cached_prompt_tokens();
  return answer;
}

template <typename List>
bool IsBeginning(const List& part, const List& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

std::vector<Expected> ReadPool(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Expected> pool;
  while (file.peek() != std::ifstream::traits_type::eof()) {
    Expected entry;
    if (!ReadMessage(file, entry.request) || !ReadMessage(file, entry.answer)) Fail(path);
    entry.answer = Comparable(std::move(entry.answer));
    pool.push_back(std::move(entry));
  }
  if (pool.empty()) Fail(path);
  return pool;
}

void Answer::Add(v1::GenerateStreamResponse part) {
  if (part.has_started()) {
    v1::Started& started = *part.mutable_started();
    got_.set_model(started.model());
    got_.set_seed(started.seed());
    got_.mutable_prompt_token_ids()->Swap(started.mutable_prompt_token_ids());
  } else if (part.has_delta()) {
    const v1::Delta& delta = part.delta();
    v1::Choice& choice = ChoiceAt(delta.choice());
    choice.mutable_text()->append(delta.text());
    choice.mutable_token_ids()->MergeFrom(delta.token_ids());
    choice.mutable_logprobs()->MergeFrom(delta.logprobs());
    tokens_ += delta.token_ids_size();
  } else if (part.has_prompt_logprobs()) {
    got_.mutable_prompt_logprobs()->MergeFrom(part.prompt_logprobs().logprobs());
  } else if (part.has_choice_end()) {
    ChoiceAt(part.choice_end().choice()).set_finish_reason(part.choice_end().finish_reason());
  } else {
    got_.mutable_usage()->Swap(part.mutable_completed()->mutable_usage());
    got_.mutable_usage()->clear_cached_prompt_tokens();
  }
}

bool Answer::SameAs(const v1::GenerateResponse& expected) const {
  return google::protobuf::util::MessageDifferencer::Equals(got_, expected);
}

bool Answer::IsBeginningOf(const v1::GenerateResponse& expected) const {
  if (got_.choices_size() > expected.choices_size()) return false;
  for (int i = 0; i < got_.choices_size(); ++i) {
    const v1::Choice& part = got_.choices(i);
    const v1::Choice& whole = expected.choices(i);
    if (!IsBeginning(part.token_ids(), whole.token_ids())) return false;
    if (whole.text().rfind(part.text(), 0) != 0) return false;
  }
  return true;
}

v1::Choice& Answer::ChoiceAt(uint32_t index) {
  while (static_cast<uint32_t>(got_.choices_size()) <= index) {
    const auto next = static_cast<uint32_t>(got_.choices_size());
    got_.add_choices()->set_index(next);
  }
  return *got_.mutable_choices(static_cast<int>(index));
}

}  // namespace baton::soak
