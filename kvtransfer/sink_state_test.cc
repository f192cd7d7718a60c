// The table of sink_state.h, cell by cell, against a scripted source.
#include "kvtransfer/sink_state.h"

#include <array>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/cells.h"
#include "common/hash.h"
#include "common/random.h"
#include "common/sim_executor.h"
#include "gtest/gtest.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/scripted_source.h"
#include "kvtransfer/sink.h"
#include "kvtransfer/test_rig.h"
#include "kvtransfer/transfer_cells.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {
namespace {

using transfer::v1::SessionResponse;

constexpr Epoch kSource{1, 1};
constexpr Epoch kSink{2, 2};
const AttemptId kAttempt = TestAttempt(1);
const std::vector<TokenId> kPrompt = {1, 2, 3};

struct SilentStream : SinkStream {
  void Send(SessionResponse) override {}
  void Close(absl::Status) override {}
};

// kGone: not known to the sink.
enum class Start { kGone, kAsked, kWaiting, kGranted, kQuiescing };

class Rig : public TransferSink::Host {
 public:
  explicit Rig(CellCounts* counts = nullptr) {
    TransferSink::Options options;
    options.epoch = kSink;
    options.vocab_size = 100;
    options.context_length = 100;
    options.num_groups = 2;
    if (counts != nullptr) {
      options.on_event = [counts](std::optional<SinkState> state, SinkEvent event) {
        counts->Add("sink", state.has_value() ? ToString(*state) : "Gone", ToString(event));
      };
    }
    sink = std::make_unique<TransferSink>(options, executor, table, tombstones, random, *this,
                                          nullptr);
    source = OpenSource(kSource);
  }
  ~Rig() override {
    source.reset();
    sink.reset();
  }
  std::unique_ptr<ScriptedSource> OpenSource(const Epoch& epoch) {
    return std::make_unique<ScriptedSource>(*sink, table,
                                            ScriptedSource::Options{epoch, kSink, {}, {}});
  }

  void Bring(Start start) {
    if (start == Start::kGone) return;
    Apply(SinkEvent::kReserve);
    if (start == Start::kAsked) return;
    if (start == Start::kWaiting) return Apply(SinkEvent::kHostWait);
    Apply(SinkEvent::kHostGrant);
    if (start == Start::kGranted) return;
    // Dropped while its thread is inside a block.
    source->Enter(kAttempt);
    Apply(SinkEvent::kHostDrop);
    Run();
  }

  void Apply(SinkEvent event) {
    switch (event) {
      case SinkEvent::kReserve:
        return Reserve(*source);
      case SinkEvent::kRelease:
        return source->Release(kAttempt);
      case SinkEvent::kHostGrant:
        return sink->Grant(kAttempt, {{0, {1}}, {0, {2}}});
      case SinkEvent::kHostWait:
        return sink->Wait(kAttempt);
      case SinkEvent::kHostRefuse:
        return sink->Refuse(kAttempt, worker::v1::CAUSE_NO_ROOM);
      case SinkEvent::kHostDrop:
        return sink->Drop(kAttempt, worker::v1::CAUSE_CANCELLED);
      case SinkEvent::kGoodCommit:
        return Commit(true);
      case SinkEvent::kBadCommit:
        return Commit(false);
      case SinkEvent::kTransferFailed:
        return source->ShipDamaged(kAttempt);
      case SinkEvent::kDataEnded:
        source->Open(kAttempt);
        return source->EndData();
      case SinkEvent::kTransferClosed:
        return source->CloseTransfer(kAttempt);
      case SinkEvent::kSessionEnded:
        return source->EndSession();
      case SinkEvent::kQuiesced:
        return source->Leave();
    }
  }

  void Run() { world.RunFor(std::chrono::milliseconds(1)); }

