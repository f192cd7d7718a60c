// Speed of the kernels alone on one thread: GMAC/s by rows of activations, with the weights in
// cache and streamed from memory.
#include <time.h>

#include <cstdio>
#include <functional>
#include <random>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/testing.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kBlocks = 18;  // 576 inputs
constexpr uint32_t kInputs = kBlocks * kBlock;
constexpr uint32_t kMaxRows = 64;

// Processor time of this thread: other processes cost caches, not minutes.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double SecondsPerCall(const std::function<void()>& call) {
  double best = 1e9;
  for (int round = 0; round < 40; ++round) {
    int calls = 0;
    const double begin = Now();
    double elapsed = 0;
    do {
      for (int i = 0; i < 16; ++i) call();
      calls += 16;
      elapsed = Now() - begin;
    } while (elapsed < 0.001);
    best = std::min(best, elapsed / calls);
  }
  return best;
}

struct Inputs {
  std::mt19937_64 random{1};
  std::vector<float> x = RandomFloats(random, size_t{kMaxRows} * kInputs);
  std::vector<int8_t> q8 = std::vector<int8_t>(x.size(), 77);
  std::vector<int16_t> q16 = std::vector<int16_t>(x.size(), 7777);
  std::vector<float> scale = std::vector<float>(x.size() / kBlock, 0.1f);
  std::vector<int32_t> centre = std::vector<int32_t>(x.size() / kBlock, -8 * 32 * 77);
  std::vector<std::byte> panel = std::vector<std::byte>(kInputs * kPanel * 4 + 8192);
  std::vector<float> out = std::vector<float>(size_t{kMaxRows} * kPanel);
};

template <typename Q>
std::function<void()> Quantized(void (*kernel)(const QuantizedPanel<Q>&), Inputs& in,
                                const std::vector<Q>& q, uint32_t rows) {
  QuantizedPanel<Q> args;
  args.panel = reinterpret_cast<const uint8_t*>(in.panel.data());
  args.blocks = kBlocks;
  args.in = {q.data(), kInputs, in.scale.data(), in.scale.data(), in.centre.data(), kBlocks};
  args.rows = rows;
  args.out = in.out.data();
  args.out_stride = kPanel;
  return [=] { kernel(args); };
}

template <typename B>
std::function<void()> Dense(void (*kernel)(const DensePanel<B>&), Inputs& in, const B* const* run,
                            uint32_t rows) {
  DensePanel<B> args;
  args.a = in.x.data();
  args.a_stride = kInputs;
  args.runs = run;
  args.run = args.k = kInputs;
  args.b_stride = kPanel;
  args.rows = rows;
  args.out = in.out.data();
  args.out_stride = kPanel;
  return [=] { kernel(args); };
}

void Print(const char* name, const std::function<std::function<void()>(uint32_t)>& with_rows) {
  std::printf("%-8s", name);
  for (uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 64u}) {
    const double seconds = SecondsPerCall(with_rows(rows));
    std::printf(" %6.1f", rows * kInputs * kPanel / seconds * 1e-9);
  }
  std::printf("\n");
}

// One pass over 64 MB of Q4_1 panels.
void PrintStreamed(const Tier& tier, Inputs& in) {
  constexpr size_t kPanels = (size_t{64} << 20) / (kBlocks * sizeof(PanelQ4_1));
  const std::vector<std::byte> weights(kPanels * kBlocks * sizeof(PanelQ4_1) + 65536, std::byte{3});
  std::printf("Q4_1 streamed from memory\n%-8s", "");
  for (uint32_t rows : {1u, 2u, 3u, 4u, 8u, 16u, 32u, 64u}) {
    QuantizedPanel<int8_t> args;
    args.blocks = kBlocks;
    args.in = {in.q8.data(), kInputs, in.scale.data(), in.scale.data(), nullptr, kBlocks};
    args.rows = rows;
    args.out = in.out.data();
    args.out_stride = kPanel;
    double best = 1e9;
    for (int round = 0; round < 15; ++round) {
      const double begin = Now();
      for (size_t panel = 0; panel < kPanels; ++panel) {
        args.panel =
            reinterpret_cast<const uint8_t*>(weights.data()) + panel * kBlocks * sizeof(PanelQ4_1);
        tier.linear_q4_1(args);
      }
      best = std::min(best, Now() - begin);
    }
    std::printf(" %u: %.1f (%.1f GB/s)", rows, kPanels * rows * kInputs * kPanel / best * 1e-9,
                kPanels * kBlocks * sizeof(PanelQ4_1) / best * 1e-9);
  }
  std::printf("\n");
}

void Run(const Tier& tier) {
  Inputs in;
  const auto* half = reinterpret_cast<const uint16_t*>(in.panel.data());
  const auto* bfloat16 = reinterpret_cast<const BFloat16*>(in.panel.data());
  const auto* single = reinterpret_cast<const float*>(in.panel.data());
  std::printf(
      "%s, GMAC/s\nrows          1      2      3      4      5      6      7      8     64\n",
      tier.name);
  Print("Q4_0", [&](uint32_t rows) { return Quantized(tier.linear_q4_0, in, in.q8, rows); });
  Print("Q4_1", [&](uint32_t rows) { return Quantized(tier.linear_q4_1, in, in.q8, rows); });
  Print("Q8_0", [&](uint32_t rows) { return Quantized(tier.linear_q8_0, in, in.q16, rows); });
  Print("F16", [&](uint32_t rows) { return Dense(tier.dense_half, in, &half, rows); });
  Print("BF16", [&](uint32_t rows) { return Dense(tier.dense_bfloat16, in, &bfloat16, rows); });
  Print("F32", [&](uint32_t rows) { return Dense(tier.dense_float, in, &single, rows); });
  std::vector<float> sums(in.scale.size());
  QuantizeRows<int8_t> quantize{in.x.data(),      kInputs, kMaxRows,        kBlocks,
                                in.q8.data(),     kInputs, in.scale.data(), sums.data(),
                                in.centre.data(), kBlocks};
  double seconds = SecondsPerCall([&] { tier.quantize_int8(quantize); });
  std::printf("quantize int8 %.3f ns per value\n", seconds * 1e9 / (kMaxRows * kInputs));
  seconds = SecondsPerCall(
      [&] { tier.swiglu(in.x.data(), in.x.data() + 4096, 4096, in.x.data() + 8192); });
  std::printf("swiglu %.3f ns per value\n", seconds * 1e9 / 4096);
}

}  // namespace
}  // namespace baton::kernels::cpu

int main() {
  if (baton::kernels::cpu::CpuHasAvx2()) {
    baton::kernels::cpu::Run(baton::kernels::cpu::Avx2Tier());
    baton::kernels::cpu::Inputs in;
    baton::kernels::cpu::PrintStreamed(baton::kernels::cpu::Avx2Tier(), in);
  }
  baton::kernels::cpu::Run(baton::kernels::cpu::ScalarTier());
  return 0;
}
