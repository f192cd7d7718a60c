#include "kvtransfer/frame.h"

#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "common/crc32c.h"
#include "gtest/gtest.h"
#include "kvtransfer/frame_buffer.h"

namespace baton::kvtransfer {
namespace {

// The frames of the worked example, by name.
std::map<std::string, std::string> FramesOfTheDoc() {
  std::ifstream doc("docs/wire_format.md");
  std::map<std::string, std::string> frames;
  std::string line, name;
  while (std::getline(doc, line)) {
    if (line.rfind("```frame ", 0) == 0) {
      name = line.substr(9);
    } else if (line.rfind("```", 0) == 0) {
      name.clear();
    } else if (!name.empty()) {
      std::string hex;
      for (char c : line) hex += c == ' ' ? "" : std::string(1, c);
      for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        frames[name] += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      }
    }
  }
  return frames;
}

constexpr AttemptId kAttempt{{0x1111111111111111, 0x2222222222222222}, 7, 1};
constexpr Epoch kSource{0x3333333333333333, 0x4444444444444444};
constexpr Epoch kSink{0x5555555555555555, 0x6666666666666666};
const PieceHeader kHeader{kAttempt, kSource, kSink, 2, 0, 1, 0, 5, 0, 32};

std::string Body(FrameType type, const std::string& frame) {
  FrameBuffer buffer;
  buffer.Append(frame);
  const auto whole = buffer.Next();
  EXPECT_TRUE(whole.ok() && whole->has_value()) << whole.status();
  EXPECT_EQ((*whole)->type, type);
  EXPECT_TRUE((*whole)->intact);
  return std::string((*whole)->body);
}

TEST(WireFormat, TheExampleOfTheDocDecodesAndEncodesToTheSameBytes) {
  const auto doc = FramesOfTheDoc();
  ASSERT_EQ(doc.size(), 9u);
  const HelloFrame hello{1, kSource, kSink};
  EXPECT_EQ(*DecodeHello(Body(FrameType::kHello, doc.at("hello"))), hello);
  EXPECT_EQ(Encode(hello), doc.at("hello"));
  const OpenFrame open{kAttempt, 0x0123456789abcdef};
  EXPECT_EQ(*DecodeOpen(Body(FrameType::kOpen, doc.at("open"))), open);
  EXPECT_EQ(Encode(open), doc.at("open"));
  const auto commit = DecodeCommit(Body(FrameType::kCommit, doc.at("commit")));
  EXPECT_EQ(commit->attempt, kAttempt);
  EXPECT_EQ(commit->message.chain_hash, (Digest{0x7777777777777777, 0x8888888888888888}));
  EXPECT_EQ(commit->message.decoder_state, std::string("\x0a\0", 2));
  EXPECT_EQ(Encode(*commit), doc.at("commit"));
  EXPECT_EQ(*DecodeClose(Body(FrameType::kClose, doc.at("close"))), kAttempt);
  EXPECT_EQ(EncodeClose(kAttempt), doc.at("close"));
  const CommitReplyFrame reply{kAttempt, worker::v1::CAUSE_MISSING_PIECE};
  EXPECT_EQ(*DecodeCommitReply(Body(FrameType::kCommitReply, doc.at("commit_reply"))), reply);
  EXPECT_EQ(Encode(reply), doc.at("commit_reply"));
  const CreditFrame credit{kAttempt, 524288};
  EXPECT_EQ(*DecodeCredit(Body(FrameType::kCredit, doc.at("credit"))), credit);
  EXPECT_EQ(Encode(credit), doc.at("credit"));
}

TEST(WireFormat, ThePieceOfTheDocAndItsReferenceHaveTheSameCrc) {
  const auto doc = FramesOfTheDoc();
  std::string payload;
  for (char c = 0; c < 32; ++c) payload += c;
  const std::string body = Body(FrameType::kPiece, doc.at("piece"));
  EXPECT_EQ(DecodePieceHeader(body), kHeader);
  EXPECT_EQ(body.substr(kPieceHeaderBytes), payload);
  const std::string covered = EncodePieceHead(kHeader) + payload;
  const uint32_t crc = Crc32c(AsBytes(covered));
  EXPECT_EQ(covered + EncodeTrailer(crc), doc.at("piece"));
  const PieceRefFrame reference{kHeader, crc, 3, 12, {41}};
  EXPECT_EQ(*DecodePieceRef(Body(FrameType::kPieceRef, doc.at("piece_ref"))), reference);
  EXPECT_EQ(Encode(reference), doc.at("piece_ref"));
  const ShmArenaFrame arena{2, 1, {{0, 4096}, {4096, 4096}}};
  EXPECT_EQ(*DecodeShmArena(Body(FrameType::kShmArena, doc.at("shm_arena"))), arena);
  EXPECT_EQ(Encode(arena), doc.at("shm_arena"));
}

TEST(FrameBuffer, CutsAStreamHoweverItArrives) {
  std::string stream;
  for (const auto& entry : FramesOfTheDoc()) stream += entry.second;
  for (const size_t step : {size_t{1}, size_t{7}, stream.size()}) {
    FrameBuffer buffer;
    int frames = 0;
    for (size_t at = 0; at < stream.size(); at += step) {
      buffer.Append(std::string_view(stream).substr(at, step));
      while (true) {
        const auto whole = buffer.Next();
        ASSERT_TRUE(whole.ok()) << whole.status();
        if (!whole->has_value()) break;
        ++frames;
      }
    }
    EXPECT_EQ(frames, 9);
  }
}

TEST(FrameBuffer, TellsAGivenUpPieceFromADamagedOne) {
  const std::string head = EncodePieceHead(kHeader);
  FrameBuffer buffer;
  buffer.Append(head + std::string(32, 'x') + EncodeTrailer(GivenUpTrailer(Crc32c(AsBytes(head)))));
  buffer.Append(head + std::string(32, 'x') + EncodeTrailer(0));
  const auto given_up = *buffer.Next();
  EXPECT_TRUE(!given_up->intact && given_up->given_up);
  const auto damaged = *buffer.Next();
  EXPECT_TRUE(!damaged->intact && !damaged->given_up);
}

TEST(FrameBuffer, RefusesWhatIsNoFrame) {
  for (const auto& entry : FramesOfTheDoc()) {
    const std::string& frame = entry.second;
    for (size_t i = 0; i < frame.size(); ++i) {
      std::string broken = frame;
      broken[i] = static_cast<char>(broken[i] ^ 0x40);
      FrameBuffer buffer;
      buffer.Append(broken);
      const auto whole = buffer.Next();
      // A length that grew waits for more; a damaged piece is reported, not dropped.
      const bool harmless = whole.ok() && (!whole->has_value() || !(*whole)->intact);
      EXPECT_TRUE(!whole.ok() || harmless) << entry.first << " byte " << i;
    }
  }
  FrameBuffer buffer;
  buffer.Append(FramesOfTheDoc().at("commit"));
  EXPECT_FALSE(buffer.Next(/*max_body=*/16).ok());
}

// Who waits for a reply must not wait for the rest of a damaged one.
TEST(FrameBuffer, OneWrongBitInAFrameOfOneSizeIsNoticedAtOnce) {
  for (const char* const name : {"hello", "open", "close", "commit_reply", "credit"}) {
    const std::string frame = FramesOfTheDoc().at(name);
    for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      std::string broken = frame;
      broken[bit / 8] = static_cast<char>(broken[bit / 8] ^ (1 << (bit % 8)));
      FrameBuffer buffer;
      buffer.Append(broken);
      EXPECT_FALSE(buffer.Next().ok()) << name << " bit " << bit;
    }
  }
}

