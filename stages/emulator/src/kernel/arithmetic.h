// CUDA's arithmetic functions. The functions of errors.h make errors if they are told to, and the others
// none.
#pragma once
#include "errors.h"

// The C library's header declares some of these names itself.
#define __logf pw_logf
#define __log2f pw_log2f
#define __powf pw_powf
#define __sinf pw_sinf
#define __cosf pw_cosf
static inline float pw_logf(float x) { return logf(x); }
static inline float pw_log2f(float x) { return log2f(x); }
static inline float pw_powf(float x, float y) { return powf(x, y); }
static inline float pw_sinf(float x) { return sinf(x); }
static inline float pw_cosf(float x) { return cosf(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

#define PW_MIN_MAX(type)                                                                             \
    static inline type min(type a, type b) { return a < b ? a : b; }                                 \
    static inline type max(type a, type b) { return a > b ? a : b; }
PW_MIN_MAX(int)
PW_MIN_MAX(unsigned)
PW_MIN_MAX(long)
PW_MIN_MAX(unsigned long)
PW_MIN_MAX(long long)
PW_MIN_MAX(unsigned long long)
#undef PW_MIN_MAX
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

// Bits
template <class To, class From> static inline To pw_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) { return pw_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return pw_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return pw_bits<float>(x); }
static inline float __int_as_float(int x) { return pw_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return pw_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return pw_bits<double>(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++)
        result |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}

// Conversions
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }

// Memory
template <class T> static inline T __ldg(const T *address) { return *address; }
template <class T> static inline T __ldcs(const T *address) { return *address; }
template <class T> static inline T __ldcg(const T *address) { return *address; }
template <class T> static inline void __stcs(T *address, T value) { *address = value; }
template <class T> static inline void __stcg(T *address, T value) { *address = value; }
