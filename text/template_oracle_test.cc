// The template engine against Jinja2: recorded renderings of eight vendors' templates, and the
// installed library on small templates.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "text/json_value.h"
#include "text/template.h"
#include "text/test_files.h"
#include "text/utf8.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRecordedClock = 1721779200;  // 24 July 2024, 00:00 UTC

std::string ReadFile(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::string Joined(const std::vector<TextSegment>& segments) {
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

TEST(TemplateOracle, VendorTemplatesRenderAsRecorded) {
  BATON_REQUIRE_ENVIRONMENT("BATON_SHARED");
  const std::string folder = TestEnvironment("BATON_SHARED") + "/oracles/chat/";
  const Json goldens = Json::parse(ReadFile(folder + "goldens.json"));
  int cases = 0;
  for (const Json& golden : goldens.at("cases")) {
    const std::string name = golden.at("template");
    const Json& context = goldens.at("contexts").at(golden.at("context").get<std::string>());
    TemplateOptions options;
    options.bos_token = context.at("bos_token");
    options.eos_token = context.at("eos_token");
    const auto chat = ChatTemplate::Parse(ReadFile(folder + name), options);
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status();
    Json variables = context;
    variables.erase("bos_token");
    variables.erase("eos_token");
    const auto rendered = chat->RenderVariables(ValueFromJson(variables), kRecordedClock);
    ASSERT_TRUE(rendered.ok()) << name << " " << golden.at("context") << ": " << rendered.status();
    EXPECT_EQ(Joined(*rendered), golden.at("expected").get<std::string>())
        << name << " " << golden.at("context");
    ++cases;
  }
  EXPECT_EQ(cases, 40);
}

// Each line of reference_templates.py: {"template", "variables", "expected" or "refused"}.
TEST(TemplateOracle, SmallTemplatesRenderAsTheReferenceLibraryDoes) {
  BATON_REQUIRE_ENVIRONMENT("BATON_PYTHON");
  const std::string command =
      "'" + TestEnvironment("BATON_PYTHON") + "' text/reference_templates.py";
  FILE* reference = popen(command.c_str(), "r");
  ASSERT_NE(reference, nullptr);
  std::string output;
  for (int c; (c = std::fgetc(reference)) != EOF;) output.push_back(static_cast<char>(c));
  ASSERT_EQ(pclose(reference), 0) << command;
  std::istringstream lines(output);
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const Json fields = Json::parse(line);
    const std::string source = fields.at("template");
    const auto chat = ChatTemplate::Parse(source, TemplateOptions());
    EXPECT_TRUE(chat.ok()) << source << ": " << chat.status();
    if (!chat.ok()) continue;
    const auto rendered =
        chat->RenderVariables(ValueFromJson(fields.at("variables")), kRecordedClock);
    if (fields.contains("refused")) {
      EXPECT_FALSE(rendered.ok()) << source << " rendered as " << Joined(*rendered);
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << source << ": " << rendered.status();
    EXPECT_EQ(Joined(*rendered), fields.at("expected").get<std::string>()) << source;
  }
  EXPECT_GT(cases, 150);
}

// Neither a damaged template nor what it makes of a conversation may crash or run away.
TEST(TemplateOracle, DamagedTemplatesAreRefusedOrRender) {
  BATON_REQUIRE_ENVIRONMENT("BATON_SHARED");
  const std::string folder = TestEnvironment("BATON_SHARED") + "/oracles/chat/";
  const Json goldens = Json::parse(ReadFile(folder + "goldens.json"));
  const unsigned seed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  TemplateOptions options;
  options.max_steps = 20'000;
  int parsed = 0;
  for (const Json& golden : goldens.at("cases")) {
    const std::string source = ReadFile(folder + golden.at("template").get<std::string>());
    const auto variables =
        ValueFromJson(goldens.at("contexts").at(golden.at("context").get<std::string>()));
    for (int round = 0; round < 50; ++round) {
      std::string damaged = source;
      for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
        const size_t at = random() % damaged.size();
        const size_t length = std::min<size_t>(random() % 8, damaged.size() - at);
        const size_t from = random() % damaged.size();
        damaged.replace(at, length, damaged.substr(from, random() % 12));
      }
      const auto chat = ChatTemplate::Parse(damaged, options);
      if (!chat.ok()) continue;
      ++parsed;
      const auto rendered = chat->RenderVariables(variables, kRecordedClock);
      if (!rendered.ok()) continue;
      EXPECT_TRUE(IsValidUtf8(Joined(*rendered)));
    }
  }
  EXPECT_GT(parsed, 200);
}

}  // namespace
}  // namespace baton
