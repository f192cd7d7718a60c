#include "common/cells.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

CellTable Door() { return {"door", {"Open", "Shut"}, {{"Push", "su"}, {"Ring", "-s"}}}; }

TEST(CellsTest, WhatMustOccurAndDoesNotIsNamedAndSoIsWhatMustNot) {
  CellCounts counts;
  EXPECT_EQ(counts.Problems({Door()}, ""), "");
  EXPECT_EQ(counts.Problems({Door()}, "s"),
            "never occurred: door Open Push\nnever occurred: door Shut Ring\n");
  counts.Add("door", "Open", "Push");
  counts.Add("door", "Shut", "Ring");
  EXPECT_EQ(counts.Problems({Door()}, "s"), "");
  EXPECT_EQ(counts.Problems({Door()}, "su"), "never occurred: door Shut Push\n");
  counts.Add("door", "Open", "Ring");
  counts.Add("door", "Gone", "Push");
  EXPECT_EQ(counts.Problems({Door()}, "s"),
            "impossible, but occurred: door Open Ring\nin no table: door Gone Push\n");
}

TEST(CellsTest, MarksAreFoundAndCounted) {
  EXPECT_EQ(Door().Mark("Shut", "Push"), 'u');
  EXPECT_EQ(Door().Mark("Gone", "Push"), '?');
  EXPECT_EQ(Door().Count('s'), 2u);
  CellCounts counts;
  counts.Add("door", "Open", "Push");
  const std::string text = counts.ToString({Door()});
  EXPECT_NE(text.find("1 s           0 u\n"), text.npos) << text;
  EXPECT_NE(text.find("2 sim, 1 unit, 1 impossible\n"), text.npos) << text;
}

TEST(CellsTest, ADrawingThatSaysOtherwiseIsNamed) {
  EXPECT_EQ(DrawingProblems(Door(),
                            "// words\n"
                            "//          Open       Shut\n"
                            "// Push     go, gone   push back\n"
                            "// Ring(a)  -          wait\n"),
            "");
  EXPECT_EQ(DrawingProblems(Door(),
                            "//          Open       Shut\n"
                            "// Push     go         -\n"
                            "// Ring(a)  ignore     wait\n"),
            "drawn as \"-\", marked u: door Shut Push\n"
            "drawn as \"ignore\", marked -: door Open Ring\n");
  EXPECT_EQ(DrawingProblems(Door(),
                            "//          Open       Shut\n"
                            "// Push     go         back\n"),
            "not drawn: Ring\n");
}

}  // namespace
}  // namespace baton
