// Any tokens with any stop parameters, shown in any steps: what a client sees is always valid
// UTF-8 and joins to the decoding of the visible bytes at once, and the choice ends where a plain
// search for the stop strings says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/decoder_state.h"
#include "tests/fuzz/fuzz_input.h"
#include "text/detokenizer.h"
#include "text/stop.h"
#include "text/test_vocab.h"
#include "text/utf8.h"
#include "text/vocab.h"

namespace baton {
namespace {

// Ids below 256 are bytes; above are parts of characters and tokens without text.
const Vocab& TheVocab() {
  static const Vocab* const vocab = [] {
    VocabData data = ByteVocabData();
    for (const char* text : {"\xE2\x82", "\xAC", "\xF0\x9F\x98", "\x80\xE2", "stop", " the", "st",
                             "op\n", "\xC3\xA9\xC3", "aaaa"}) {
      AddToken(text, TokenType::kNormal, &data);
    }
    AddToken("<|im_start|>", TokenType::kControl, &data);
    AddEndToken("<|im_end|>", &data);
    auto made = Vocab::Create(data);
    BATON_CHECK(made.ok());
    return new Vocab(*std::move(made));
  }();
  return *vocab;
}

// One in five is a token above the bytes or outside the vocabulary.
TokenId ReadToken(FuzzInput& input) {
  const uint8_t first = input.Byte();
  if (first < 0xF8 || input.empty()) return first;
  return first == 0xFF ? static_cast<TokenId>(input.Number())
                       : static_cast<TokenId>(256 + input.Below(16));
}

StopParams ReadStop(FuzzInput& input) {
  StopParams stop;
  stop.max_tokens = input.Below(64);
  for (uint32_t count = input.Below(5); count > 0; --count) {
    stop.stop_strings.emplace_back(input.ShortText());
  }
  for (uint32_t count = input.Below(3); count > 0; --count) {
    stop.stop_token_ids.push_back(ReadToken(input));
  }
  stop.ignore_eos = input.Below(2) != 0;
  return stop;
}

// Where the text ends by the earliest end of a stop string within `raw`, and of those that end
// there by the longest.
struct Cut {
  size_t end = std::string::npos;
  size_t length = 0;
};
Cut FindCut(const std::string& raw, const StopParams& stop) {
  Cut cut;
  for (const std::string& text : stop.stop_strings) {
    const size_t at = raw.find(text);
    if (at == std::string::npos) continue;
    const size_t end = at + text.size();
    if (end < cut.end || (end == cut.end && text.size() > cut.length)) cut = {end, text.size()};
  }
  return cut;
}

// A client's view: whatever is shown is whole characters, and adds up.
class Client {
 public:
  void Add(TokenId token) {
    BATON_CHECK(detokenizer_.Add(token).ok());
    raw_ += TheVocab().Bytes(token);
    BATON_CHECK(detokenizer_.raw_bytes() == raw_.size());
  }
  void Show(uint64_t visible) {
    BATON_CHECK(!detokenizer_.Show(raw_.size() + 1).ok());
    if (shown_ > 0) BATON_CHECK(!detokenizer_.Show(shown_ - 1).ok());
    Take(detokenizer_.Show(visible), visible);
  }
  void ShowLast(uint64_t visible) {
    Take(detokenizer_.ShowLast(visible), visible);
    BATON_CHECK(text_ == DecodeUtf8Lossy(std::string_view(raw_).substr(0, visible)));
  }
  const std::string& raw() const { return raw_; }
  uint64_t shown() const { return shown_; }

 private:
  void Take(const absl::StatusOr<std::string>& piece, uint64_t visible) {
    BATON_CHECK(piece.ok() && IsValidUtf8(*piece));
    text_ += *piece;
    shown_ = visible;
  }

  Detokenizer detokenizer_{TheVocab()};
  std::string raw_;
  std::string text_;
  uint64_t shown_ = 0;
};

// The input says how far each step shows.
void CheckAnySteps(FuzzInput& input) {
  Client client;
  std::vector<TokenId> tokens;
  while (!input.empty()) {
    const TokenId token = ReadToken(input);
    if (!TheVocab().Contains(token)) {
      Detokenizer other(TheVocab());
      BATON_CHECK(absl::IsInvalidArgument(other.Add(token)));
      continue;
    }
    tokens.push_back(token);
    client.Add(token);
    const uint64_t hidden = client.raw().size() - client.shown();
    client.Show(client.shown() + (hidden == 0 ? 0 : input.Below(8) % (hidden + 1)));
  }
  client.ShowLast(client.raw().size());
  const auto at_once = DecodeTokens(TheVocab(), tokens);
  BATON_CHECK(at_once.ok() && *at_once == DecodeUtf8Lossy(client.raw()));
}

// Whether no character, and no sequence that is one U+FFFD, lies across.
bool IsBoundary(std::string_view raw, size_t at) {
  return DecodeUtf8Lossy(raw.substr(0, at)) + DecodeUtf8Lossy(raw.substr(at)) ==
         DecodeUtf8Lossy(raw);
}

// What may be shown while the choice runs: whole characters, and nothing that a stop string which
// comes later could begin with.
void CheckRunning(const Client& client, const StopParams& stop, uint64_t visible) {
  const std::string& raw = client.raw();
  BATON_CHECK(visible >= client.shown() && visible <= raw.size());
  BATON_CHECK(IsBoundary(raw, visible));
  for (const std::string& text : stop.stop_strings) {
    for (size_t bytes = std::min(text.size(), raw.size()); bytes > 0; --bytes) {
      if (raw.ends_with(text.substr(0, bytes))) BATON_CHECK(visible <= raw.size() - bytes);
    }
  }
}

void CheckStops(FuzzInput& input) {
  const StopParams stop = ReadStop(input);
  const absl::Status valid = ValidateStopParams(stop, TheVocab().size());
  if (!valid.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(valid));
    return;
  }
  StopMatcher matcher(TheVocab(), stop);
  Client client;
  StopReason reason = StopReason::kNone;
  while (!input.empty() && reason == StopReason::kNone) {
    const TokenId token = ReadToken(input);
    if (!TheVocab().Contains(token)) continue;
    const uint64_t before = client.raw().size();
    client.Add(token);
    reason = matcher.Accept(token);
    BATON_CHECK(matcher.ended() == (reason != StopReason::kNone));
    const bool stops =
        std::count(stop.stop_token_ids.begin(), stop.stop_token_ids.end(), token) > 0;
    const bool ends = TheVocab().IsEnd(token) && !stop.ignore_eos;
    const Cut cut = FindCut(client.raw(), stop);
    if (stops || ends) {
      BATON_CHECK(reason == (stops ? StopReason::kStopToken : StopReason::kEndToken));
      BATON_CHECK(matcher.visible_bytes() == before);
    } else if (cut.end != std::string::npos) {
      BATON_CHECK(reason == StopReason::kStopString);
      BATON_CHECK(matcher.visible_bytes() == cut.end - cut.length);
    } else {
      BATON_CHECK(reason == StopReason::kNone);
      CheckRunning(client, stop, matcher.visible_bytes());
      client.Show(matcher.visible_bytes());
    }
  }
  if (reason == StopReason::kNone) {
    matcher.Finish();
    BATON_CHECK(matcher.visible_bytes() == client.raw().size());
  }
  BATON_CHECK(matcher.ended());
  client.ShowLast(matcher.visible_bytes());
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::FuzzInput input(data, size);
  if (input.Below(2) == 0) {
    baton::CheckAnySteps(input);
  } else {
    baton::CheckStops(input);
  }
  return 0;
}
