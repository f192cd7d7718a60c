// Keeps the choices of an answer until all are over, then returns the best of them.
#ifndef BATON_ROUTER_BEST_OF_H_
#define BATON_ROUTER_BEST_OF_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baton/v1/inference.pb.h"

namespace baton::router {

// Best: the highest sum of the log probabilities of all its tokens (in double precision, in their
// order), of equal ones the lower index. Not thread-safe.
class BestOf {
 public:
  // Without `with_logprobs` those that ranked the choices are not returned.
  BestOf(uint32_t choices, size_t keep, bool with_logprobs);

  // Every token comes with its log probability.
  void Add(v1::Delta delta);
  void End(const v1::ChoiceEnd& end);

  // Once, when every choice is over: best first, numbered from 0.
  std::vector<v1::Choice> Take();

 private:
  struct Scored {
    v1::Choice choice;
    double score = 0;
  };

  std::vector<Scored> choices_;
  const size_t keep_;
  const bool with_logprobs_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_BEST_OF_H_
