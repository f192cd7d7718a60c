// Prints what this processor says of its vectors: the words of cpuid's leaves 1 and 7, in the main
// thread and in another, and what the compiler's own detection makes of them. With --crash it
// writes to no memory instead.
#include <cpuid.h>

#include <cstdio>
#include <cstring>
#include <thread>

namespace {

void Print(const char* who, unsigned leaf, unsigned subleaf) {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  __cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
  if (leaf == 1) eax = ebx = 0;  // of the core that runs this
  std::printf("%s.%u.%u %08x %08x %08x %08x\n", who, leaf, subleaf, eax, ebx, ecx, edx);
}

void PrintAll(const char* who) {
  Print(who, 1, 0);
  Print(who, 7, 0);
  Print(who, 7, 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--crash") == 0) {
    int* volatile nowhere = nullptr;
    *nowhere = 1;
  }
  PrintAll("main");
  std::thread(PrintAll, "thread").join();
  std::printf("supports avx2 %d avx512f %d\n", __builtin_cpu_supports("avx2") != 0,
              __builtin_cpu_supports("avx512f") != 0);
  return 0;
}
