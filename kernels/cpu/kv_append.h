// Rotation of queries and keys, and the writing of keys and values into blocks.
#ifndef BATON_KERNELS_CPU_KV_APPEND_H_
#define BATON_KERNELS_CPU_KV_APPEND_H_

#include "kernels/cpu/activation.h"
#include "kernels/cpu/layer_call.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tier.h"

namespace baton::kernels::cpu {

// Rotates q in place and k on its way into the blocks.
void RunRopeAppend(const Tier& tier, ThreadPool& pool, const LayerCall& call, const CpuRope& rope,
                   CpuActivation& qkv);

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_KV_APPEND_H_
