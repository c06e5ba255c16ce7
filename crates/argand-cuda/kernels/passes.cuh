// The passes of a Fourier transform of M = 2^LOG numbers, for `tensor_sketch.cu`: which numbers a lane takes in each, and what it
// computes in registers. PASSES passes precede the last one.
#pragma once
#include "common.cuh"

DEVICE constexpr int log_radix(int pass) {
    return pass == PASSES ? 3 : (LOG - 3) / PASSES + (pass < (LOG - 3) % PASSES ? 1 : 0);
}

// Levels before a pass.
DEVICE constexpr int level_of(int pass) { return pass == 0 ? 0 : level_of(pass - 1) + log_radix(pass - 1); }

DEVICE constexpr int stride_of(int pass) { return M >> (level_of(pass) + log_radix(pass)); }

// Where the twiddles of a pass begin.
DEVICE constexpr int forward_twiddles(int pass) { return pass <= 1 ? 0 : forward_twiddles(pass - 1) + (1 << level_of(pass - 1)); }
DEVICE constexpr int inverse_twiddles(int pass) {
    return pass == 0 ? forward_twiddles(PASSES + 1) : inverse_twiddles(pass - 1) + stride_of(pass - 1);
}

DEVICE constexpr int padded(int at) { return at + at / 16; }

// A number of a few bits, in reverse.
DEVICE constexpr int reversed(int number, int bits) {
    return ((number & 1) << 3 | (number & 2) << 1 | (number & 4) >> 1 | (number & 8) >> 3) >> (4 - bits);
}

// The sixteen numbers of a lane in one pass: COUNT transforms of R numbers each, in one block.
template <int PASS>
struct Pass {
    enum {
        LOG_R = log_radix(PASS),
        R = 1 << LOG_R,
        STRIDE = stride_of(PASS),
        COUNT = PER_LANE / R,
        // From one transform to the next.
        STEP = STRIDE / COUNT,
        // Where twiddles begin.
        FORWARD = forward_twiddles(PASS),
        INVERSE = inverse_twiddles(PASS),
    };
    static DEVICE int block(int lane) { return lane / STEP; }
    static DEVICE int within(int lane) { return lane % STEP; }
    static DEVICE int first(int lane) { return block(lane) * STRIDE * R + within(lane); }
    // From the first number to another. Sums have no carries: what is padded can be added.
    static DEVICE constexpr int offset(int transform, int i) { return transform * STEP + i * STRIDE; }
};

DEVICE float2 times(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
DEVICE float2 square(float2 a) { return make_float2(a.x * a.x - a.y * a.y, (a.x + a.x) * a.y); }
// Times -i.
DEVICE float2 turned(float2 a) { return make_float2(a.y, -a.x); }

// exp(-pi i v), where v is an even block's number with its bits reversed behind the point.
DEVICE float2 root(int block) {
    switch (block) {
    case 2: return make_float2(0.70710678118654752f, -0.70710678118654752f);
    case 4: return make_float2(0.92387953251128674f, -0.38268343236508977f);
    case 6: return make_float2(0.38268343236508977f, -0.92387953251128674f);
    default: return make_float2(1.0f, 0.0f);
    }
}

// a + w b and a - w b.
DEVICE void butterfly(float2& a, float2& b, float2 w) {
    const float re = __fmaf_rn(-w.y, b.y, __fmaf_rn(w.x, b.x, a.x)), im = __fmaf_rn(w.y, b.x, __fmaf_rn(w.x, b.y, a.y));
    b = make_float2(__fmaf_rn(2.0f, a.x, -re), __fmaf_rn(2.0f, a.y, -im));
    a = make_float2(re, im);
}

DEVICE void butterfly(float2& a, float2& b) {
    const float2 sum = make_float2(a.x + b.x, a.y + b.y);
    b = make_float2(a.x - b.x, a.y - b.y);
    a = sum;
}

// The levels of a transform from one on. `u` is the twiddle of the last one's block 0, and each level's is the square of the next one's.
template <int LOG_R, bool PLAIN, int LEVEL>
DEVICE void levels_from(float2* a, float2 u) {
    if constexpr (LEVEL < LOG_R) {
        enum { HALF = (1 << LOG_R) >> (LEVEL + 1) };
        float2 power = u;
#pragma unroll
        for (int k = LEVEL; k < LOG_R - 1; k++) power = square(power);
#pragma unroll
        for (int pair = 0; pair < 1 << (LOG_R - 1); pair++) {
            const int block = pair / HALF, at = HALF * block + pair;
            if (PLAIN && block < 2) {
                if (block == 1) a[at + HALF] = turned(a[at + HALF]);
                butterfly(a[at], a[at + HALF]);
            } else {
                const float2 w = block < 2 ? power : PLAIN ? root(block & ~1) : times(power, root(block & ~1));
                butterfly(a[at], a[at + HALF], block & 1 ? turned(w) : w);
            }
        }
        levels_from<LOG_R, PLAIN, LEVEL + 1>(a, u);
    }
}

// The sums of a_t u^t exp(-2 pi i qt/R) over t, for all q, in bit-reversed order. PLAIN: u = 1.
template <int LOG_R, bool PLAIN>
DEVICE void transform(float2* a, float2 u) {
    levels_from<LOG_R, PLAIN, 0>(a, u);
}
