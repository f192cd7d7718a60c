// Prompts and decodes on one worker: neither holds the other back beyond its bound, and what they
// say does not depend on how the steps were cut.
#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "common/time.h"
#include "engine/engine.h"
#include "engine/engine_fixture.h"
#include "gtest/gtest.h"

namespace baton::engine {
namespace {

constexpr uint32_t kQuietTokens = 20;  // of each stream, before the prompt comes

DecoderState Ignoring(DecoderState state) {
  state.stop.ignore_eos = true;
  return state;
}

struct Load {
  uint32_t streams = 0;
  uint32_t stream_tokens = 0;  // of each, enough to outlast the prompt
  uint32_t prompt_tokens = 0;
};

// Streams that decode and a long prompt beside them.
struct Mixed {
  Mixed(const EngineOptions& options, const Load& load)
      : prompt(Ignoring(FixtureState(FixturePrompt(load.prompt_tokens, 99), 4, 99))),
        f({.engine = options, .blocks = 4096}) {
    f.on_token = [this](const TokenEvent& event) {
      if (!times[event.sequence].empty()) {
        const Duration gap = f.executor.Now() - times[event.sequence].back();
        Duration& widest = long_prompt == 0 ? widest_quiet : widest_busy;
        if (Long().tokens.empty()) widest = std::max(widest, gap);
      }
      times[event.sequence].push_back(f.executor.Now());
      if (long_prompt == 0 && event.sequence == stream.back() &&
          times[event.sequence].size() == kQuietTokens) {
        long_prompt = f.MustAdd(prompt);
      }
    };
    for (uint32_t i = 0; i < load.streams; ++i) {
      states.push_back(Ignoring(FixtureState(FixturePrompt(16, i), load.stream_tokens, i)));
      stream.push_back(f.MustAdd(states.back()));
    }
    f.Run();
  }

  const EngineFixture::Seen& Long() { return f.seen[long_prompt]; }
  Duration LongTook() {
    return times[long_prompt].front() - times[stream.back()][kQuietTokens - 1];
  }
  void ExpectAllRight() {
    EXPECT_EQ(Long().ids(), f.Expected(prompt));
    for (size_t i = 0; i < stream.size(); ++i) {
      EXPECT_EQ(f.seen[stream[i]].ids(), f.Expected(states[i])) << i;
    }
  }

  const DecoderState prompt;
  std::vector<DecoderState> states;
  std::vector<SequenceId> stream;
  SequenceId long_prompt = 0;
  std::map<SequenceId, std::vector<Time>> times;
  Duration widest_quiet{0};
  Duration widest_busy{0};
  EngineFixture f;
};

TEST(MixedStepsTest, ALongPromptStretchesNoGapBeyondThreeTimesTheQuietOne) {
  Mixed mixed({.context_length = 4096},
              {.streams = 8, .stream_tokens = 300, .prompt_tokens = 2000});
  EXPECT_GT(mixed.widest_busy, mixed.widest_quiet);
  EXPECT_LE(mixed.widest_busy, 3 * mixed.widest_quiet);
  mixed.ExpectAllRight();
}

// Steps of prompts alone may be much larger then.
TEST(MixedStepsTest, NorDoesItWherePromptsAloneArePlannedByTime) {
  Mixed mixed(
      {.step_tokens = 512, .planned_step = std::chrono::milliseconds(250), .context_length = 4096},
      {.streams = 8, .stream_tokens = 300, .prompt_tokens = 2000});
  EXPECT_GT(mixed.widest_busy, mixed.widest_quiet);
  EXPECT_LE(mixed.widest_busy, 3 * mixed.widest_quiet);
  mixed.ExpectAllRight();
}

TEST(MixedStepsTest, ManyStreamsDoNotStarveAPrompt) {
  for (const uint32_t step_tokens : {1, 2, 7, 8, 16, 64}) {
    SCOPED_TRACE(step_tokens);
    Mixed mixed({.step_tokens = step_tokens, .context_length = 4096},
                {.streams = 20, .stream_tokens = 300, .prompt_tokens = 200});
    mixed.ExpectAllRight();
  }
}

}  // namespace
}  // namespace baton::engine
