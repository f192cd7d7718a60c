// Clang's -Wthread-safety attributes; nothing under other compilers.
#ifndef BATON_COMMON_THREAD_ANNOTATIONS_H_
#define BATON_COMMON_THREAD_ANNOTATIONS_H_

#if defined(__clang__)
#define BATON_THREAD_ATTRIBUTE_(x) __attribute__((x))
#else
#define BATON_THREAD_ATTRIBUTE_(x)
#endif

#define BATON_CAPABILITY(name) BATON_THREAD_ATTRIBUTE_(capability(name))
#define BATON_SCOPED_CAPABILITY BATON_THREAD_ATTRIBUTE_(scoped_lockable)
// On a field: touched only with `mutex` held (or, PT: what the pointer points to).
#define BATON_GUARDED_BY(mutex) BATON_THREAD_ATTRIBUTE_(guarded_by(mutex))
#define BATON_PT_GUARDED_BY(mutex) BATON_THREAD_ATTRIBUTE_(pt_guarded_by(mutex))
// On a function: called only with / only without the mutexes held.
#define BATON_REQUIRES(...) BATON_THREAD_ATTRIBUTE_(requires_capability(__VA_ARGS__))
#define BATON_EXCLUDES(...) BATON_THREAD_ATTRIBUTE_(locks_excluded(__VA_ARGS__))
#define BATON_ACQUIRE(...) BATON_THREAD_ATTRIBUTE_(acquire_capability(__VA_ARGS__))
#define BATON_TRY_ACQUIRE(...) BATON_THREAD_ATTRIBUTE_(try_acquire_capability(__VA_ARGS__))
#define BATON_RELEASE(...) BATON_THREAD_ATTRIBUTE_(release_capability(__VA_ARGS__))
#define BATON_NO_THREAD_SAFETY_ANALYSIS BATON_THREAD_ATTRIBUTE_(no_thread_safety_analysis)

#endif  // BATON_COMMON_THREAD_ANNOTATIONS_H_