TEST(Frames, BodiesOfTheWrongSizeAreRefused) {
  const std::map<std::string, std::function<bool(std::string_view)>> decoders = {
      {"hello", [](std::string_view b) { return DecodeHello(b).ok(); }},
      {"open", [](std::string_view b) { return DecodeOpen(b).ok(); }},
      {"close", [](std::string_view b) { return DecodeClose(b).ok(); }},
      {"commit_reply", [](std::string_view b) { return DecodeCommitReply(b).ok(); }},
      {"credit", [](std::string_view b) { return DecodeCredit(b).ok(); }},
      {"shm_arena", [](std::string_view b) { return DecodeShmArena(b).ok(); }},
      {"piece_ref", [](std::string_view b) { return DecodePieceRef(b).ok(); }},
  };
  const auto doc = FramesOfTheDoc();
  for (const auto& entry : decoders) {
    const std::string& frame = doc.at(entry.first);
    const std::string body =
        frame.substr(kPreludeBytes, frame.size() - kPreludeBytes - kTrailerBytes);
    EXPECT_TRUE(entry.second(body)) << entry.first;
    EXPECT_FALSE(entry.second(body.substr(0, body.size() - 1))) << entry.first;
    EXPECT_FALSE(entry.second(body + "x")) << entry.first;
    EXPECT_FALSE(entry.second("")) << entry.first;
  }
}

}  // namespace
}  // namespace baton::kvtransfer
