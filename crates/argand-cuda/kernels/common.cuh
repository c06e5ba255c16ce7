// Shared by all kernels. Compiled by NVRTC alone: no headers of CUDA or of the host.
#pragma once

#define DEVICE __device__ __forceinline__

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// The type of numbers in a caller's buffer; arithmetic is in float, or in double for F64.
enum Element { F32 = 0, F16 = 1, BF16 = 2, F64 = 3 };

DEVICE float half_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

DEVICE u16 float_to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

DEVICE float bfloat_to_float(u16 bits) { return __uint_as_float((u32)bits << 16); }

// Rounds to the nearest, ties to even; a NaN stays one.
DEVICE u16 float_to_bfloat(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40u);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <typename T>
DEVICE T read(const void* data, int element, i64 at) {
    switch (element) {
    case F32: return (T)((const float*)data)[at];
    case F16: return (T)half_to_float(((const u16*)data)[at]);
    case BF16: return (T)bfloat_to_float(((const u16*)data)[at]);
    default: return (T)((const double*)data)[at];
    }
}

template <typename T>
DEVICE void write(void* data, int element, i64 at, T value) {
    switch (element) {
    case F32: ((float*)data)[at] = (float)value; break;
    case F16: ((u16*)data)[at] = float_to_half((float)value); break;
    case BF16: ((u16*)data)[at] = float_to_bfloat((float)value); break;
    default: ((double*)data)[at] = (double)value;
    }
}

DEVICE bool finite(float value) { return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u; }
DEVICE bool finite(double value) {
    return ((u64)__double_as_longlong(value) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull;
}

// Whether a number is finite once it is written: float16 overflows sooner.
template <typename T>
DEVICE bool fits(int element, T value) {
    if (element == F16) return finite(half_to_float(float_to_half((float)value)));
    if (element == BF16) return finite(bfloat_to_float(float_to_bfloat((float)value)));
    return finite(value);
}

// The group of a row: group g has the rows from starts[g] to starts[g + 1].
DEVICE i64 group_of(const i64* starts, i64 groups, i64 row) {
    i64 first = 0, last = groups - 1;
    while (first < last) {
        const i64 middle = (first + last + 1) / 2;
        if (starts[middle] <= row) first = middle;
        else last = middle - 1;
    }
    return first;
}

// A complex sign from its number of quarter turns: 1, i, -1, -i.
template <typename T> DEVICE T turn_re(u32 turns) { return (turns & 1) ? T(0) : (turns & 2) ? T(-1) : T(1); }
template <typename T> DEVICE T turn_im(u32 turns) { return (turns & 1) ? ((turns & 2) ? T(-1) : T(1)) : T(0); }
