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
  // One right behind the long prompt, each other when the one before it is done.
  uint32_t newcomers = 0;
  uint32_t newcomer_tokens = 0;
};

// Streams that decode and a long prompt beside them.
struct Mixed {
  Mixed(const EngineOptions& options, const Load& load)
      : wanted(load),
        prompt(Ignoring(FixtureState(FixturePrompt(load.prompt_tokens, 99), 4, 99))),
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
        AddNewcomer();
      }
      if (!newcomer.empty() && event.sequence == newcomer.back()) AddNewcomer();
    };
    for (uint32_t i = 0; i < load.streams; ++i) {
      states.push_back(Ignoring(FixtureState(FixturePrompt(16, i), load.stream_tokens, i)));
      stream.push_back(f.MustAdd(states.back()));
    }
    f.Run();
  }

  // Of one token.
  void AddNewcomer() {
    if (newcomer.size() == wanted.newcomers) return;
    newcomer_states.push_back(
        FixtureState(FixturePrompt(wanted.newcomer_tokens, 500 + newcomer.size()), 1, 500));
    came.push_back(f.executor.Now());
    newcomer.push_back(f.MustAdd(newcomer_states.back()));
  }

  const EngineFixture::Seen& Long() { return f.seen[long_prompt]; }
  Duration NewcomerTook(size_t i) { return times[newcomer[i]].front() - came[i]; }
  Duration LongTook() {
    return times[long_prompt].front() - times[stream.back()][kQuietTokens - 1];
  }
  void ExpectAllRight() {
    EXPECT_EQ(Long().ids(), f.Expected(prompt));
    for (size_t i = 0; i < stream.size(); ++i) {
      EXPECT_EQ(f.seen[stream[i]].ids(), f.Expected(states[i])) << i;
    }
    for (size_t i = 0; i < newcomer.size(); ++i) {
      EXPECT_EQ(f.seen[newcomer[i]].ids(), f.Expected(newcomer_states[i])) << i;
    }
  }

  const Load wanted;
  const DecoderState prompt;
  std::vector<DecoderState> states;
  std::vector<SequenceId> stream;
  SequenceId long_prompt = 0;
  std::vector<DecoderState> newcomer_states;
  std::vector<SequenceId> newcomer;
  std::vector<Time> came;
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

TEST(MixedStepsTest, AShortNewcomerDoesNotWaitForTheLongPromptBeforeIt) {
  for (const uint32_t streams : {1u, 8u}) {
    SCOPED_TRACE(streams);
    Mixed mixed({.context_length = 4096}, {.streams = streams,
                                           .stream_tokens = 1500,
                                           .prompt_tokens = 2000,
                                           .newcomers = 1,
                                           .newcomer_tokens = 30});
    EXPECT_LT(20 * mixed.NewcomerTook(0), mixed.LongTook());
    mixed.ExpectAllRight();
  }
}

TEST(MixedStepsTest, NorDoTheyHoldItBackForMoreThanAsLongAgain) {
  const EngineOptions options{.context_length = 4096};
  Load load{.streams = 8, .stream_tokens = 1500, .prompt_tokens = 2000, .newcomer_tokens = 30};
  Mixed alone(options, load);
  load.newcomers = 200;
  Mixed crowded(options, load);
  EXPECT_GT(crowded.LongTook(), 3 * alone.LongTook() / 2);
  // A row of decodes more, and a step in which a newcomer's prompt ends, are not in twice the time.
  EXPECT_LT(crowded.LongTook(), 9 * alone.LongTook() / 4);
  for (size_t i = 0; i < crowded.newcomer.size(); ++i) {
    EXPECT_LT(20 * crowded.NewcomerTook(i), alone.LongTook()) << i;
  }
  crowded.ExpectAllRight();
}

}  // namespace
}  // namespace baton::engine
