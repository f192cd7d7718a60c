// What an engine step costs by what is in it: fitted by a worker to its own steps
// (engine/step_time_model), reported to routers, and read by placement and admission.
#ifndef BATON_COMMON_STEP_TIMES_H_
#define BATON_COMMON_STEP_TIMES_H_

#include <cstdint>

namespace baton {

// What a step computes. Keys are those its rows attend to, each row its own position included,
// summed over the rows.
struct StepWork {
  uint32_t prompt_tokens = 0;
  uint32_t decode_rows = 0;
  uint64_t prompt_keys = 0;
  uint64_t decode_keys = 0;

  // `tokens` of a prompt from position `start` on.
  void AddPrompt(uint32_t start, uint32_t tokens) {
    prompt_tokens += tokens;
    prompt_keys += uint64_t{tokens} * start + uint64_t{tokens} * (uint64_t{tokens} + 1) / 2;
  }
  void AddDecode(uint32_t position) {
    ++decode_rows;
    decode_keys += uint64_t{position} + 1;
  }

  friend bool operator==(const StepWork&, const StepWork&) = default;
};

// Seconds, none negative. All 0: nothing is measured yet.
struct StepTimes {
  double step = 0;  // whatever is in it
  double prompt_token = 0;
  double decode_row = 0;
  double prompt_key = 0;
  double decode_key = 0;

  double Seconds(const StepWork& work) const {
    return step + prompt_token * work.prompt_tokens + decode_row * work.decode_rows +
           prompt_key * static_cast<double>(work.prompt_keys) +
           decode_key * static_cast<double>(work.decode_keys);
  }
  bool measured() const { return step + prompt_token + decode_row + prompt_key + decode_key > 0; }

  friend bool operator==(const StepTimes&, const StepTimes&) = default;
};

}  // namespace baton

#endif  // BATON_COMMON_STEP_TIMES_H_