  // State, what the host was told and what went to the source since `told_from`.
  std::string Result(size_t told_from) {
    Run();
    std::string text = sink->sessions() == 0 && !session_may_end ? "bad peer" : StateText();
    for (const std::string& word : told) text += " +" + word;
    for (size_t i = told_from; i < source->heard.size(); ++i) {
      const SessionResponse& message = source->heard[i];
      const bool tombstone = message.refused().cause() == worker::v1::CAUSE_TOMBSTONE;
      if (message.has_granted()) text += " >Granted";
      if (message.has_wait()) text += " >Wait";
      if (message.has_refused()) text += tombstone ? " >Tombstone" : " >Refused";
      if (message.has_revoked()) text += " >Revoked";
    }
    return text;
  }

  void Reserve(ScriptedSource& from) {
    transfer::v1::Reserve reserve;
    proto::Set(kAttempt, *reserve.mutable_attempt());
    reserve.mutable_prompt()->Assign(kPrompt.begin(), kPrompt.end());
    reserve.set_n(1);
    reserve.set_max_tokens(2);
    from.Reserve(reserve);
  }

  SimWorld world;
  SimExecutor executor{world, "sink"};
  std::unique_ptr<kv::KvArena> arena = MakeArena(SmallLayout(), 8);
  Tombstones tombstones{executor, std::chrono::seconds(20)};
  ReceiveTable table{kSink, *arena, executor, std::chrono::seconds(20)};
  SeededRandom random{1};
  std::unique_ptr<TransferSink> sink;
  std::unique_ptr<ScriptedSource> source;
  std::vector<std::string> told;
  bool session_may_end = false;

 private:
  std::string StateText() const {
    const auto state = sink->state(kAttempt);
    if (state.has_value()) return std::string(ToString(*state));
    return tombstones.Contains(kAttempt) ? "Tombstone" : "Gone";
  }

  void Commit(bool whole) {
    if (whole) source->Ship(kAttempt, 1);
    EXPECT_TRUE(source->Commit(kAttempt, {TokenChainHash(kPrompt), "state"}).ok());
  }

