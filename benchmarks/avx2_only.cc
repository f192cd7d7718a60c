// A library to preload into a peer that chooses its code by `cpuid`: the instruction tells it of a
// processor whose newest vectors are AVX2. Without it such a peer cannot be measured beside
// --backend cpu-avx2 on a newer processor. A program that cannot be told so ends at once.
//
// Linux lets a thread make its `cpuid` fault (arch_prctl(2), inherited by the threads it starts);
// the fault is answered with the processor's own words less what is hidden.
#include <asm/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace {

struct CpuidWords {
  uint32_t eax, ebx, ecx, edx;
};

// All bits of leaf 7 that stand for instructions with masks or 512 bits, tiles, or dot products.
constexpr uint32_t kHiddenEbx = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 |
                                1u << 30 | 1u << 31;  // avx512 f dq ifma pf er cd bw vl
constexpr uint32_t kHiddenEcx =
    1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;  // avx512 vbmi vbmi2 vnni bitalg vpopcntdq
constexpr uint32_t kHiddenEdx = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 |
                                1u << 25;  // avx512 4vnniw 4fmaps vp2intersect fp16, amx

long LetCpuid(bool run) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, run ? 1ul : 0ul); }

CpuidWords Cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidWords words;
  asm volatile("cpuid"
               : "=a"(words.eax), "=b"(words.ebx), "=c"(words.ecx), "=d"(words.edx)
               : "a"(leaf), "c"(subleaf));
  return words;
}

CpuidWords Avx2Only(uint32_t leaf, uint32_t subleaf) {
  CpuidWords words = Cpuid(leaf, subleaf);
  if (leaf != 7) return words;
  if (subleaf > 0) return {};  // among others avx-vnni
  words.ebx &= ~kHiddenEbx;
  words.ecx &= ~kHiddenEcx;
  words.edx &= ~kHiddenEdx;
  return words;
}

void OnFault(int /*signal*/, siginfo_t* /*info*/, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* const code = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  if (code[0] != 0x0f || code[1] != 0xa2) {  // a fault of the program's own, which comes again
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  LetCpuid(true);
  const CpuidWords words = Avx2Only(static_cast<uint32_t>(registers[REG_RAX]),
                                    static_cast<uint32_t>(registers[REG_RCX]));
  LetCpuid(false);
  registers[REG_RAX] = words.eax;
  registers[REG_RBX] = words.ebx;
  registers[REG_RCX] = words.ecx;
  registers[REG_RDX] = words.edx;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) void Begin() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSEGV, &action, nullptr) == 0 && LetCpuid(false) == 0) return;
  perror("avx2-only: this processor or kernel cannot make cpuid fault");
  _exit(1);
}

}  // namespace
