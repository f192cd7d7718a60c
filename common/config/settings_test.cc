#include "common/config/settings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton::config {
namespace {

Settings Fresh() {
  Option only_here = Text("config", "", "");
  only_here.in_file = false;
  return Settings({Text("name", "nobody", ""), Choice("mode", {"auto", "tcp"}, ""),
                   Integer("max-queue", 7, 1, 100, ""), List("workers", ""), only_here,
                   Switch("help", "")});
}

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  return std::string(status.message());
}

std::string FileRefusal(const std::string& text) {
  return Refusal(Fresh().TakeFileText("f.json", text));
}

std::string FlagRefusal(const std::vector<std::string>& arguments) {
  return Refusal(Fresh().TakeArguments(arguments));
}

TEST(SettingsTest, FlagGoesOverFileGoesOverDefaultInEitherOrder) {
  const std::vector<std::string> flags = {"--max-queue", "9"};
  const std::string file = R"({"max-queue": 8, "name": "file"})";
  Settings flags_first = Fresh();
  ASSERT_TRUE(flags_first.TakeArguments(flags).ok());
  ASSERT_TRUE(flags_first.TakeFileText("f.json", file).ok());
  Settings file_first = Fresh();
  ASSERT_TRUE(file_first.TakeFileText("f.json", file).ok());
  ASSERT_TRUE(file_first.TakeArguments(flags).ok());
  for (const Settings& settings : {flags_first, file_first}) {
    EXPECT_EQ(settings.Integer("max-queue"), 9);
    EXPECT_EQ(settings.Text("name"), "file");
    EXPECT_EQ(settings.Text("mode"), "auto");
    EXPECT_TRUE(settings.IsSet("name"));
    EXPECT_FALSE(settings.IsSet("mode"));
  }
}

TEST(SettingsTest, TakesBothSpellingsOfAFlagAndItsLastValue) {
  Settings settings = Fresh();
  ASSERT_TRUE(settings
                  .TakeArguments({"--max_queue=3", "--name", "--odd", "--max-queue=4", "--help",
                                  "--workers=a:1,,b:2,"})
                  .ok());
  EXPECT_EQ(settings.Integer("max-queue"), 4);
  EXPECT_EQ(settings.Text("name"), "--odd");
  EXPECT_TRUE(settings.IsSet("help"));
  EXPECT_EQ(settings.List("workers"), (std::vector<std::string>{"a:1", "b:2"}));
}

TEST(SettingsTest, RefusesFlagsByNameValueAndLimit) {
  EXPECT_EQ(FlagRefusal({"--max-queue=0"}),
            "--max-queue is 0; must be a whole number from 1 to 100");
  for (const char* value : {"101", "-1", "1.5", "x", "", " 1", "1 ", "99999999999999999999"}) {
    FlagRefusal({std::string("--max-queue=") + value});
  }
  EXPECT_EQ(FlagRefusal({"--mode", "udp"}), "--mode is udp; must be one of auto, tcp");
  EXPECT_EQ(FlagRefusal({"--color", "red"}), "unknown flag: --color");
  EXPECT_EQ(FlagRefusal({"--name"}), "--name: needs a value");
  EXPECT_EQ(FlagRefusal({"--help=yes"}), "--help: takes no value");
  EXPECT_EQ(FlagRefusal({"name"}), "unexpected argument: name");
  EXPECT_EQ(FlagRefusal({"--"}), "unexpected argument: --");
}

