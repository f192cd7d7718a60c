// Requests and the answers that they must get: a file that the soak test writes.
#ifndef BATON_TESTS_LOAD_SOAK_POOL_H_
#define BATON_TESTS_LOAD_SOAK_POOL_H_

#include <string>
#include <vector>

#include "baton/v1/inference.pb.h"

namespace baton::soak {

struct Expected {
  v1::GenerateStreamRequest request;
  v1::GenerateResponse answer;  // without what may differ: Comparable
};

// Each entry is two messages, each behind its length as four bytes, lowest first. Ends the program
// with a line when the file is not so.
std::vector<Expected> ReadPool(const std::string& path);

// Puts the parts of a streamed answer together, as the unary call does.
class Answer {
 public:
  void Add(v1::GenerateStreamResponse part);
  int tokens() const { return tokens_; }
  std::string Text() const { return got_.ShortDebugString(); }
  bool SameAs(const v1::GenerateResponse& expected) const;
  // What a call that ended early may have said.
  bool IsBeginningOf(const v1::GenerateResponse& expected) const;

 private:
  v1::Choice& ChoiceAt(uint32_t index);

  v1::GenerateResponse got_;
  int tokens_ = 0;
};

}  // namespace baton::soak

#endif  // BATON_TESTS_LOAD_SOAK_POOL_H_
