// Speed of the kernels alone on one thread, tier by tier: GMAC/s by rows of activations, with the
// weights in cache and streamed from memory. kernel_bench [TIER...]: only these.
#include <time.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <random>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/testing.h"
#include "kernels/cpu/tiers.h"

namespace baton::kernels::cpu {
namespace {

constexpr uint32_t kBlocks = 18;  // 576 inputs
constexpr uint32_t kInputs = kBlocks * kBlock;
constexpr uint32_t kMaxRows = 64;
constexpr uint32_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 64};
constexpr size_t kStreamedBytes = size_t{64} << 20;

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
  std::vector<std::byte> weights = std::vector<std::byte>(kStreamedBytes + 65536, std::byte{3});
  std::vector<float> out = std::vector<float>(size_t{kMaxRows} * kPanel);
};

using PanelCall = std::function<void(const std::byte* panel)>;

template <typename Q>
PanelCall Quantized(void (*kernel)(const QuantizedPanel<Q>&), Inputs& in, const std::vector<Q>& q,
                    uint32_t rows) {
  QuantizedPanel<Q> args;
  args.blocks = kBlocks;
  args.in = {q.data(), kInputs, in.scale.data(), in.scale.data(), in.centre.data(), kBlocks};
  args.rows = rows;
  args.out = in.out.data();
  args.out_stride = kPanel;
  return [=](const std::byte* panel) mutable {
    args.panel = reinterpret_cast<const uint8_t*>(panel);
    kernel(args);
  };
}

template <typename B>
PanelCall Dense(void (*kernel)(const DensePanel<B>&), Inputs& in, uint32_t rows) {
  DensePanel<B> args;
  args.a = in.x.data();
  args.a_stride = kInputs;
  args.run = args.k = kInputs;
  args.b_stride = kPanel;
  args.rows = rows;
  args.out = in.out.data();
  args.out_stride = kPanel;
  return [=](const std::byte* panel) mutable {
    const B* run = reinterpret_cast<const B*>(panel);
    args.runs = &run;
    kernel(args);
  };
}

struct Format {
  const char* name;
  size_t panel_bytes;
  std::function<PanelCall(const Tier&, Inputs&, uint32_t rows)> call;
};

const Format kFormats[] = {
    {"Q4_0", kBlocks * sizeof(PanelQ4_0),
     [](const Tier& tier, Inputs& in, uint32_t rows) {
       return Quantized(tier.linear_q4_0, in, in.q8, rows);
     }},
    {"Q4_1", kBlocks * sizeof(PanelQ4_1),
     [](const Tier& tier, Inputs& in, uint32_t rows) {
       return Quantized(tier.linear_q4_1, in, in.q8, rows);
     }},
    {"Q8_0", kBlocks * sizeof(PanelQ8_0),
     [](const Tier& tier, Inputs& in, uint32_t rows) {
       return Quantized(tier.linear_q8_0, in, in.q16, rows);
     }},
    {"F16", kInputs* kPanel * sizeof(uint16_t),
     [](const Tier& tier, Inputs& in, uint32_t rows) { return Dense(tier.dense_half, in, rows); }},
    {"BF16", kInputs* kPanel * sizeof(BFloat16),
     [](const Tier& tier, Inputs& in, uint32_t rows) {
       return Dense(tier.dense_bfloat16, in, rows);
     }},
    {"F32", kInputs* kPanel * sizeof(float),
     [](const Tier& tier, Inputs& in, uint32_t rows) { return Dense(tier.dense_float, in, rows); }},
};

double SecondsInCache(const PanelCall& call, const Inputs& in) {
  return SecondsPerCall([&] { call(in.weights.data()); });
}

double SecondsStreamed(const PanelCall& call, const Inputs& in, size_t panel_bytes) {
  const size_t panels = kStreamedBytes / panel_bytes;
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    const double begin = Now();
    for (size_t i = 0; i < panels; ++i) call(in.weights.data() + i * panel_bytes);
    best = std::min(best, Now() - begin);
  }
  return best / static_cast<double>(panels);
}