TEST(SettingsTest, RefusesKeysByNameValueAndLimit) {
  EXPECT_EQ(FileRefusal(R"({"max-queue": 101})"),
            "f.json: max-queue is 101; must be a whole number from 1 to 100");
  EXPECT_EQ(FileRefusal(R"({"max-queue": "5"})"),
            "f.json: max-queue is \"5\"; must be a whole number from 1 to 100");
  for (const char* value : {"1.0", "1e1", "true", "null", "[1]", "18446744073709551616"}) {
    FileRefusal(std::string(R"({"max-queue": )") + value + "}");
  }
  EXPECT_EQ(FileRefusal(R"({"name": 5})"), "f.json: name is 5; must be text");
  EXPECT_EQ(FileRefusal(R"({"mode": "udp"})"), "f.json: mode is \"udp\"; must be one of auto, tcp");
  EXPECT_EQ(FileRefusal(R"({"workers": ["a:1", 2]})"),
            "f.json: workers is [\"a:1\",2]; must be an array of text without commas");
  FileRefusal(R"({"workers": "a:1"})");
  FileRefusal(R"({"workers": ["a:1,b:2"]})");
}

TEST(SettingsTest, RefusesUnknownRepeatedAndCommandLineKeys) {
  EXPECT_EQ(FileRefusal(R"({"max_queue": 5})"), "f.json: max_queue: unknown key");
  EXPECT_EQ(FileRefusal(R"({"config": "g.json"})"), "f.json: config: unknown key");
  EXPECT_EQ(FileRefusal(R"({"name": "a", "name": "b"})"), "f.json: name: is given twice");
}

TEST(SettingsTest, RefusesWhatIsNotOneObject) {
  EXPECT_EQ(FileRefusal("{\n\"name\": \"a\",\n}"), "f.json: line 3: is not JSON");
  for (const char* text : {"", "[]", "5", "{", "{} {}", "name: a", "{\"name\": \"\xff\"}"}) {
    FileRefusal(text);
  }
}

TEST(SettingsTest, AFileIsCheckedWholeEvenWhereFlagsGoOverIt) {
  Settings settings = Fresh();
  ASSERT_TRUE(settings.TakeArguments({"--max-queue=5"}).ok());
  EXPECT_FALSE(settings.TakeFileText("f.json", R"({"max-queue": 0})").ok());
}

TEST(SettingsTest, CommentsAreAllowed) {
  Settings settings = Fresh();
  ASSERT_TRUE(settings.TakeFileText("f.json", "{ // why\n \"max-queue\": 5 }").ok());
  EXPECT_EQ(settings.Integer("max-queue"), 5);
}

TEST(SettingsTest, WhatIsPrintedReadsBackToTheSame) {
  Settings settings = Fresh();
  ASSERT_TRUE(settings.TakeArguments({"--name=a \"b\"\xc3\xa9", "--workers=x:1,y:2"}).ok());
  Settings again = Fresh();
  ASSERT_TRUE(again.TakeFileText("f.json", settings.ToJson()).ok());
  EXPECT_EQ(again.ToJson(), settings.ToJson());
  EXPECT_EQ(again.Text("name"), "a \"b\"\xc3\xa9");
  EXPECT_EQ(again.Integer("max-queue"), 7);
  EXPECT_EQ(again.List("workers"), (std::vector<std::string>{"x:1", "y:2"}));
}

TEST(SettingsTest, ErrorsNameAValueAsItsGiverDid) {
  Settings settings = Fresh();
  ASSERT_TRUE(settings.TakeArguments({"--name=a"}).ok());
  ASSERT_TRUE(settings.TakeFileText("f.json", R"({"max-queue": 5})").ok());
  EXPECT_EQ(Refusal(settings.Bad("name", "must be b")), "--name is a; must be b");
  EXPECT_EQ(Refusal(settings.Bad("max-queue", "must be 6")), "f.json: max-queue is 5; must be 6");
}

TEST(SettingsTest, AFileThatIsNotThereOrTooLargeIsRefused) {
  EXPECT_EQ(Refusal(Fresh().TakeFile("/does/not/exist")), "/does/not/exist: cannot be read");
  EXPECT_EQ(Refusal(Fresh().TakeFile("/dev/zero")), "/dev/zero: is larger than 1048576 bytes");
  FileRefusal(std::string(1000, '['));
}

}  // namespace
}  // namespace baton::config