  void OnReserve(const AttemptId&, Reservation) override {}
  void OnDropped(const AttemptId&, Cause) override { told.push_back("dropped"); }
  void OnQuiesced(const AttemptId&) override { told.push_back("quiesced"); }
  Cause OnCommit(const AttemptId&, std::string) override {
    told.push_back("commit");
    return worker::v1::CAUSE_UNSPECIFIED;
  }
};

// Columns Gone, Asked, Waiting, Granted, Quiescing; "host" is a broken invariant, "-" cannot occur
// or only by crossing with a drop (below). A granted attempt of which nothing is in a landing is
// quiet at once.
using Column = std::array<const char*, 5>;
constexpr std::array<Column, kNumSinkEvents> kTable = {{
    // Reserve
    {"Asked", "bad peer +dropped", "bad peer +dropped", "bad peer +dropped +quiesced",
     "Quiescing >Tombstone"},
    // Release
    {"Tombstone", "Tombstone +dropped", "Tombstone +dropped", "Tombstone +dropped +quiesced",
     "Quiescing"},
    // HostGrant
    {"host", "Granted >Granted", "Granted >Granted", "host", "host"},
    // HostWait
    {"host", "Waiting >Wait", "host", "host", "host"},
    // HostRefuse
    {"host", "Gone >Refused", "Gone >Refused", "host", "host"},
    // HostDrop
    {"Tombstone", "Tombstone >Refused", "Tombstone >Refused", "Tombstone +quiesced >Revoked",
     "Quiescing"},
    // GoodCommit
    {"-", "-", "-", "Gone +commit", "-"},
    // BadCommit
    {"-", "-", "-", "Tombstone +dropped +quiesced", "-"},
    // TransferFailed
    {"-", "-", "-", "Tombstone +dropped +quiesced >Revoked", "-"},
    // DataEnded
    {"-", "-", "-", "Tombstone +dropped +quiesced >Revoked", "-"},
    // TransferClosed
    {"-", "-", "-", "Granted", "-"},
    // SessionEnded
    {"-", "Tombstone +dropped", "Tombstone +dropped", "Tombstone +dropped +quiesced", "Quiescing"},
    // Quiesced
    {"-", "-", "-", "-", "Tombstone +quiesced"},
}};

constexpr const char* kStates[] = {"Gone", "Asked", "Waiting", "Granted", "Quiescing"};

void Drive(int s, SinkEvent event, const std::string& expected, CellCounts& counts) {
  SCOPED_TRACE(std::string(ToString(event)) + " in " + kStates[s]);
  if (expected == "-") return;
  if (expected == "host") {
    Rig rig;
    rig.Bring(static_cast<Start>(s));
    EXPECT_DEATH(rig.Apply(event), "broken invariant");
    return counts.Add("sink", kStates[s], ToString(event));  // in a process of its own
  }
  Rig rig(&counts);
  rig.session_may_end = event == SinkEvent::kSessionEnded;
  rig.Bring(static_cast<Start>(s));
  const uint64_t before = counts.Of("sink", kStates[s], ToString(event));
  const size_t heard = rig.source->heard.size();
  rig.Apply(event);
  EXPECT_EQ(rig.Result(heard), expected);
  EXPECT_GT(counts.Of("sink", kStates[s], ToString(event)), before);
}

// The event is on its way to the core when the host drops the attempt.
void DriveCrossing(SinkEvent event, CellCounts& counts) {
  SCOPED_TRACE(std::string(ToString(event)) + " crossing");
  Rig rig(&counts);
  rig.Bring(Start::kGranted);
  const size_t heard = rig.source->heard.size();
  rig.Apply(event);
  rig.Apply(SinkEvent::kHostDrop);
  EXPECT_EQ(rig.Result(heard), "Tombstone +quiesced >Revoked");
}

TEST(SinkCells, EachCellDoesWhatTheTableSays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CellCounts counts;
  for (int e = 0; e < kNumSinkEvents; ++e) {
    for (int s = 0; s < 5; ++s) Drive(s, static_cast<SinkEvent>(e), kTable[e][s], counts);
  }
  for (const SinkEvent event :
       {SinkEvent::kGoodCommit, SinkEvent::kBadCommit, SinkEvent::kTransferFailed,
        SinkEvent::kDataEnded, SinkEvent::kTransferClosed}) {
    DriveCrossing(event, counts);
  }
  EXPECT_EQ(counts.Problems({SinkCells()}, "su"), "");
}

TEST(SinkCells, TheDrawingAndTheMarksAgree) {
  std::ifstream header("kvtransfer/sink_state.h");
  std::ostringstream text;
  text << header.rdbuf();
  EXPECT_EQ(DrawingProblems(SinkCells(), text.str()), "");
}

TEST(SinkCells, AnotherSourceCannotTouchAnAttempt) {
  Rig rig;
  rig.Bring(Start::kGranted);
  const auto other = rig.OpenSource({8, 8});
  other->Release(kAttempt);
  rig.Reserve(*other);
  EXPECT_EQ(other->heard.back().refused().cause(), worker::v1::CAUSE_TOMBSTONE);
  EXPECT_EQ(rig.sink->state(kAttempt), SinkState::kGranted);
}

TEST(SinkCells, ANewSessionOfASourceReplacesTheOldOne) {
  Rig rig;
  rig.Bring(Start::kGranted);
  const auto other = rig.OpenSource(kSource);
  rig.Run();
  EXPECT_EQ(rig.told, (std::vector<std::string>{"dropped", "quiesced"}));
  EXPECT_EQ(rig.sink->sessions(), 1u);
  EXPECT_FALSE(rig.source->alive());
  EXPECT_TRUE(other->heard.front().has_hello());
}

TEST(SinkCells, ASessionWithoutHelloIsGivenUpAfterALease) {
  Rig rig;
  rig.sink->Accept([](SinkStream::Listener&) { return std::make_unique<SilentStream>(); });
  EXPECT_EQ(rig.sink->sessions(), 2u);
  rig.world.RunFor(std::chrono::seconds(11));
  EXPECT_EQ(rig.sink->sessions(), 0u);  // the greeted one was silent as well
}

}  // namespace
}  // namespace baton::kvtransfer