void PrintFormat(const Format& format, const std::vector<const Tier*>& tiers, Inputs& in) {
  for (const bool streamed : {false, true}) {
    for (const Tier* tier : tiers) {
      std::printf("%-5s %-8s %-8s", format.name, tier->name, streamed ? "streamed" : "in cache");
      for (const uint32_t rows : kRowCounts) {
        const PanelCall call = format.call(*tier, in, rows);
        const double seconds =
            streamed ? SecondsStreamed(call, in, format.panel_bytes) : SecondsInCache(call, in);
        std::printf(" %6.1f", rows * kInputs * kPanel / seconds * 1e-9);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
}

// A run of 64 keys of a head of 64 dimensions, in blocks of 16: their scores, then their values.
void PrintAttention(const Tier& tier, Inputs& in) {
  constexpr uint32_t kRun = 64;
  constexpr uint32_t kBlocksOfRun = kRun / 16;
  const auto* half = reinterpret_cast<const uint16_t*>(in.weights.data());
  std::vector<const uint16_t*> runs;
  for (uint32_t i = 0; i < 4 * kBlocksOfRun; ++i) runs.push_back(half + i * 1024);
  std::printf("attention %-8s", tier.name);
  for (const uint32_t rows : {1u, 3u, 4u, 12u}) {
    DensePanel<uint16_t> args;
    args.a = in.x.data();
    args.a_stride = args.out_stride = args.k = args.cols = kRun;
    args.runs = runs.data();
    args.rows = rows;
    args.out = in.out.data();
    args.run = 64;
    args.b_stride = 16;
    args.panel_runs = 1;
    double seconds = SecondsPerCall([&] { tier.dense_half(args); });
    std::printf("  %u queries: scores %.1f", rows, rows * kRun * 64 / seconds * 1e-9);
    args.run = 16;
    args.b_stride = 64;
    args.panel_runs = kBlocksOfRun;
    seconds = SecondsPerCall([&] { tier.dense_half(args); });
    std::printf(" values %.1f", rows * kRun * 64 / seconds * 1e-9);
  }
  std::printf(" GMAC/s\n");
}

void PrintElementwise(const Tier& tier, Inputs& in) {
  std::vector<float> sums(in.scale.size());
  QuantizeRows<int8_t> q8{in.x.data(), kInputs,         kMaxRows,    kBlocks,          in.q8.data(),
                          kInputs,     in.scale.data(), sums.data(), in.centre.data(), kBlocks};
  QuantizeRows<int16_t> q16{in.x.data(), kInputs,         kMaxRows, kBlocks, in.q16.data(),
                            kInputs,     in.scale.data(), nullptr,  nullptr, kBlocks};
  const auto each = [](size_t values, const std::function<void()>& call) {
    return SecondsPerCall(call) * 1e9 / static_cast<double>(values);
  };
  const std::vector<float> scores(in.x.begin(), in.x.begin() + kSegment);
  std::vector<float> out(4096);
  SoftmaxState state{1, 1};
  std::printf("ns per value %-8s", tier.name);
  std::printf("  int8 %.3f", each(size_t{kMaxRows} * kInputs, [&] { tier.quantize_int8(q8); }));
  std::printf("  int16 %.3f", each(size_t{kMaxRows} * kInputs, [&] { tier.quantize_int16(q16); }));
  std::printf("  swiglu %.3f", each(out.size(), [&] {
                tier.swiglu(in.x.data(), in.x.data() + 4096, out.size(), out.data());
              }));
  std::printf("  softmax of 256 %.3f", each(kSegment, [&] {
                std::memcpy(out.data(), scores.data(), kSegment * sizeof(float));
                tier.softmax(out.data(), kSegment, 0.125f);
              }));
  std::printf("  merge of 64 %.3f\n", each(64, [&] {
                tier.merge(&state, out.data(), {0.5f, 1}, in.x.data(), 64);
              }));
}

std::vector<const Tier*> ChosenTiers(int argc, char** argv) {
  std::vector<const Tier*> tiers;
  for (const TierEntry& entry : Tiers()) {
    bool chosen = argc < 2;
    for (int i = 1; i < argc; ++i) chosen |= std::strcmp(argv[i], entry.tier->name) == 0;
    if (chosen && entry.runs) tiers.push_back(entry.tier);
  }
  return tiers;
}

void Run(const std::vector<const Tier*>& tiers) {
  Inputs in;
  std::printf("GMAC/s, rows          ");
  for (const uint32_t rows : kRowCounts) std::printf(" %6u", rows);
  std::printf("\n");
  for (const Format& format : kFormats) PrintFormat(format, tiers, in);
  for (const Tier* tier : tiers) PrintAttention(*tier, in);
  for (const Tier* tier : tiers) PrintElementwise(*tier, in);
}

}  // namespace
}  // namespace baton::kernels::cpu

int main(int argc, char** argv) {
  baton::kernels::cpu::Run(baton::kernels::cpu::ChosenTiers(argc, argv));
  return 0;
}
