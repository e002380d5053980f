// Errors that CUDA's functions may make. Without PIPEWRIGHT_EMULATOR_ERRORS they make none here. With `up` or
// `down` every result is as far off as is documented, and with a number, a seed, up to that. Source: CUDA
// Programming Guide, "Mathematical functions" (the larger bound where editions differ), and of `ex2.approx`
// the PTX manual. At 0 they are exact: nobody has seen an exponential of 0 that is not 1.
#pragma once
#include <stdlib.h>

// Read when the kernels are loaded. Inside of a function it would have a guard, which is read atomically.
static const char *const pw_errors = getenv("PIPEWRIGHT_EMULATOR_ERRORS");

// -1 to 1: how much of its documented error a function makes at this number.
static inline double pw_share(float x) {
    if (!pw_errors || x == 0) return 0;
    if (!strcmp(pw_errors, "up")) return 1;
    if (!strcmp(pw_errors, "down")) return -1;
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    unsigned long mixed = (strtoul(pw_errors, nullptr, 10) << 32 | bits) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
    return (double)(mixed >> 11) / (double)(1ul << 52) - 1;
}

// The result with an error of at most `units` units in the last place. Half a unit of it is for rounding.
static inline float pw_off(float x, double exact, double units) {
    double share = pw_share(x);
    if (share == 0 || !isfinite(exact) || exact == 0) return (float)exact;
    int power;
    frexp(exact, &power);
    double unit = ldexp(1, power < -125 ? -149 : power - 24);
    double off = exact + share * (units - 0.5) * unit;
    // None of them changes its sign by an error.
    return (float)(off * exact > 0 ? off : exact);
}

static inline float pw_exp(float x) { return pw_off(x, exp((double)x), 2); }
static inline float pw_exp2(float x) { return pw_off(x, exp2((double)x), 2); }
static inline float pw_log(float x) { return pw_off(x - 1, log((double)x), 1); }
static inline float pw_erf(float x) { return pw_off(x, erf((double)x), 2); }
static inline float pw_erfc(float x) { return pw_off(x, erfc((double)x), 4); }
static inline float pw_tanh(float x) { return pw_off(x, tanh((double)x), 2); }
static inline float pw_fast_exp(float x) {
    return pw_off(x, exp((double)x), 2 + floor(fabs(1.173 * (double)x)));
}
static inline float pw_fast_quotient(float x, float y) { return pw_off(y, (double)x / (double)y, 2); }
#define expf pw_exp
#define exp2f pw_exp2
#define logf pw_log
#define erff pw_erf
#define erfcf pw_erfc
#define tanhf pw_tanh
#define __expf pw_fast_exp
#define __fdividef pw_fast_quotient
