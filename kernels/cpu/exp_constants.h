// The constants of numerics v3's exponential; docs/numerics.md has the algorithm.
#ifndef BATON_KERNELS_CPU_EXP_CONSTANTS_H_
#define BATON_KERNELS_CPU_EXP_CONSTANTS_H_

namespace baton::kernels::cpu {

inline constexpr float kExpMax = 88.0f;
inline constexpr float kExpMin = -87.3f;
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
// Adding it rounds a float below 2^22 to an integer, found in the low bits of the sum.
inline constexpr float kRoundMagic = 12582912.0f;
inline constexpr float kExpPolynomial[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                            4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

// Blocks whose largest magnitude is below this are quantised to zero.
inline constexpr float kTiny = 0x1p-96f;

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_EXP_CONSTANTS_H_
